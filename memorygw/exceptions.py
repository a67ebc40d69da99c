"""One error tree. A class carries what the envelope of an answer needs: code, HTTP status, number, words for a person.

The docstring of a class is its message; messages never echo an id or anything a client sent.
"""

from dataclasses import dataclass
from typing import Any, ClassVar


class MemorygwError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    number: ClassVar[int | None] = None
    user_message: ClassVar[str] = ""

    def __init__(self, message: str = "", *, fields: dict[str, list[str]] | None = None, **details: Any) -> None:
        """``fields`` names what is wrong per field; ``details`` are ids it is about (``thread_ids``, ``run_id``)."""
        super().__init__(message or (type(self).__doc__ or "").strip())
        self.fields = fields
        self.details = details


class InvalidError(MemorygwError):
    """The request is not valid."""

    code, status = "invalid", 400


class UserRequiredError(MemorygwError):
    """Name the acting user once, by ?user= or the header X-Memorygw-User."""

    code, status = "user_required", 400


class UserMismatchError(MemorygwError):
    """The query string and the header name different users."""

    code, status = "user_mismatch", 400


class CredentialInQueryError(MemorygwError):
    """Keys belong in the Authorization header, never in the query string."""

    code, status = "credential_in_query", 400


class BlankFactError(MemorygwError):
    """A fact needs a key and a value."""

    code, status, number = "fact_blank", 400, 5372597957094


class FactTooLongError(MemorygwError):
    """The key or the value of the fact is too long."""

    code, status, number = "fact_too_long", 400, 5377210486159
    user_message = "That is too long to remember. Please say it in fewer words."


class FactRefusedError(MemorygwError):
    """That must not be remembered."""

    code, status = "fact_refused", 400
    user_message = "Passwords, keys and payment data are not remembered."


class ForbiddenError(MemorygwError):
    """The credential may not do this."""

    code, status = "forbidden", 403


class NotFoundError(MemorygwError):
    """Not found."""

    code, status = "not_found", 404


class ThreadNotFoundError(NotFoundError):
    """There is no such thread."""

    code, number = "thread_not_found", 5372567786151


class TurnNotFoundError(NotFoundError):
    """There is no such turn."""

    code = "turn_not_found"


class RunNotFoundError(NotFoundError):
    """There is no such run."""

    code = "run_not_found"


class VoiceSessionNotFoundError(NotFoundError):
    """There is no such voice session."""

    code = "voice_session_not_found"


class ToolNotFoundError(NotFoundError):
    """There is no such tool."""

    code = "tool_not_found"


class MemoryNotFoundError(NotFoundError):
    """There is no such memory."""

    code = "memory_not_found"


class PersonaNotFoundError(NotFoundError):
    """There is no such persona."""

    code = "persona_not_found"


class ReceiptNotFoundError(NotFoundError):
    """There is no such receipt."""

    code = "receipt_not_found"


class TenantNotFoundError(NotFoundError):
    """There is no such tenant."""

    code = "tenant_not_found"


class ThreadBusyError(MemorygwError):
    """Another call is running on the thread."""

    code, status = "thread_busy", 409
    user_message = "I am still answering. Please wait a moment."


class ThreadAwaitingHumanError(MemorygwError):
    """The thread waits for a person's decision."""

    code, status = "thread_awaiting_human", 409


class ThreadClosedError(MemorygwError):
    """The thread is closed."""

    code, status = "thread_closed", 409


class VoiceSessionClosedError(MemorygwError):
    """The voice session is closed."""

    code, status = "voice_session_closed", 409


class LeaseLostError(MemorygwError):
    """The call took longer than its lease, and another call has taken the thread over."""

    code, status = "lease_lost", 409


class RunNotWaitingError(MemorygwError):
    """The run does not wait for a decision."""

    code, status = "run_not_waiting", 409


class RunOverError(MemorygwError):
    """The run is over."""

    code, status = "run_over", 409


class RunCancelledError(MemorygwError):
    """The run was cancelled before it had its answer."""

    code, status = "run_cancelled", 409


class NotPendingError(MemorygwError):
    """The memory does not wait for a review."""

    code, status = "memory_not_pending", 409


class ContentChangedError(MemorygwError):
    """The memory is not what was reviewed any more."""

    code, status = "memory_changed", 409


class MemoryKeyTakenError(MemorygwError):
    """Another memory has this key."""

    code, status = "memory_key_taken", 409


class IdempotencyKeyReusedError(MemorygwError):
    """The Idempotency-Key was used with another body."""

    code, status = "idempotency_key_reused", 409


class RequestRunningError(MemorygwError):
    """The first request with this Idempotency-Key is still running."""

    code, status = "request_running", 409


class PersonaNameTakenError(MemorygwError):
    """Another persona has this name."""

    code, status = "persona_name_taken", 409


class HistoryDiffersError(MemorygwError):
    """The thread's history is not the one that was sent."""

    code, status = "history_differs", 409


class DoubleResultError(MemorygwError):
    """The call has its result already."""

    code, status = "double_result", 409


class ErasureRunningError(MemorygwError):
    """The user is being erased."""

    code, status = "erasure_running", 409


class ContextTooLargeError(MemorygwError):
    """The message is too large for the model."""

    code, status = "context_too_large", 413
    user_message = "That message is too long. Please send a shorter one."


@dataclass(frozen=True)
class UpstreamError:
    """How the model's server refused, in its own words: for a client that speaks its language, never for a log."""

    status: int
    error: dict[str, Any]
    retry_after: str = ""


class ModelFailedError(MemorygwError):
    """The model did not answer."""

    code, status = "model_failed", 502
    user_message = "The model did not answer. Please try again."

    def __init__(self, reason: str = "failed", upstream: UpstreamError | None = None) -> None:
        """``reason`` is a code for operators (``timeout``, ``http_500``, …), never the server's words."""
        super().__init__()
        self.reason, self.upstream = reason, upstream

    @property
    def retry_after(self) -> str:
        """What the server says of when to ask again, as its header does."""
        return self.upstream.retry_after if self.upstream else ""


class ModelUnavailableError(ModelFailedError):
    """The model has failed again and again, and is left alone for a while."""

    code, status = "model_unavailable", 503

    def __init__(self, retry_after: int) -> None:
        """``retry_after``: seconds until it is asked again."""
        super().__init__(self.code, UpstreamError(self.status, {"type": "server_error"}, str(retry_after)))


class UsageRefusedError(ModelFailedError):
    """The usage guard refused the call."""

    code = "usage_refused"

    def __init__(self) -> None:
        super().__init__(self.code)


class LedgerError(MemorygwError):
    """The ledger of erasures cannot be trusted."""

    code = "ledger_broken"


class MemoryOffError(MemorygwError):
    """Memory is switched off for this user."""

    code, status = "memory_off", 409


class ExtractionError(MemorygwError):
    """Nothing could be learned."""

    def __init__(self, reason: str) -> None:
        """``reason`` is a code for operators (``timeout``, ``reply_malformed``, …), never content."""
        super().__init__()
        self.reason = reason


class ExtractionCallError(ExtractionError):
    """The call that extracts facts failed."""

    code, number = "extraction_failed", 5372598726156


class ExtractionReplyError(ExtractionError):
    """The reply of an extraction has not the expected structure."""

    code, number = "extraction_malformed", 5372598726369
