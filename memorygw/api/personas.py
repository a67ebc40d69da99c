"""Personas and the tenant's switches, for an admin key."""

from collections.abc import Sequence
from typing import Any, get_args

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.auth import IsAdminKey
from memorygw.api.facts import FactValue
from memorygw.api.idempotency import PARAMETER, once
from memorygw.api.memories import MemoryObjectShape
from memorygw.api.views import GatewayViewSet, Shape, cursors, describe, page_of, valid
from memorygw.conf import ReviewPolicy, Strategy


def choice(choices: Sequence[str], *, empty: str) -> serializers.ChoiceField:
    """One of ``choices`` or an empty text, for which ``empty`` decides."""
    return serializers.ChoiceField(
        choices,
        required=False,
        allow_blank=True,
        help_text=f"Empty: {empty}",
        error_messages={"invalid_choice": f"One of {', '.join(choices)}, or empty."},
    )


class PersonaShape(Shape):
    id = serializers.UUIDField()
    name = serializers.CharField()
    instructions = serializers.CharField(allow_blank=True)
    model = serializers.CharField(allow_blank=True)
    cheap_model = serializers.CharField(allow_blank=True)
    memory_model = serializers.CharField(allow_blank=True)
    memory_enabled = serializers.BooleanField()
    memory_injection_enabled = serializers.BooleanField()
    working_memory = serializers.ChoiceField(get_args(Strategy), allow_blank=True)
    memory_tools = serializers.CharField(allow_blank=True)
    review_policy = serializers.ChoiceField(get_args(ReviewPolicy), allow_blank=True)
    fact_kind = serializers.ChoiceField(gateway.FACT_KINDS)
    max_facts = serializers.IntegerField(allow_null=True)
    recall_tool_name = serializers.CharField(allow_blank=True)
    recall_tool_description = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class PersonaPageShape(Shape):
    items = PersonaShape(many=True)
    has_more = serializers.BooleanField()


class PersonaChange(serializers.Serializer[Any]):
    # How long a text may be is the gateway's to say.
    name = serializers.CharField(required=False, help_text="1 to 100 characters, no UUID; once in a tenant.")
    instructions = serializers.CharField(
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        help_text="At most 100000 characters. {memory} marks where memory goes; else the end.",
    )
    model = serializers.CharField(required=False, allow_blank=True, help_text="Empty: the setting's.")
    cheap_model = serializers.CharField(required=False, allow_blank=True, help_text="Empty: the setting's.")
    memory_model = serializers.CharField(
        required=False, allow_blank=True, help_text="What extracts facts. Empty: the setting's, else the cheap one."
    )
    memory_enabled = serializers.BooleanField(required=False, help_text="Learn facts from its threads.")
    memory_injection_enabled = serializers.BooleanField(
        required=False, help_text="Give it what is known about the user."
    )
    working_memory = choice(get_args(Strategy), empty="the setting's.")
    memory_tools = serializers.CharField(
        required=False, allow_blank=True, help_text="A set's name, or tools' names with commas. Empty: the setting's."
    )
    review_policy = choice(get_args(ReviewPolicy), empty="the tenant's.")
    fact_kind = serializers.ChoiceField(
        gateway.FACT_KINDS,
        required=False,
        help_text="What is learned from its threads: keys with values, or free texts, these after every answer.",
    )
    max_facts = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=1_000_000,
        help_text="Most free texts of a user, under the setting's cap. null: only that.",
    )
    recall_tool_name = serializers.CharField(
        required=False, allow_blank=True, help_text="A name for recall_user_facts. Empty: that."
    )
    recall_tool_description = serializers.CharField(required=False, allow_blank=True)


class NewPersona(PersonaChange):
    name = serializers.CharField(help_text="1 to 100 characters, no UUID; once in a tenant.")


class TenantShape(Shape):
    memory_extraction_enabled = serializers.BooleanField()
    review_policy = serializers.ChoiceField(get_args(ReviewPolicy), allow_blank=True)


class TenantChange(serializers.Serializer[Any]):
    memory_extraction_enabled = serializers.BooleanField(required=False)
    review_policy = choice(get_args(ReviewPolicy), empty="the setting's.")


class PersonaViewSet(GatewayViewSet):
    permission_classes = [IsAdminKey]

    @describe("list_personas", responses=PersonaPageShape, parameters=cursors("persona"), for_user=False)
    def list(self, request: Request) -> Response:
        return Response(PersonaPageShape(gateway.list_personas(self.tenant_id, **page_of(request))).data)

    @describe(
        "create_persona", request=NewPersona, responses={201: PersonaShape}, parameters=[PARAMETER], for_user=False
    )
    def create(self, request: Request) -> Response:
        body = valid(NewPersona, request.data)
        persona = once(
            request,
            (self.tenant_id, ""),
            lambda persona_id: gateway.create_persona(self.tenant_id, persona_id=persona_id, **body),
            lambda persona_id: gateway.get_persona(self.tenant_id, persona_id),
        )
        return Response(PersonaShape(persona).data, 201)

    @describe("get_persona", responses=PersonaShape, for_user=False)
    def retrieve(self, request: Request, persona_id: str) -> Response:
        return Response(PersonaShape(gateway.get_persona(self.tenant_id, persona_id)).data)

    @describe("update_persona", request=PersonaChange, responses=PersonaShape, for_user=False)
    def partial_update(self, request: Request, persona_id: str) -> Response:
        """What is not named stays."""
        changes = valid(PersonaChange, request.data)
        return Response(PersonaShape(gateway.update_persona(self.tenant_id, persona_id, **changes)).data)

    @describe("delete_persona", responses={204: None}, for_user=False)
    def destroy(self, request: Request, persona_id: str) -> Response:
        """With its facts; its threads and runs stay, without a persona."""
        gateway.delete_persona(self.tenant_id, persona_id)
        return Response(status=204)


class TenantViewSet(GatewayViewSet):
    permission_classes = [IsAdminKey]

    @describe("get_tenant", responses=TenantShape, for_user=False)
    def retrieve(self, request: Request) -> Response:
        return Response(TenantShape(gateway.get_tenant(self.tenant_id)).data)

    @describe("update_tenant", request=TenantChange, responses=TenantShape, for_user=False)
    def partial_update(self, request: Request) -> Response:
        changes = valid(TenantChange, request.data)
        return Response(TenantShape(gateway.update_tenant(self.tenant_id, **changes)).data)


class PersonaFactViewSet(GatewayViewSet):
    """What a persona knows, for all of its users."""

    permission_classes: Sequence[Any] = [IsAdminKey]

    @describe("set_persona_fact", request=FactValue, responses=MemoryObjectShape, for_user=False)
    def put(self, request: Request, persona_id: str, key: str) -> Response:
        fact = gateway.set_persona_fact(self.tenant_id, persona_id, key, **valid(FactValue, request.data))
        return Response(MemoryObjectShape(fact).data)

    @describe("remove_persona_fact", responses={204: None}, for_user=False)
    def delete(self, request: Request, persona_id: str, key: str) -> Response:
        gateway.remove_persona_fact(self.tenant_id, persona_id, key)
        return Response(status=204)
