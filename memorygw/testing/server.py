"""A scripted model server for tests: real HTTP and an OpenAI-compatible API in front of answers that a test chooses.

    with ScriptedModelServer() as server:
        server.fail(429, headers={"Retry-After": "0.01"})
        server.reply("hello", model="main")
        client = openai.OpenAI(base_url=server.base_url, api_key="none")
        ...
        assert "likes tea" in server.requests[-1].system

It needs nothing but the standard library, so any project that talks to a model can use it.
"""

import select
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any, Self, Unpack

from memorygw.testing.answers import (
    CHAT,
    EMBEDDINGS,
    MODELS,
    Answer,
    Piece,
    RecordedRequest,
    Reply,
    ReplyOptions,
    Step,
    concerns,
    cut_off,
    error_answer,
    json_object,
    not_found,
    refusal_of,
    reply,
    stream,
    to_json,
    usage,
    vector,
)

_LONGEST_HOLD_SECONDS = 60


class ScriptedModelServer:
    """Listens on a free port of 127.0.0.1 from its creation until `close`, or for the length of a ``with`` block.

    A chat request takes, on arrival, the first scripted answer that is meant for its model (``model=None``: for any);
    each is good for ``times`` requests. With none left it gets ``defaults[model]``, else ``default``. An embedding
    request takes what names its model, else per text ``embeddings[text]``, else 8 numbers of its own. Content is text,
    None, a dict or list (sent as its JSON text), or a function from the request to one of these. The function runs in
    a thread of the server: an exception cuts the client off, and `close` raises it again unless a ConnectionError.

    With ``strict`` set, conversations that the big providers refuse (a call without its result, a result without its
    call, an empty message) are refused with 400, whatever is scripted.
    """

    def __init__(self) -> None:
        self.default: Reply = "ok"
        self.defaults: dict[str, Reply] = {}
        self.embeddings: dict[str, Sequence[float]] = {}
        self._script: list[tuple[str | None, Step]] = []
        self._requests: list[RecordedRequest] = []
        self._holds: dict[object, str | None] = {}
        self._closed = False
        self.given_up = 0
        self.strict = False
        self._changed = Condition()
        self._http = _HTTPServer(("127.0.0.1", 0), partial(_Handler, self))
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
        self._add(partial(reply, content, options), model, times)

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
        self._add(lambda _: replace(error_answer(status, **(error or {})), headers=headers), model, times)

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
        self._add(lambda _: Answer(body, content_type, status), model, times)

    def stream(self, *pieces: Piece, ends: bool = True, model: str | None = None, times: int = 1) -> None:
        """Script a stream piece by piece: a text is a delta of content, a dict a whole chunk, bytes are sent as they
        are, a number is a pause in seconds. Without ``ends`` the connection is closed behind them, and nothing says
        that the answer is whole. ``given_up`` counts the streams that a client left before that."""
        self._add(lambda request: stream(pieces, request.model, ends=ends), model, times)

    def disconnect(self, *, after_bytes: int | None = None, model: str | None = None, times: int = 1) -> None:
        """Script a closed connection: without an answer, or after so many bytes of the body of a completion."""
        self._add(partial(cut_off, after_bytes), model, times)

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

    def _add(self, step: Step, model: str | None, times: int) -> None:
        with self._changed:
            self._script += [(model, step)] * times

    def respond(self, request: RecordedRequest) -> Answer:
        with self._changed:
            if self._closed:
                raise ConnectionAbortedError
            self._requests.append(request)
            self._changed.notify_all()
            # Chosen on arrival, so that the order of arrival is the order of the script.
            step, holds = self._checked(request) or self._step(request), self._holds_of(request)
            self._changed.wait_for(lambda: self._closed or holds.isdisjoint(self._holds), _LONGEST_HOLD_SECONDS)
        answer = step(request)
        with self._changed:
            self._changed.wait_for(lambda: self._closed, answer.delay_seconds)
        return answer

    def count_given_up(self) -> None:
        with self._changed:
            self.given_up += 1
            self._changed.notify_all()

    def wait_until_given_up(self, n: int = 1, timeout_seconds: float = 10) -> None:
        """Return as soon as clients have left ``n`` streams. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.given_up >= n, timeout_seconds):
                raise TimeoutError(f"{self.given_up} streams were left in {timeout_seconds:g} s.")

    def _checked(self, request: RecordedRequest) -> Step | None:
        """With ``strict``: the refusal of a conversation that the big providers would not take."""
        refusal = refusal_of(request.messages) if self.strict and request.route == CHAT else ""
        return (lambda _: error_answer(400, message=refusal)) if refusal else None

    def _step(self, request: RecordedRequest) -> Step:
        for position, (model, step) in enumerate(self._script):
            if concerns(model, request):
                del self._script[position]
                return step
        if request.route == CHAT:
            return partial(reply, self.defaults.get(request.model, self.default), {})
        return {EMBEDDINGS: self._embeddings, MODELS: self._models}.get(request.route, not_found)

    def _holds_of(self, request: RecordedRequest) -> set[object]:
        return {hold for hold, model in self._holds.items() if concerns(model, request)}

    def _embeddings(self, request: RecordedRequest) -> Answer:
        value = request.body.get("input", "")
        # A list of numbers is one text, already in tokens.
        inputs = [value] if isinstance(value, str) or all(isinstance(item, int) for item in value) else value
        vectors = enumerate(self.embeddings.get(str(item)) or vector(item) for item in inputs)
        data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in vectors]
        used = usage(sum(len(str(item).split()) for item in inputs))
        return Answer(to_json({"object": "list", "data": data, "model": request.model, "usage": used}))

    def _models(self, _: RecordedRequest) -> Answer:
        """Every model that the defaults or a request have named."""
        names = {*self.defaults, *(request.model for request in self.requests)} - {""}
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in sorted(names)]
        return Answer(to_json({"object": "list", "data": models}))


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

    def __init__(self, server: ScriptedModelServer, *args: Any) -> None:
        self._scripted = server
        super().__init__(*args)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        names = {name.lower(): value for name, value in self.headers.items()}
        answer = self._scripted.respond(RecordedRequest(self.path, names, json_object(body), self.command))
        if answer.pieces is not None:
            self._send_pieces(answer)
            return
        headers = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
        self.send_response(answer.status)
        for name, value in {**headers, **(answer.headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body[: answer.sent_bytes])
        self.close_connection |= answer.sent_bytes is not None

    def _send_pieces(self, answer: Answer) -> None:
        """Without a length, so that the end of the connection is the end of the answer."""
        self.close_connection = True
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.end_headers()
        try:
            for piece in answer.pieces or ():
                if isinstance(piece, bytes):
                    self.wfile.write(piece)
                elif self._is_left(piece):
                    raise ConnectionAbortedError
        except ConnectionError:
            self._scripted.count_given_up()
            raise

    def _is_left(self, seconds: float) -> bool:
        """Whether the client closes the connection within so many seconds."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            readable, _, _ = select.select([self.connection], [], [], min(left, 0.05))
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                return True
        return False

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""
