"""The playground: a chat over the REST API, and beside it what memory gives to an answer and learns from it."""

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from memorygw.conf import conf
from memorygw.llm.offline import OfflineClient

TEXTS = {
    "role_user": _("You"),
    "role_assistant": _("Assistant"),
    "role_tool": _("Tool"),
    "role_system": _("Instructions"),
    "role_developer": _("Instructions"),
    "untitled": _("Untitled"),
    "interrupted": _("Interrupted: the answer is not complete."),
    "forgotten": _("Forgotten"),
    "unsent": _("Not sent"),
    "try_again": _("Try again"),
    "calls": _("Calls {name} with {arguments}"),
    "wants": _("The model asks to call {name} with {arguments}"),
    "waiting": _("This thread waits for your decision on a call. Send anything to see it; nothing of it is stored."),
    "allow": _("Allow"),
    "refuse": _("Refuse"),
    "this_answer": _("For this answer"),
    "this_answer_how": _(
        "Facts, tokens and what was left out: as the run recorded them. Turns and notes: read just before it was asked."
    ),
    "next_answer": _("For the next answer"),
    "next_answer_how": _("What a question asked now would carry besides itself."),
    "facts": _("Facts"),
    "notes": _("Notes"),
    "turns": _("Earlier turns"),
    "tokens": _("Prompt tokens"),
    "left_out": _("Left out"),
    "none": _("none"),
    "about": _("about {n}"),
    "reported": _("{n}, as the model counts"),
    "not_reported": _("not reported by the model"),
    "facts_gone": _("{n} more, gone by now"),
    "turns_trimmed": _("earlier turns: {n}"),
    "facts_left_out": _("facts: {n}"),
    "looking": _("Looking for what is learned from the answer …"),
    "learned": _("New or changed: {n}"),
    "nothing_new": _("Nothing new was learned from the last answer."),
    "no_facts": _("Nothing is known about you yet."),
    "new": _("new"),
    "waits": _("waits for review"),
    "to_forget": _("to be forgotten, waits for review"),
    "where_from": _("Where from?"),
    "turn": _("Turn {seq}"),
    "no_quote": _("No words of yours are quoted for it."),
    "open_thread": _("Open that thread"),
    "notes_until": _("On the turns up to {n}:"),
    "error_network": _("The server cannot be reached. What you wrote is kept; send it again when you are online."),
    "error_cut": _("The connection broke while the answer was coming."),
    "error_unauthorized": _("Your session is over. Reload the page and sign in; what you wrote is kept."),
    "error_forbidden": _("The server refused this. Reload the page, or sign in again; what you wrote is kept."),
    "error_thread_busy": _("This thread is still being answered. Wait a moment, then send it again."),
    "error_thread_awaiting_human": _("This thread waits for your decision on a call:"),
    "error_context_too_large": _("The message is too long for the model. Shorten it and send it again."),
    "error_body_too_large": _("The message is too long. Shorten it and send it again."),
    "error_http_413": _("The message is too long. Shorten it and send it again."),
    "error_throttled": _("Too many requests."),
    "error_model_failed": _("The model did not answer."),
    "error_model_unavailable": _("The model has failed again and again and is left alone for a while."),
    "error_unavailable": _("The service is not available at the moment."),
    "error_other": _("Something went wrong. Try again."),
    "retry_after": _("Try again in {n} s."),
}
"""What the page's script says. ``error_`` and a code of the API: that error, where its own words would not do."""

_OFFLINE = f"{OfflineClient.__module__}.{OfflineClient.__qualname__}"


@require_safe
def playground(request: HttpRequest) -> HttpResponse:
    """For staff; in development for everybody who is signed in."""
    if not (settings.DEBUG or request.user.is_staff):
        raise PermissionDenied
    learns = conf.EXTRACTION_ENABLED and "turns" in conf.EXTRACTION_TRIGGERS
    context = {
        "texts": TEXTS,
        "model": "" if conf.LLM_CLIENT == _OFFLINE else conf.MODEL,
        "learns_every": conf.EXTRACT_EVERY_TURNS if learns else None,
    }
    return render(request, "memorygw/pages/playground.html", context)
