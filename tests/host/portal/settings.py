"""The smallest host: what Django needs, our apps beside its own, and REST defaults that nothing of ours may rely on."""

import os

SECRET_KEY = "only for tests"
MEMORYGW_PEPPER = "1:only for tests"
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "portal.urls"
STATIC_URL = "static/"
CELERY_BROKER_URL = "memory://localhost/"
MEMORYGW_LLM_BASE_URL = os.environ["MEMORYGW_LLM_BASE_URL"]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["PORTAL_DATABASE"],
        "ATOMIC_REQUESTS": True,
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }
}
INSTALLED_APPS = [
    "forum",
    "memorygw",
    "threads",
    "usermemory",
    "workingmemory",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.FormParser"],
    "DEFAULT_PERMISSION_CLASSES": ["portal.refusals.Nobody"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.StaticHTMLRenderer"],
    "DEFAULT_SCHEMA_CLASS": "rest_framework.schemas.openapi.AutoSchema",
    "DEFAULT_THROTTLE_CLASSES": ["rest_framework.throttling.AnonRateThrottle"],
    "DEFAULT_THROTTLE_RATES": {"anon": "1/day"},
    "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.QueryParameterVersioning",
    "EXCEPTION_HANDLER": "portal.refusals.teapot",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "portal",
    "SCHEMA_PATH_PREFIX": "/api/v[0-9]",
    "SCHEMA_PATH_PREFIX_TRIM": True,
    "SERVE_PERMISSIONS": ["portal.refusals.Nobody"],
    "SERVE_PUBLIC": False,
}
