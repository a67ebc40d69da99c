"""Periodic work, for Celery beat, and the late work of this app."""

from celery import shared_task

import memorygw.sweep
from memorygw.voice import learn_from_voice as learn_from_voice


@shared_task(name="memorygw.tasks.sweep", ignore_result=True)
def sweep() -> None:
    memorygw.sweep.keep_house()
    memorygw.sweep.wake_due()


@shared_task(name="memorygw.tasks.scan", ignore_result=True)
def scan() -> None:
    memorygw.sweep.wake_scanned()
