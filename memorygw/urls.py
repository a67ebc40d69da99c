"""Standalone URLs. A host includes `memorygw.api.urls` alone."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="memorygw:docs")),
    path("", include("memorygw.api.urls")),
    path("admin/", admin.site.urls),
]

handler404 = "memorygw.api.errors.not_found"
handler500 = "memorygw.api.errors.server_error"
