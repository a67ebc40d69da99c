"""Any OpenAI-compatible server, through the openai package."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import openai
import regex
from openai.types.chat import ChatCompletion

from memorygw.conf import conf
from memorygw.exceptions import ModelFailedError, UpstreamError
from memorygw.llm.base import Completion, CompletionRequest, Piece, Pieces
from memorygw.llm.streams import Assembly, StreamReader, extras_of, token_count

# What may be left out when a server refuses it, with what to send instead. The prompt asks for JSON anyway.
_OPTIONAL: dict[str, str | None] = {
    "temperature": None,
    "response_format": None,
    "max_completion_tokens": "max_tokens",
    "max_tokens": None,
    "tools": None,
    "tool_choice": None,
    "stream_options": None,
}


def connect(base_url: str, api_key: str, **options: Any) -> openai.OpenAI:
    """A client of that server, or of OpenAI when none is named; ``options`` go to `openai.OpenAI`."""
    # OpenAI's key is for OpenAI alone; a local server wants none, but the package insists on one.
    fallback = "" if base_url else os.environ.get("OPENAI_API_KEY", "")
    return openai.OpenAI(
        base_url=base_url or "https://api.openai.com/v1", api_key=api_key or fallback or "none", **options
    )


@contextmanager
def as_model_failures() -> Iterator[None]:
    """Whatever the package raises, as the `ModelFailedError` with its code."""
    try:
        yield
    except openai.APITimeoutError:
        raise ModelFailedError("timeout") from None
    except openai.APIStatusError as error:
        raise ModelFailedError(f"http_{error.status_code}", _upstream(error)) from None
    except openai.APIConnectionError:
        raise ModelFailedError("unreachable") from None
    except openai.APIError as error:
        # Told in the middle of a stream, which has had its status.
        raise ModelFailedError("stream_error", UpstreamError(502, _words(error))) from None
    except (openai.OpenAIError, ValueError, OverflowError):
        raise ModelFailedError("malformed") from None


def _upstream(error: openai.APIStatusError) -> UpstreamError:
    return UpstreamError(error.status_code, _words(error), error.response.headers.get("Retry-After", ""))


def _words(error: openai.APIError) -> dict[str, Any]:
    body = error.body if isinstance(error.body, dict) else {}
    return {name: body[name] for name in ("message", "type", "param", "code") if name in body}


class OpenAIClient:
    """Chat completions with timeouts and bounded retries that honour Retry-After (the openai package does both).

    A parameter that a model refuses is left out and remembered, so that it costs one extra request per process.
    """

    def __init__(self, **options: Any) -> None:
        """``options`` go to `openai.OpenAI` (``default_headers``, ``organization``, …)."""
        self._client = connect(
            conf.LLM_BASE_URL,
            conf.LLM_API_KEY,
            timeout=conf.LLM_TIMEOUT_SECONDS,
            max_retries=conf.LLM_RETRIES,
            **options,
        )
        self._refused: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections that are kept open; called when settings change."""
        self._client.close()

    def complete(self, request: CompletionRequest) -> Completion:
        with as_model_failures():
            return _completion(self._create(request))

    def stream(self, request: CompletionRequest) -> Pieces:
        with as_model_failures(), closing(StreamReader(partial(self._create, request, stream=True))) as chunks:
            assembly = Assembly()
            for chunk in chunks:
                yield None if chunk is None else Piece(assembly.add(chunk), chunk.model_dump(exclude_unset=True))
            yield assembly.completion()

    def list_models(self) -> list[dict[str, Any]]:
        with as_model_failures():
            return [model.model_dump(exclude_unset=True) for model in self._client.models.list().data]

    def _create(self, request: CompletionRequest, *, stream: bool = False) -> Any:
        """The reply, or the stream of one; parameters that the model refuses are left out."""
        while True:
            parameters = self._parameters(request, stream=stream)
            try:
                return self._client.chat.completions.create(**parameters)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                if not self._remember_refusal(request, parameters, error):
                    raise

    def _parameters(self, request: CompletionRequest, *, stream: bool) -> dict[str, Any]:
        refused = self._refused.get(request.model, set())
        optional: dict[str, Any] = {
            "temperature": request.temperature,
            "response_format": request.json_schema and {"type": "json_schema", "json_schema": request.json_schema},
            "max_completion_tokens": request.max_output_tokens,
            "tools": list(request.tools) or None,
            "tool_choice": request.tool_choice,
            "stream": stream or None,
            "stream_options": {"include_usage": True} if stream else None,
        }
        for name, instead in _OPTIONAL.items():
            if name in refused and not (name == "tools" and request.needs_tools):
                value = optional.pop(name, None)
                if instead:
                    optional[instead] = value
        wanted = {name: value for name, value in optional.items() if value is not None}
        # What the caller says goes before what we would: it is theirs to know what the model takes.
        wanted = {name: value for name, value in wanted.items() if name not in request.extra}
        return {"model": request.model, "messages": request.messages, **wanted, "extra_body": dict(request.extra)}

    def _remember_refusal(self, request: CompletionRequest, sent: dict[str, Any], error: openai.APIStatusError) -> bool:
        """Note the optional parameters that the error names; whether asking again makes sense.

        A server that names none is taken to mean the reply's schema, the parameter that is known least widely.
        """
        optional = [name for name in _OPTIONAL if name in sent and not (name == "tools" and request.needs_tools)]
        named = [name for name in optional if _is_about(error, name)]
        named = named or [name for name in optional if name == "response_format"]
        with self._lock:
            self._refused.setdefault(request.model, set()).update(named)
        return bool(named)


def _is_about(error: openai.APIStatusError, name: str) -> bool:
    """Whether a refusal is about this parameter: by the one it names ("tools[0].function…"), else by its words."""
    if error.param:
        return regex.split(r"[.\[]", str(error.param))[0] == name
    words = error.message.lower()
    if name == "tools":
        # Servers without tools say so in many ways. What is wrong with a message of role tool is none of them.
        return "tool" in words and ("support" in words or "tool choice" in words)
    return name in words


def _completion(reply: object) -> Completion:
    """The first choice. The package builds replies without validating them, so each part is looked at here."""
    if not isinstance(reply, ChatCompletion) or not reply.choices:
        raise ModelFailedError("malformed")
    choice = reply.choices[0]
    message, usage = choice.message, reply.usage
    content, refusal = getattr(message, "content", None), getattr(message, "refusal", None)
    if not isinstance(content, str | None) or not isinstance(refusal, str | None):
        raise ModelFailedError("malformed")
    return Completion(
        content=content,
        refusal=refusal,
        tool_calls=_calls(getattr(message, "tool_calls", None)),
        finish_reason=str(choice.finish_reason or "stop"),
        model=str(reply.model or ""),
        raw=reply.model_dump(exclude_unset=True),
        prompt_tokens=token_count(usage and usage.prompt_tokens),
        completion_tokens=token_count(usage and usage.completion_tokens),
    )


def _calls(calls: object) -> list[dict[str, Any]]:
    found = []
    for call in calls if isinstance(calls, list) else ():
        function = getattr(call, "function", None)
        name, arguments = getattr(function, "name", None), getattr(function, "arguments", None)
        if not isinstance(name, str) or not name:
            raise ModelFailedError("malformed")
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        known = {"id": str(getattr(call, "id", None) or ""), "type": "function"}
        found.append({**extras_of(call), **known, "function": {"name": name, "arguments": arguments}})
    return found
