"""The async forms: the sync method in a thread of its own."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

P = ParamSpec("P")
T = TypeVar("T")


async def run_sync(work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """What ``work`` gives. Other tasks go on meanwhile, and the thread keeps no database connection."""

    def run() -> T:
        try:
            return work(*arguments, **options)
        finally:
            connections.close_all()

    return await sync_to_async(run, thread_sensitive=False)()
