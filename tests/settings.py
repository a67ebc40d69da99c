"""The standalone settings as the tests run them; services come from DATABASE_URL and MEMORYGW_BROKER_URL."""

import os
import tempfile

os.environ.setdefault("SECRET_KEY", "only for tests " * 5)

from memorygw.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
MEMORYGW_PEPPER = "1:only for tests"
# A test that needs a ledger has one of its own; a rolled back database would be behind any other.
MEMORYGW_ERASURE_LEDGER = ""
MEMORYGW_LLM_CLIENT = "memorygw.llm.openai.OpenAIClient"
# Nothing listens here: a test that reaches a model without a scripted server fails at once.
MEMORYGW_LLM_BASE_URL = "http://127.0.0.1:9/v1"
MEMORYGW_LLM_RETRIES = 0
# A test has its requests within a second or two; those about throttling and the breaker switch them on.
MEMORYGW_THROTTLE_KEY = MEMORYGW_THROTTLE_USER = ""
MEMORYGW_BREAKER_FAILURES = 0
MEMORYGW_MODEL = "main"
MEMORYGW_CHEAP_MODEL = "cheap"
# Most tests count the calls of the helper model; those about titles switch them on.
MEMORYGW_TITLES_ENABLED = False

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):  # noqa: F405
    # A file, as in real life: SQLite's shared memory locks whole tables, whatever the busy timeout.
    DATABASES["default"]["TEST"] = {"NAME": os.path.join(tempfile.mkdtemp(prefix="memorygw-tests-"), "test.sqlite3")}  # noqa: F405
