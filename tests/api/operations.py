"""Every operation of the API, from the URLconf itself, and bodies that fit its published schema."""

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RoutePattern

PREFIX = "/api/v1"
Path = tuple[str | int, ...]


class Route(NamedTuple):
    """A URL of ours: ``path`` as OpenAPI writes it, e.g. "/api/v1/threads/{thread_id}"."""

    path: str
    callback: Callable[..., Any]


def routes(patterns: Sequence[URLPattern | URLResolver] | None = None, prefix: str = "/") -> Iterator[Route]:
    if patterns is None:
        patterns = get_resolver("memorygw.api.urls").url_patterns
    for item in patterns:
        assert isinstance(item.pattern, RoutePattern), f"The walk cannot read {item.pattern}."
        path = prefix + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(item.pattern))
        if isinstance(item, URLResolver):
            yield from routes(item.url_patterns, path)
        else:
            yield Route(path, item.callback)


@dataclass(frozen=True)
class Operation:
    """One method of a view set's route."""

    method: str
    path: str
    callback: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path.removeprefix(PREFIX)}"

    @property
    def arguments(self) -> list[str]:
        """What the path names, e.g. ["thread_id"]."""
        return re.findall(r"{(\w+)}", self.path)

    @property
    def permissions(self) -> list[Any]:
        """As DRF asks for them, also when a view set chooses by action."""
        view = self.callback.cls(**self.callback.initkwargs)
        view.action = self.callback.actions[self.method.lower()]
        return list(view.get_permissions())

    @property
    def schema(self) -> dict[str, Any]:
        """As published; empty for an operation that is left out of the document."""
        method = "get" if self.method == "HEAD" else self.method.lower()
        described: dict[str, Any] = document()["paths"].get(self.path, {}).get(method, {})
        return described

    @property
    def parameters(self) -> dict[tuple[str, str], Any]:
        """(place, name) → schema of what goes into the query string and the headers."""
        given = self.schema.get("parameters", [])
        return {(item["in"], item["name"]): item["schema"] for item in given if item["in"] != "path"}

    @property
    def body(self) -> dict[str, Any] | None:
        """The schema of the body, or None for an operation that takes none."""
        content = self.schema.get("requestBody", {}).get("content", {})
        return content["application/json"]["schema"] if content else None


def operations() -> list[Operation]:
    """What the view sets say they do."""
    return [
        Operation(method.upper(), route.path, route.callback)
        for route in routes()
        for method in getattr(route.callback, "actions", {})
        if method != "head"
    ]


def probes() -> list[Operation]:
    """What every HTTP server may be asked beside: HEAD where there is GET, OPTIONS and TRACE everywhere."""
    return [
        Operation(method, route.path, route.callback)
        for route in routes()
        if (actions := getattr(route.callback, "actions", {}))
        for method in ("OPTIONS", "TRACE", *(["HEAD"] if "get" in actions else []))
    ]


@cache
def document() -> dict[str, Any]:
    published: dict[str, Any] = Client().get(f"{PREFIX}/schema").json()
    return published


def example(schema: dict[str, Any], value: Callable[[str], Any]) -> Any:
    """The smallest body that fits: what is required, and no more. ``value(name)`` overrules by a property's name."""
    schema = resolved(schema)
    if "properties" in schema:
        return {
            name: found if (found := value(name)) is not None else example(schema["properties"][name], value)
            for name in schema.get("required", [])
        }
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "array":
        return [example(schema["items"], value)] * schema.get("minItems", 0)
    simple = {"object": {}, "integer": schema.get("minimum", 1), "number": 1.5, "boolean": True}
    return simple.get(schema.get("type", "string"), "Hello")


def paths(schema: dict[str, Any], names: Container[str], at: Path = ()) -> Iterator[Path]:
    """Where a body that fits the schema can bear one of the names: ("decisions", 0, "tool_call_id")."""
    schema = resolved(schema)
    if schema.get("type") == "array":
        yield from paths(schema["items"], names, (*at, 0))
    for name, inner in schema.get("properties", {}).items():
        if name in names:
            yield (*at, name)
        else:
            yield from paths(inner, names, (*at, name))


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Without references, and of several alternatives the first."""
    if "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for several in ("allOf", "oneOf", "anyOf"):
        if several in schema:
            return resolved(schema[several][0])
    return schema
