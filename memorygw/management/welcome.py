"""What `serve` says once it listens: where to click, and in development a login that it makes."""

from collections.abc import Iterator
from ipaddress import ip_address

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import DatabaseError
from django.urls import NoReverseMatch, reverse

DEVELOPER = "developer"
_PAGES = {
    "Playground": "memorygw_pages:playground",
    "My memory": "memorygw_pages:memory",
    "Admin": "admin:index",
    "API docs": "memorygw:docs",
}


def welcome(base_url: str, host: str) -> Iterator[str]:
    """A line for each page that the project's URLs have, and one about the login, if there is something to say."""
    for label, name in _PAGES.items():
        if path := _path_of(name):
            yield f"{label + ':':<14}{base_url}{path}"
    if words := _login(host):
        yield words


def _path_of(name: str) -> str:
    try:
        return reverse(name)
    except NoReverseMatch:
        return ""


def _login(host: str) -> str:
    password = getattr(settings, "DEVELOPER_PASSWORD", "")
    if not (settings.DEBUG and password and apps.is_installed("django.contrib.auth")):
        return ""
    if not _is_loopback(host):
        return "No login was made: other machines may reach this server."
    try:
        _make_developer(password)
    except DatabaseError:
        return "No login was made: the database does not answer, or lacks its tables. Run migrate."
    return f"Sign in as {DEVELOPER} / {password} (made for development, on this machine only)."


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _make_developer(password: str) -> None:
    """Who is there already stays as they are, but for a password that is another one."""
    model = get_user_model()
    user = model._default_manager.filter(**{model.USERNAME_FIELD: DEVELOPER}).first()
    if user is None:
        model.objects.create_superuser(DEVELOPER, password=password)
    elif not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
