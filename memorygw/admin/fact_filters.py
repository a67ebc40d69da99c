"""Filters of facts that their columns alone do not give."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from memorygw.models import Persona
from usermemory.models import Fact

PERSONAS_LISTED = 50
_BOUNDS = {"low": (None, 0.5), "medium": (0.5, 0.8), "high": (0.8, None)}


class ConfidenceFilter(admin.SimpleListFilter):
    title = "confidence"
    parameter_name = "confidence"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("low", "below 0.5"), ("medium", "0.5 to 0.8"), ("high", "0.8 and more")]

    def queryset(self, request: HttpRequest, queryset: "QuerySet[Fact]") -> "QuerySet[Fact]":
        lowest, highest = _BOUNDS.get(self.value() or "", (None, None))
        found = queryset if lowest is None else queryset.filter(confidence__gte=lowest)
        return found if highest is None else found.filter(confidence__lt=highest)


class PersonaFilter(admin.SimpleListFilter):
    """Facts of a persona, and of users with it: the newest personas, of all tenants."""

    title = "persona"
    parameter_name = "persona"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        newest = Persona.objects.order_by("-pk").only("name")[:PERSONAS_LISTED]
        return [(str(persona.pk), persona.name) for persona in newest]

    def queryset(self, request: HttpRequest, queryset: "QuerySet[Fact]") -> "QuerySet[Fact]":
        if not self.value():
            return queryset
        scopes = [Fact.Scope.PERSONA, Fact.Scope.PERSONA_USER]
        return queryset.filter(scope__in=scopes, owner_id=self.value())
