"""The standalone settings, with what the API written by hand needs beside ours."""

from memorygw.settings import *  # noqa: F403

ROOT_URLCONF = "benchmarks.urls"
INSTALLED_APPS = [*INSTALLED_APPS, "rest_framework.authtoken"]  # noqa: F405
