"""Included beside `memorygw.api.urls` by who wants the pages, under a prefix of choice."""

from collections.abc import Callable

from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpResponseBase
from django.urls import path
from django.views.decorators.cache import never_cache

from memorygw.pages import memory
from memorygw.pages.playground import playground

app_name = "memorygw_pages"


def view(page: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """For who is signed in, kept by no cache. Never inside a host's ATOMIC_REQUESTS, as `memorygw.api.urls.view`."""
    return transaction.non_atomic_requests(never_cache(login_required(page)))


urlpatterns = [
    path("me/memory/", view(memory.MemoryView.as_view()), name="memory"),
    path("me/memory/switch/", view(memory.SwitchView.as_view()), name="switch_memory"),
    path("me/memory/proposals/<uuid:memory_id>/", view(memory.ProposalView.as_view()), name="proposal"),
    path("me/memory/facts/<uuid:memory_id>/", view(memory.FactView.as_view()), name="fact"),
    path("me/memory/facts/<uuid:memory_id>/forget/", view(memory.ForgetFactView.as_view()), name="forget_fact"),
    path("me/memory/forget/", view(memory.ForgetAllView.as_view()), name="forget_all"),
    path("me/memory/memory.json", view(memory.DownloadView.as_view()), name="download"),
    path("playground/", view(playground), name="playground"),
]
