"""Voice sessions."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.auth import acting_user_if_any
from memorygw.api.idempotency import PARAMETER, once
from memorygw.api.parsers import FragmentsParser
from memorygw.api.views import GatewayViewSet, Shape, describe, valid


class NewVoiceSession(serializers.Serializer[Any]):
    persona = serializers.CharField(required=False, max_length=100, help_text="An id or a name.")
    instructions = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, help_text="The persona's when left out."
    )


class VoiceSessionShape(Shape):
    id = serializers.UUIDField()
    instructions = serializers.CharField(allow_blank=True, help_text="With what is known about the user.")


class Fragment(serializers.Serializer[Any]):
    role = serializers.ChoiceField(gateway.VOICE_ROLES)
    text = serializers.JSONField(help_text="Text; part of a word or of a character will do.")

    def validate_text(self, value: Any) -> str:
        # No CharField: half a character of two code units is legal here, and nowhere else.
        if not isinstance(value, str):
            raise serializers.ValidationError("Needs text.")
        return value


class Fragments(serializers.Serializer[Any]):
    items = serializers.ListField(child=Fragment(), min_length=1, max_length=gateway.MAX_FRAGMENTS)


class MessageShape(Shape):
    role = serializers.ChoiceField(gateway.VOICE_ROLES)
    content = serializers.CharField()


class TranscriptShape(Shape):
    messages = MessageShape(many=True)


class VoiceViewSet(GatewayViewSet):
    """Without a user nothing is told and nothing is learned."""

    parser_classes = [FragmentsParser]

    @describe("open_voice_session", request=NewVoiceSession, responses={201: VoiceSessionShape}, parameters=[PARAMETER])
    def create(self, request: Request) -> Response:
        body = valid(NewVoiceSession, request.data)
        session = once(
            request,
            (self.tenant_id, self.speaker or ""),
            lambda session_id: gateway.open_voice_session(self.tenant_id, self.speaker, session_id=session_id, **body),
            lambda session_id: gateway.get_voice_session(
                self.tenant_id, self.speaker, session_id, instructions=body.get("instructions", "")
            ),
        )
        return Response(VoiceSessionShape(session).data, 201)

    @describe("add_voice_fragments", request=Fragments, responses={202: None}, parameters=[PARAMETER])
    def fragments(self, request: Request, session_id: str) -> Response:
        items = [(item["role"], item["text"]) for item in valid(Fragments, request.data)["items"]]
        place = (self.tenant_id, self.speaker, session_id)
        once(
            request,
            (self.tenant_id, self.speaker or ""),
            lambda batch_id: gateway.add_voice_fragments(*place, items, batch_id=batch_id),
            lambda batch_id: gateway.get_voice_batch(*place, batch_id),
        )
        return Response(status=202)

    @describe("close_voice_session", request=None, responses=TranscriptShape)
    def close(self, request: Request, session_id: str) -> Response:
        """However often: facts are learned once."""
        return Response({"messages": gateway.close_voice_session(self.tenant_id, self.speaker, session_id)})

    @property
    def speaker(self) -> str | None:
        return acting_user_if_any(self.request)
