"""One server for both: our API, and the one written by hand."""

from django.urls import include, path

from benchmarks.by_hand import router

urlpatterns = [
    path("", include("memorygw.urls")),
    path("by-hand/", include(router.urls)),
]
