"""What is remembered about me: read, corrected, decided on, forgotten and taken along by the person it is about."""

from collections.abc import Mapping
from functools import cached_property
from itertools import chain
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.views import View

from memorygw import gateway
from memorygw.api.auth import identity_of
from memorygw.conf import conf
from memorygw.exceptions import (
    ContentChangedError,
    ErasureRunningError,
    ForbiddenError,
    MemorygwError,
    MemoryNotFoundError,
    NotFoundError,
    NotPendingError,
)
from memorygw.pages.forms import FactForm, ForgetForm
from memorygw.pages.shown import shown_answers, shown_memories

FACTS_PER_PAGE = 50
PROPOSALS_SHOWN = 20

_NOTICES: Mapping[type[Exception], tuple[Promise, Promise]] = {
    NotFoundError: (_("This is not here"), _("There is no such thing in your memory, or not any more.")),
    ErasureRunningError: (
        _("Your memory is being erased"),
        _("Everything that is stored about you is being erased at the moment. Nothing can be changed meanwhile."),
    ),
    ForbiddenError: (_("This is not yours to decide"), _("What is proposed here is decided on by somebody else.")),
    MemorygwError: (_("That did not work"), _("Your memory cannot be shown or changed at the moment.")),
}

_SWITCHES = {"on": (True, _("Memory is on now.")), "off": (False, _("Memory is off now."))}
_DECISIONS = {
    "approve": (gateway.approve_memory, _("The proposal was approved.")),
    "reject": (gateway.reject_memory, _("The proposal was rejected.")),
}
_CHANGED = _("The proposal has changed or was decided on meanwhile. Nothing was done: please look again.")


class PersonView(View):
    """A page for who is signed in, about nobody else. What the gateway refuses becomes a page that says so."""

    @cached_property
    def person(self) -> tuple[UUID, str]:
        return identity_of(self.request)

    @property
    def before(self) -> str:
        """The fact behind which the page of facts begins, as the address or a form names it; empty: the first page."""
        return self.request.POST.get("before") or self.request.GET.get("before", "")

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return super().dispatch(request, *args, **kwargs)
        except MemorygwError as error:
            title, text = next(words for kind, words in _NOTICES.items() if isinstance(error, kind))
            return self.page("notice.html", {"title": title, "text": text}, status=error.status)

    def page(self, template: str, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
        return render(self.request, f"memorygw/pages/{template}", context, status=status)

    def back(self) -> HttpResponseRedirect:
        """To the page of facts that a form came from."""
        match = self.request.resolver_match
        address = reverse("memorygw_pages:memory", current_app=match.namespace if match else None)
        return HttpResponseRedirect(f"{address}?{urlencode({'before': self.before})}" if self.before else address)


class ActionView(PersonView):
    """Something that is only done. Whoever comes by its address, from a sign-in say, gets the page."""

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return self.back()


class MemoryView(PersonView):
    def get(self, request: HttpRequest) -> HttpResponse:
        enabled = gateway.user_memory_enabled(*self.person)
        waiting = gateway.list_memories_page(*self.person, status="pending_review", limit=PROPOSALS_SHOWN)
        facts = gateway.list_memories_page(*self.person, limit=FACTS_PER_PAGE, ending_before=self.before or None)
        proposals, known = shown_memories(*self.person, waiting.items, facts.items)
        context = {
            "enabled": enabled,
            "proposals": proposals,
            "more_proposals": waiting.has_more,
            "may_decide": conf.USER_CAN_APPROVE,
            "facts": known,
            "before": self.before,
            "older": facts.items[-1].pk if facts.has_more else None,
            "answers": shown_answers(*self.person),
        }
        return self.page("memory/page.html", context)


class SwitchView(ActionView):
    def post(self, request: HttpRequest) -> HttpResponse:
        if wanted := _SWITCHES.get(request.POST.get("memory", "")):
            enabled, text = wanted
            gateway.set_user_memory(*self.person, enabled=enabled)
            messages.success(request, text)
        return self.back()


class ProposalView(ActionView):
    def post(self, request: HttpRequest, memory_id: UUID) -> HttpResponse:
        if wanted := _DECISIONS.get(request.POST.get("decision", "")):
            decide, text = wanted
            try:
                # An empty hash would say yes to anything.
                decide(*self.person, memory_id, content_hash=request.POST.get("seen") or "not shown")
                messages.success(request, text)
            except (NotPendingError, ContentChangedError):
                messages.warning(request, _CHANGED)
        return self.back()


class FactView(PersonView):
    """One fact to be edited: where its form on the page leads to, and where it stays until it is right."""

    def get(self, request: HttpRequest, memory_id: UUID) -> HttpResponse:
        return self._edit(FactForm(self._fact(memory_id)))

    def post(self, request: HttpRequest, memory_id: UUID) -> HttpResponse:
        form = FactForm(self._fact(memory_id), request.POST)
        if not (form.is_valid() and form.save(*self.person)):
            return self._edit(form)
        messages.success(request, _("Your change was saved."))
        return self.back()

    def _fact(self, memory_id: UUID) -> Any:
        memory = gateway.get_memory(*self.person, memory_id)
        if memory.status != "active" or memory.scope != "user":
            raise MemoryNotFoundError
        return memory

    def _edit(self, form: FactForm) -> HttpResponse:
        [[shown]] = shown_memories(*self.person, [form.memory])
        return self.page("memory/edit.html", {"form": form, "shown": shown, "before": self.before})


class ForgetFactView(ActionView):
    def post(self, request: HttpRequest, memory_id: UUID) -> HttpResponse:
        gateway.delete_memory(*self.person, memory_id)
        messages.success(request, _("The fact was forgotten."))
        return self.back()


class ForgetAllView(PersonView):
    def get(self, request: HttpRequest) -> HttpResponse:
        return self._confirm(ForgetForm())

    def post(self, request: HttpRequest) -> HttpResponse:
        form = ForgetForm(request.POST)
        if not form.is_valid():
            return self._confirm(form)
        gateway.clear_user_facts(*self.person)
        messages.success(request, _("Everything was forgotten."))
        return self.back()

    def _confirm(self, form: ForgetForm) -> HttpResponse:
        return self.page("memory/forget.html", {"form": form, "counts": gateway.count_memories(*self.person)})


class DownloadView(PersonView):
    """All of what is stored about the person, streamed."""

    def get(self, request: HttpRequest) -> StreamingHttpResponse:
        chunks = gateway.export_user(*self.person)
        # What goes wrong before the first chunk is still a page.
        first = next(chunks)
        response = StreamingHttpResponse(chain([first], chunks), content_type="application/json")
        response["Content-Disposition"] = 'attachment; filename="memory.json"'
        return response
