"""What is said about connections and the database's clock, once."""

from datetime import timedelta

from django.db import connection
from django.db.models import DateTimeField, DurationField, ExpressionWrapper, Value
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now


def after(seconds: float) -> "ExpressionWrapper[CombinedExpression]":
    """The database's clock plus ``seconds``: leases and claims never trust the clock of a process (trap 11)."""
    delay = Value(timedelta(seconds=seconds), output_field=DurationField())
    return ExpressionWrapper(Now() + delay, output_field=DateTimeField())


def release_connection() -> None:
    """Give this thread's connection back before something slow, so that waiting for a model holds none.

    The next query takes one again. Inside a transaction (a host's test case, say) it is kept.
    """
    if not connection.in_atomic_block:
        connection.close()
