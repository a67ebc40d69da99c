# `make demo` and `make test` are all the set-up there is: .venv is made when it is missing or older than the requirements.
PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin/python
READY = $(VENV)/.ready
COMPILE = $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --custom-compile-command "make requirements" pyproject.toml

.PHONY: demo serve test lint bench bench-streams bench-rights eval rows screenshots requirements

demo: $(READY)
	@DEBUG=true $(RUN) manage.py demo

serve: $(READY)
	@DEBUG=true $(RUN) manage.py migrate --verbosity 0
	@# It learns after each answer, so that it can be watched.
	@MEMORYGW_EXTRACT_EVERY_TURNS=$${MEMORYGW_EXTRACT_EVERY_TURNS:-2} DEBUG=true $(RUN) manage.py serve --port $(or $(PORT),8000)

test: $(READY)
	@$(RUN) -m pytest $(ARGS)

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: $(READY)
	@$(RUN) -m benchmarks

bench-streams: $(READY)
	@$(RUN) -m benchmarks.streams

bench-rights: $(READY)
	@$(RUN) -m benchmarks.rights

eval: $(READY)
	@$(RUN) -m tests.evals

rows: $(READY)
	@$(RUN) -m tests.rows

screenshots: $(READY)
	@$(RUN) -m tests.screenshots

requirements: $(READY)
	$(COMPILE) --output-file requirements.txt
	$(COMPILE) --group dev --output-file requirements-dev.txt

$(READY): requirements.txt requirements-dev.txt
	@echo "Preparing $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
	@touch $@
