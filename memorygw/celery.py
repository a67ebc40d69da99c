"""The standalone Celery app. A host uses its own: our tasks are shared tasks that any app finds."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memorygw.settings")

app = Celery("memorygw")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
