import os

from django.core.asgi import get_asgi_application

# The app must exist before a request enqueues anything.
from memorygw.celery import app as celery_app

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memorygw.settings")

__all__ = ["application", "celery_app"]

application = get_asgi_application()
