"""Periodic work, for Celery beat."""

from celery import shared_task

import memorygw.sweep


@shared_task(name="memorygw.tasks.sweep", ignore_result=True)
def sweep() -> None:
    memorygw.sweep.recover_stuck_runs()
    memorygw.sweep.wake_due()
