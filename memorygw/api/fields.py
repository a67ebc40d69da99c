"""Fields that hold JSON, with the schema that is published of them. What is allowed is checked further in."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from memorygw.llm.base import MAX_CALL_ID_CHARS
from memorygw.text import MAX_USER_ID_CHARS
from memorygw.tools import NAME
from threads.turns import PART_TYPES, ROLES

_TEXT = {"type": "string"}
_NOT_BLANK = {"type": "string", "pattern": r"\S"}


def _object(**properties: Any) -> dict[str, Any]:
    """Of which every property is required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(**properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": _object(**properties)}


def _content(text: dict[str, Any]) -> dict[str, Any]:
    bodies = {"text": text, "refusal": text}
    parts = [
        _object(**{"type": {"type": "string", "enum": [kind]}, kind: bodies.get(kind, {"type": "object"})})
        for kind in PART_TYPES
    ]
    return {"oneOf": [text, {"type": "array", "items": {"oneOf": parts}, "minItems": 1}]}


@extend_schema_field(_content(_TEXT))
class ContentField(serializers.JSONField):
    """What a turn says: text or parts."""


@extend_schema_field(_content(_NOT_BLANK))
class QuestionField(serializers.JSONField):
    """What a person asks: the same, and not blank."""


@extend_schema_field(
    _list(id=_TEXT | {"minLength": 1, "maxLength": MAX_CALL_ID_CHARS}, function=_object(name=_TEXT, arguments=_TEXT))
)
class ToolCallsField(serializers.ListField):
    """Calls as a model made them, in OpenAI's shape."""


@extend_schema_field(
    _list(
        type={"type": "string", "enum": ["function"]},
        function=_object(name={"type": "string", "pattern": f"^{NAME.pattern}$"}),
    )
)
class ToolsField(serializers.ListField):
    """Tools of the caller's, in OpenAI's shape."""


@extend_schema_field(
    {"type": "array", "items": _object(role={"type": "string", "enum": list(ROLES)}, content=_content(_NOT_BLANK))}
    | {"minItems": 1}
)
class MessagesField(serializers.JSONField):
    """A conversation in OpenAI's shape."""


@extend_schema_field(
    {
        "oneOf": [
            {"type": "array", "items": {"type": "string", "format": "uuid"}},
            {"type": "string", "enum": ["all"]},
        ]
    }
)
class IdsField(serializers.JSONField):
    """Which threads are meant."""


@extend_schema_field({"oneOf": [_NOT_BLANK | {"maxLength": MAX_USER_ID_CHARS}, {"type": "integer"}]})
class UserIdField(serializers.JSONField):
    """An external user id (K12)."""
