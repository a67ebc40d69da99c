"""The floor: the bare driver on its own connection to the same tables, with the SQL one would write by hand."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import connection, models
from psycopg.types.json import Jsonb

Row = tuple[Any, ...]


class Floor(Protocol):
    """A driver in autocommit mode, as Django uses it: a read is one round trip, a write opens its own transaction.

    All else is as the driver comes; psycopg prepares a statement that it sees often, which Django does not.
    """

    begin: str
    now: str

    def sql(self, text: str) -> str:
        """``text`` with the driver's placeholders in place of ``%s``."""
        ...

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None: ...

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]: ...

    def id(self, value: UUID) -> Any:
        """An id as a parameter."""
        ...

    def json(self, value: Any) -> Any:
        """A JSON value as a parameter."""
        ...


class PostgresFloor:
    begin = "BEGIN"
    now = "STATEMENT_TIMESTAMP()"

    def __init__(self) -> None:
        ours = connection.get_connection_params()
        address = {name: ours[name] for name in ("dbname", "host", "port", "user", "password") if name in ours}
        self.connection = psycopg.connect(**address, autocommit=True)

    def sql(self, text: str) -> str:
        return text

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self.connection.execute(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return self.connection.execute(sql, parameters).fetchall()

    def id(self, value: UUID) -> Any:
        return value

    def json(self, value: Any) -> Any:
        return Jsonb(value)


class SQLiteFloor:
    begin = "BEGIN IMMEDIATE"
    now = "STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')"

    def __init__(self) -> None:
        options = settings.DATABASES["default"]["OPTIONS"]
        name, timeout = connection.settings_dict["NAME"], options["timeout"]
        self.connection = sqlite3.connect(name, timeout=timeout, isolation_level=None)
        self.connection.executescript(options["init_command"])
        self.connection.execute("PRAGMA foreign_keys = ON")

    def sql(self, text: str) -> str:
        return text.replace("%s", "?")

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self.connection.execute(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return self.connection.execute(sql, parameters).fetchall()

    def id(self, value: UUID) -> Any:
        return value.hex

    def json(self, value: Any) -> Any:
        return f'"{value}"' if isinstance(value, str) else "{}"


@contextmanager
def open_floor() -> Iterator[Floor]:
    floor = PostgresFloor() if connection.vendor == "postgresql" else SQLiteFloor()
    try:
        yield floor
    finally:
        floor.connection.close()


def column_names(model: type[models.Model]) -> list[str]:
    return [field.column for field in model._meta.concrete_fields if field.column]


def table(model: type[models.Model]) -> str:
    return connection.ops.quote_name(model._meta.db_table)


def columns(model: type[models.Model]) -> str:
    """All columns, as Django selects them."""
    return ", ".join(map(connection.ops.quote_name, column_names(model)))


def position(model: type[models.Model], column: str) -> int:
    """Where in a row of `columns` one column stands."""
    return column_names(model).index(column)
