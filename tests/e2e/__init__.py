import pytest

# Its checks are assertions too.
pytest.register_assert_rewrite("tests.e2e.ledger")
