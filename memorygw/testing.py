"""A scripted model server for tests: real HTTP and an OpenAI-compatible API in front of answers that a test chooses.

    with ScriptedModelServer() as server:
        server.fail(429, headers={"Retry-After": "0.01"})
        server.reply("hello", model="main")
        client = openai.OpenAI(base_url=server.base_url, api_key="none")
        ...
        assert "likes tea" in server.requests[-1].system

It needs nothing but the standard library, so any project that talks to a model can use it.
"""

import json
import math
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any, Self, TypedDict, Unpack
from uuid import uuid4

_CHAT, _EMBEDDINGS, _MODELS = "POST /v1/chat/completions", "POST /v1/embeddings", "GET /v1/models"
_LONGEST_HOLD_SECONDS = 60
_STREAMED_PIECES = 4


@dataclass(frozen=True)
class RecordedRequest:
    """A request as it arrived: ``headers`` have lower-case names, ``body`` is {} when it was no JSON object."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    method: str = "POST"

    @property
    def route(self) -> str:
        """Method and path without the query string, e.g. "POST /v1/embeddings"."""
        return f"{self.method} {self.path.partition('?')[0]}"

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages", []))

    @property
    def system(self) -> str:
        """The text of all system and developer messages, joined by newlines."""
        return "\n".join(self._texts("system", "developer"))

    @property
    def last_user(self) -> str:
        """The text of the last user message, "" without one."""
        return (self._texts("user") or [""])[-1]

    @property
    def text(self) -> str:
        """The text of all messages, joined by newlines."""
        return "\n".join(self._texts())

    def _texts(self, *roles: str) -> list[str]:
        return [_text(message.get("content")) for message in self.messages if not roles or message.get("role") in roles]


Content = str | dict[str, Any] | list[Any] | None
Reply = Content | Callable[[RecordedRequest], Content]


class ReplyOptions(TypedDict, total=False):
    """Defaults: no delay, 10 and 5 tokens, "stop" (or "tool_calls" when there are some), no refusal, no tool calls."""

    delay_seconds: float
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    refusal: str | None
    tool_calls: Sequence[dict[str, Any]]


class ScriptedModelServer:
    """Listens on a free port of 127.0.0.1 from its creation until `close`, or for the length of a ``with`` block.

    A chat request takes, on arrival, the first scripted answer that is meant for its model (``model=None``: for any);
    each is good for ``times`` requests. With none left it gets ``defaults[model]``, else ``default``. An embedding
    request takes what names its model, else per text ``embeddings[text]``, else 8 numbers of its own. Content is text,
    None, a dict or list (sent as its JSON text), or a function from the request to one of these. The function runs in
    a thread of the server: an exception cuts the client off, and `close` raises it again unless a ConnectionError.
    """

    def __init__(self) -> None:
        self.default: Reply = "ok"
        self.defaults: dict[str, Reply] = {}
        self.embeddings: dict[str, Sequence[float]] = {}
        self._script: list[tuple[str | None, _Step]] = []
        self._requests: list[RecordedRequest] = []
        self._holds: dict[object, str | None] = {}
        self._closed = False
        self._changed = Condition()
        self._http = _HTTPServer(("127.0.0.1", 0), partial(_Handler, self._respond))
        Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop. What is held or delayed is answered at once; connections that were kept alive get no more answers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._http.shutdown()
        self._http.server_close()
        if self._http.errors:
            raise self._http.errors.pop(0)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def reply(
        self, content: Reply = "ok", *, model: str | None = None, times: int = 1, **options: Unpack[ReplyOptions]
    ) -> None:
        """Script a completion, which is streamed to a request that asks for it."""
        self._add(partial(_reply, content, options), model, times)

    def fail(
        self,
        status: int,
        *,
        model: str | None = None,
        times: int = 1,
        headers: Mapping[str, str] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        """Script an error answer; ``error`` replaces members of OpenAI's envelope (message, type, param, code).

        The openai package waits half a second on "Retry-After: 0" as without it; "0.01" makes it retry at once.
        """
        self._add(lambda _: replace(_error(status, **(error or {})), headers=headers), model, times)

    def garbage(
        self,
        body: bytes,
        *,
        content_type: str = "text/html",
        status: int = 200,
        model: str | None = None,
        times: int = 1,
    ) -> None:
        """Script an answer of raw bytes."""
        self._add(lambda _: _Answer(body, content_type, status), model, times)

    def disconnect(self, *, after_bytes: int | None = None, model: str | None = None, times: int = 1) -> None:
        """Script a closed connection: without an answer, or after so many bytes of the body of a completion."""
        self._add(partial(_cut_off, after_bytes), model, times)

    @contextmanager
    def hold(self, model: str | None = None) -> Iterator[None]:
        """Requests that arrive meanwhile are recorded and wait for the end of the block, at most 60 seconds."""
        hold = object()
        with self._changed:
            self._holds[hold] = model
        try:
            yield
        finally:
            with self._changed:
                del self._holds[hold]
                self._changed.notify_all()

    def reset(self) -> None:
        """Forget the script, the requests and the defaults; holds stay."""
        with self._changed:
            self.default, self.defaults, self.embeddings = "ok", {}, {}
            self._script.clear()
            self._requests.clear()

    @property
    def requests(self) -> list[RecordedRequest]:
        """Every request so far, whatever its path, in order of arrival; recorded before any hold or delay."""
        with self._changed:
            return list(self._requests)

    def requests_for(self, model: str | None) -> list[RecordedRequest]:
        """The requests that name the model; all of them for None."""
        return [request for request in self.requests if model in (None, request.model)]

    def wait_for_requests(self, n: int, model: str | None = None, timeout_seconds: float = 10) -> list[RecordedRequest]:
        """The requests (for the model), as soon as there are at least ``n``. Raises TimeoutError."""
        with self._changed:
            if self._changed.wait_for(lambda: len(self.requests_for(model)) >= n, timeout_seconds):
                return self.requests_for(model)
        seen = ", ".join(f"{request.route} {request.model}".strip() for request in self.requests) or "none"
        raise TimeoutError(f"No {n} requests for {model or 'any model'} in {timeout_seconds:g} s; arrived: {seen}.")

    def _add(self, step: "_Step", model: str | None, times: int) -> None:
        with self._changed:
            self._script += [(model, step)] * times

    def _respond(self, request: RecordedRequest) -> "_Answer":
        with self._changed:
            if self._closed:
                raise ConnectionAbortedError
            self._requests.append(request)
            self._changed.notify_all()
            # Chosen on arrival, so that the order of arrival is the order of the script.
            step, holds = self._step(request), self._holds_of(request)
            self._changed.wait_for(lambda: self._closed or holds.isdisjoint(self._holds), _LONGEST_HOLD_SECONDS)
        answer = step(request)
        with self._changed:
            self._changed.wait_for(lambda: self._closed, answer.delay_seconds)
        return answer

    def _step(self, request: RecordedRequest) -> "_Step":
        for position, (model, step) in enumerate(self._script):
            if _concerns(model, request):
                del self._script[position]
                return step
        if request.route == _CHAT:
            return partial(_reply, self.defaults.get(request.model, self.default), {})
        return {_EMBEDDINGS: self._embeddings, _MODELS: self._models}.get(request.route, _not_found)

    def _holds_of(self, request: RecordedRequest) -> set[object]:
        return {hold for hold, model in self._holds.items() if _concerns(model, request)}

    def _embeddings(self, request: RecordedRequest) -> "_Answer":
        value = request.body.get("input", "")
        # A list of numbers is one text, already in tokens.
        inputs = [value] if isinstance(value, str) or all(isinstance(item, int) for item in value) else value
        vectors = enumerate(self.embeddings.get(str(item)) or _vector(item) for item in inputs)
        data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in vectors]
        usage = _usage(sum(len(str(item).split()) for item in inputs))
        return _Answer(_json({"object": "list", "data": data, "model": request.model, "usage": usage}))

    def _models(self, _: RecordedRequest) -> "_Answer":
        """Every model that the defaults or a request have named."""
        names = {*self.defaults, *(request.model for request in self.requests)} - {""}
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in sorted(names)]
        return _Answer(_json({"object": "list", "data": models}))


@dataclass(frozen=True)
class _Answer:
    """``sent_bytes``: how much of the body is sent before the connection is closed, None for a whole answer."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] | None = None
    delay_seconds: float = 0
    sent_bytes: int | None = None


_Step = Callable[[RecordedRequest], _Answer]


def _concerns(model: str | None, request: RecordedRequest) -> bool:
    """Whether what is meant for the model, None for any, is meant for this request; "any" is about chats alone."""
    return request.route == _CHAT if model is None else model == request.model and request.route in (_CHAT, _EMBEDDINGS)


def _reply(content: Reply, options: ReplyOptions, request: RecordedRequest) -> _Answer:
    completion = _completion(content(request) if callable(content) else content, options, request.model)
    whole = _Answer(_json(completion), delay_seconds=options.get("delay_seconds", 0))
    if not request.body.get("stream"):
        return whole
    usage_wanted = bool((request.body.get("stream_options") or {}).get("include_usage"))
    events = [*map(_json, _chunks(completion, usage_wanted)), b"[DONE]"]
    return replace(whole, body=b"".join(b"data: %s\n\n" % event for event in events), content_type="text/event-stream")


def _completion(content: Content, options: ReplyOptions, model: str) -> dict[str, Any]:
    text = json.dumps(content, ensure_ascii=False) if isinstance(content, dict | list) else content
    calls = {"tool_calls": options["tool_calls"]} if options.get("tool_calls") else {}
    message = {"role": "assistant", "content": text, "refusal": options.get("refusal"), **calls}
    reason = options.get("finish_reason", "tool_calls" if calls else "stop")
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _usage(options.get("prompt_tokens", 10), completion_tokens=options.get("completion_tokens", 5)),
    }


def _chunks(completion: dict[str, Any], usage_wanted: bool) -> Iterator[dict[str, Any]]:
    """The same completion as the chunks of a stream."""
    chunk = completion | {"object": "chat.completion.chunk"}
    (choice,), usage = chunk.pop("choices"), chunk.pop("usage")
    for delta in _deltas(choice["message"]):
        yield chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if usage_wanted:
        yield chunk | {"choices": [], "usage": usage}


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = message["content"] or ""
    yield {"role": message["role"], "content": message["content"] and "", "refusal": message["refusal"]}
    size = math.ceil(len(content) / _STREAMED_PIECES) or 1
    for start in range(0, len(content), size):
        yield {"content": content[start : start + size]}
    for index, call in enumerate(message.get("tool_calls", ())):
        yield {"tool_calls": [{"index": index, **call}]}


def _cut_off(after_bytes: int | None, request: RecordedRequest) -> _Answer:
    if after_bytes is None:
        raise ConnectionAbortedError
    return replace(_reply("ok", {}, request), sent_bytes=after_bytes)


def _vector(value: Any) -> list[float]:
    """A unit vector of 8 numbers, always the same for the same input."""
    numbers = struct.unpack(">8i", sha256(_json(value)).digest())
    return [number / math.hypot(*numbers) for number in numbers]


def _not_found(request: RecordedRequest) -> _Answer:
    return _error(404, message=f"Invalid URL ({request.route})")


def _error(status: int, **error: Any) -> _Answer:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    usual = {"message": f"Scripted failure {status}", "type": kind, "param": None, "code": None}
    return _Answer(_json({"error": usual | error}), status=status)


def _usage(prompt_tokens: int, **others: int) -> dict[str, int]:
    return {"prompt_tokens": prompt_tokens, **others, "total_tokens": prompt_tokens + sum(others.values())}


def _text(content: str | list[dict[str, Any]] | None) -> str:
    return "".join(part.get("text", "") for part in content) if isinstance(content, list) else content or ""


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


class _HTTPServer(ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.errors: list[BaseException] = []

    def handle_error(self, *_: object) -> None:
        error = sys.exception()
        # A client may go away while it waits.
        if error and not isinstance(error, ConnectionError):
            self.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes; the second must not wait until the client has acknowledged the first.
    disable_nagle_algorithm = True

    def __init__(self, respond: _Step, *args: Any) -> None:
        self._respond = respond
        super().__init__(*args)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        names = {name.lower(): value for name, value in self.headers.items()}
        answer = self._respond(RecordedRequest(self.path, names, _json_object(body), self.command))
        headers = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
        self.send_response(answer.status)
        for name, value in {**headers, **(answer.headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body[: answer.sent_bytes])
        self.close_connection |= answer.sent_bytes is not None

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""
