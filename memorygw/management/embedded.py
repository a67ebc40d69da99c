"""A worker and a timer inside the serving process, for a machine without a broker."""

import logging
import threading
import time
from typing import Any, cast

from celery import current_app
from celery.worker import WorkController
from django.db import close_old_connections

from memorygw.conf import conf
from memorygw.sweep import keep_house, wake_due, wake_scanned

logger = logging.getLogger(__name__)

_THREADS = 4


class EmbeddedWorker:
    """A Celery worker in a thread, listening on an in-memory broker of this process, and the sweep's timer.

    Only here is that broker set: where nobody listens, messages would pile up in memory.
    """

    def __init__(self) -> None:
        self._stopping = threading.Event()
        app = cast("Any", current_app)._get_current_object()
        app.conf.broker_url = app.conf.broker_url or "memory://localhost/"
        self._controller = WorkController(app=app, pool_cls="threads", concurrency=_THREADS, without_mingle=True)
        self._app = app
        self._threads = [
            threading.Thread(target=target, name=f"memorygw-{target.__name__}", daemon=True)
            for target in (self._work, self._tick)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let running jobs end. What is not done by then keeps its row and is found by the next sweep."""
        self._stopping.set()
        self._controller.stop()

    def _work(self) -> None:
        self._app.set_current()
        self._controller.start()

    def _tick(self) -> None:
        self._app.set_current()
        next_scan = time.monotonic() + conf.SCAN_EVERY_SECONDS
        while not self._stopping.wait(min(conf.SWEEP_EVERY_SECONDS, conf.SCAN_EVERY_SECONDS)):
            try:
                keep_house()
                if time.monotonic() >= next_scan:
                    next_scan = time.monotonic() + conf.SCAN_EVERY_SECONDS
                    wake_scanned()
                wake_due()
            except Exception as error:
                # The next pass may fare better; without its timer nothing is found any more.
                logger.warning("The sweep failed: %s", type(error).__name__)
            finally:
                close_old_connections()
