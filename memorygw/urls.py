"""Standalone URLs. A host includes `memorygw.api.urls`, and `memorygw.pages.urls` if it wants the pages."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="memorygw:docs")),
    path("", include("memorygw.api.urls")),
    path("", include("memorygw.pages.urls")),
    path("login/", LoginView.as_view(template_name="memorygw/pages/login.html"), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("admin/", admin.site.urls),
]

handler404 = "memorygw.api.errors.not_found"
handler500 = "memorygw.api.errors.server_error"
