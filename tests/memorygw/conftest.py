"""What the tests of this folder share."""

import pytest
from pytest_django import Settings

from tests.memorygw.runs import CALLERS


@pytest.fixture
def weather(settings: Settings) -> None:
    CALLERS.clear()
    settings.MEMORYGW_TOOLS = ["tests.memorygw.runs.WEATHER"]
