"""Included beside `memorygw.api.urls` by who wants the pages, under a prefix of choice."""

from django.urls import URLPattern

app_name = "memorygw_pages"

urlpatterns: list[URLPattern] = []
