"""Standalone settings: everything comes from the environment, or from a ``.env`` file beside manage.py.

A host project sets the same ``MEMORYGW_*`` names in its own settings and never loads this module.
"""

import os
import secrets
from pathlib import Path
from typing import Any

import dj_database_url
from django.core.exceptions import ImproperlyConfigured
from dotenv import load_dotenv
from environs import Env

from memorygw import conf

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = BASE_DIR / ".data"

# Into the environment itself, where the openai package and our own typed settings look too.
load_dotenv(BASE_DIR / ".env")
env = Env()


def _memorygw_settings() -> dict[str, Any]:
    """Every ``MEMORYGW_*`` variable, typed by its setting; unknown ones are kept, for the system check to report."""
    names = {name: name.removeprefix("MEMORYGW_") for name in os.environ if name.startswith("MEMORYGW_")}
    values: dict[str, Any] = {}
    for variable, name in names.items():
        text = os.environ[variable]
        try:
            values[variable] = conf.parse(name, text) if name in conf.kinds() else text
        except ValueError as error:
            raise ImproperlyConfigured(f"{variable} cannot be read: {error}") from None
    return values


def _secret_key() -> str:
    """From the environment; in development made once and kept in a file."""
    if key := env.str("SECRET_KEY", ""):
        return str(key)
    if not DEBUG:
        raise ImproperlyConfigured("Set SECRET_KEY, or DEBUG=true for development.")
    return _kept_secret("secret_key")


def _kept_secret(name: str, length: int = 67) -> str:
    """Made once and kept in a file: so many characters that can stand in a URL."""
    file = DATA_DIR / name
    if not file.exists():
        DATA_DIR.mkdir(exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(length)[:length])
    return file.read_text()


def _database(url: str) -> dict[str, Any]:
    database: dict[str, Any] = dict(dj_database_url.parse(url))
    options = database.setdefault("OPTIONS", {})
    if database["ENGINE"].endswith("postgresql"):
        # Without health checks the first query after a restart of the server fails.
        database |= {"CONN_HEALTH_CHECKS": True, "CONN_MAX_AGE": 0}
        options["pool"] = {"min_size": 1, "max_size": globals().get("MEMORYGW_DB_POOL_SIZE", 10), "timeout": 10}
    elif database["ENGINE"].endswith("sqlite3"):
        # Several threads write: writers queue up instead of failing, readers never wait.
        options |= {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    return database


DEBUG = env.bool("DEBUG", False)
globals().update(_memorygw_settings())
SECRET_KEY = _secret_key()
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])

DATABASE_URL = env.str("DATABASE_URL", "")
DEFAULT_DATABASE_URL = f"sqlite:///{DATA_DIR / 'memorygw.sqlite3'}"
if not DATABASE_URL:
    DATA_DIR.mkdir(exist_ok=True)
    DATABASE_URL = DEFAULT_DATABASE_URL
DATABASES = {"default": _database(DATABASE_URL)}
if DEBUG:
    MEMORYGW_PEPPER = globals().get("MEMORYGW_PEPPER") or f"1:{_kept_secret('pepper')}"
    # Of the login that `serve` makes. A host has no such setting, and gets no such login.
    DEVELOPER_PASSWORD = _kept_secret("developer_password", 12)
if DATABASE_URL == DEFAULT_DATABASE_URL:
    MEMORYGW_ERASURE_LEDGER = globals().get("MEMORYGW_ERASURE_LEDGER", str(DATA_DIR / "erasures"))
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "memorygw",
    "threads",
    "usermemory",
    "workingmemory",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "memorygw.urls"
WSGI_APPLICATION = "memorygw.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
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
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
# Found without it; `makemessages` asks where the texts of templates go, which are in no app's folder.
LOCALE_PATHS = [BASE_DIR / "memorygw" / "locale"]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "memorygw_pages:memory"
LOGOUT_REDIRECT_URL = LOGIN_URL
TIME_ZONE = "UTC"
USE_TZ = True
APPEND_SLASH = False
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True
DATA_UPLOAD_MAX_MEMORY_SIZE = 10_000_000

HTTPS = globals().get("MEMORYGW_HTTPS", False)
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
SECURE_REDIRECT_EXEMPT = ["^livez$", "^readyz$", "^metrics$"]

# The offline model answers only where nothing is configured and only in development: never in place of a failing model.
if DEBUG and not any(env.str(name, "") for name in conf.MODEL_VARIABLES):
    MEMORYGW_LLM_CLIENT = "memorygw.llm.offline.OfflineClient"

# Celery itself lets an environment variable of that name win, so it has to be ours too.
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", "") or globals().get("MEMORYGW_BROKER_URL") or None
if CELERY_BROKER_URL and CELERY_BROKER_URL.startswith("redis"):
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": CELERY_BROKER_URL,
            "KEY_PREFIX": "memorygw",
            "OPTIONS": {"socket_timeout": 1, "socket_connect_timeout": 1},
        }
    }
CELERY_TASK_IGNORE_RESULT = True
# A worker waits for its broker as long as it takes; 100 attempts are given up after an hour.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 30
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A worker's lines are those of LOGGING.
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
if CELERY_BROKER_URL and CELERY_BROKER_URL.startswith("redis"):
    # A dead or silent Redis must cost a request little; a task lost with its worker comes back within a minute or so.
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "visibility_timeout": 900,
        "socket_timeout": 2,
        "socket_connect_timeout": 2,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
    }
CELERY_BEAT_SCHEDULE = {
    "sweep": {"task": "memorygw.tasks.sweep", "schedule": globals().get("MEMORYGW_SWEEP_EVERY_SECONDS", 30)},
    "scan": {"task": "memorygw.tasks.scan", "schedule": globals().get("MEMORYGW_SCAN_EVERY_SECONDS", 300)},
}

SPECTACULAR_SETTINGS = {
    "TITLE": "memorygw",
    "ENUM_NAME_OVERRIDES": {
        "MemoryStatusEnum": "memorygw.gateway.STATUSES",
        "RoleEnum": "threads.turns.ROLES",
        "SpeakerEnum": "memorygw.gateway.VOICE_ROLES",
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {
            "()": "memorygw.logs.Lines",
            "fmt": "{asctime} {levelname} {name} {request_id}: {message}",
            "style": "{",
        },
        "json": {"()": "memorygw.logs.JSONLines"},
    },
    "filters": {"without_path": {"()": "memorygw.logs.WithoutPath"}},
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            # A name that there is not is reported by the system check.
            "formatter": "json" if globals().get("MEMORYGW_LOG_FORMAT") == "json" else "plain",
        }
    },
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        **{name: {"level": "INFO"} for name in ("memorygw", "threads", "usermemory", "workingmemory")},
        "django": {"handlers": ["console"], "level": "WARNING", "propagate": False},
        # A refused request is the client's affair.
        "django.request": {"level": "ERROR", "filters": ["without_path"]},
        "waitress": {"filters": ["without_path"]},
    },
}
