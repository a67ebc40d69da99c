"""The operators' pages, in plain `django.contrib.admin`: found by its autodiscovery, where a host has it."""

from django.apps import apps

if apps.is_installed("django.contrib.admin"):
    from memorygw.admin import facts, keys, learning, people, personas, receipts, threads, usage

    __all__ = ["facts", "keys", "learning", "people", "personas", "receipts", "threads", "usage"]
