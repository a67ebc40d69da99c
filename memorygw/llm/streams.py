"""A chat completion that comes in pieces (K17): read while others go on, and put together."""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from openai import Stream
from openai.types.chat import ChatCompletionChunk

from memorygw.exceptions import ModelFailedError
from memorygw.llm.base import Completion

SILENCE_SECONDS = 1.5
"""How long whoever waits for a piece waits at most before it looks up. Two of them, and a dead connection is known."""

_END = object()


class StreamReader:
    """The chunks of a stream, read in a thread of its own; None while nothing comes."""

    def __init__(self, open_stream: Callable[[], "Stream[ChatCompletionChunk]"]) -> None:
        self._items: SimpleQueue[Any] = SimpleQueue()
        self._stream: Stream[ChatCompletionChunk] | None = None
        self._closed = False
        Thread(target=self._read, args=(open_stream,), name="memorygw-stream", daemon=True).start()

    def __iter__(self) -> Iterator[ChatCompletionChunk | None]:
        while True:
            try:
                item = self._items.get(timeout=SILENCE_SECONDS)
            except Empty:
                yield None
                continue
            if item is _END:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Hang up, also on a server that says nothing. One that has not begun to answer is hung up on when it does."""
        self._closed = True
        stream = self._stream
        if stream is None:
            return
        network = stream.response.extensions.get("network_stream")
        connection = network.get_extra_info("socket") if network else None
        if connection is not None:
            # Closing alone would wait for a thread that reads.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _read(self, open_stream: Callable[[], "Stream[ChatCompletionChunk]"]) -> None:
        try:
            with open_stream() as stream:
                self._stream = stream
                for chunk in stream:
                    if self._closed:
                        return
                    self._items.put(chunk)
            self._items.put(_END)
        except BaseException as error:
            self._items.put(error)


class Assembly:
    """A completion in the making. The package builds chunks without validating them, so each part is looked at here."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._half = ""
        self._calls: list[dict[str, Any]] = []
        self._latest: dict[Any, dict[str, Any]] = {}
        self._finish_reason = ""
        self._model = ""
        self._tokens = (0, 0)

    def add(self, chunk: ChatCompletionChunk) -> str:
        """Take one chunk; the text that it adds."""
        self._model = self._model or str(getattr(chunk, "model", "") or "")
        if usage := getattr(chunk, "usage", None):
            self._tokens = (token_count(usage.prompt_tokens), token_count(usage.completion_tokens))
        choices = getattr(chunk, "choices", None)
        if not choices:
            return ""
        delta = getattr(choices[0], "delta", None)
        self._finish_reason = str(getattr(choices[0], "finish_reason", None) or self._finish_reason)
        for part in getattr(delta, "tool_calls", None) or ():
            self._add_call(part)
        if isinstance(refusal := getattr(delta, "refusal", None), str):
            self._refusal.append(refusal)
        text = self._whole(content) if isinstance(content := getattr(delta, "content", None), str) else ""
        self._text.append(text)
        return text

    def completion(self) -> Completion:
        """The whole. `ModelFailedError` when the stream ended before the model did."""
        if not self._finish_reason or not all(call["function"]["name"] for call in self._calls):
            raise ModelFailedError("stream_cut")
        return Completion(
            content="".join(self._text) or None,
            refusal="".join(self._refusal) or None,
            tool_calls=self._calls,
            finish_reason=self._finish_reason,
            model=self._model,
            prompt_tokens=self._tokens[0],
            completion_tokens=self._tokens[1],
        )

    def _whole(self, text: str) -> str:
        """Text whose characters are whole: half of one waits for the chunk with the other half."""
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _add_call(self, part: Any) -> None:
        """A part with an id that is new begins a call, whatever its index; any other goes on with the one before it."""
        index, call_id = getattr(part, "index", None), getattr(part, "id", None)
        call = self._latest.get(index)
        if call is None or (call_id and call["id"] and call_id != call["id"]):
            call = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            self._calls.append(call)
            self._latest[index] = call
        call |= {name: value for name, value in extras_of(part).items() if name not in call}
        call["id"] = call["id"] or str(call_id or "")
        function = getattr(part, "function", None)
        name, arguments = getattr(function, "name", None), getattr(function, "arguments", None)
        if isinstance(name, str) and name != call["function"]["name"]:
            call["function"]["name"] += name
        if isinstance(arguments, str):
            call["function"]["arguments"] += arguments


def extras_of(call: object) -> dict[str, Any]:
    """What a call has beside what the package knows, such as a signature that its server wants to see again."""
    return dict(getattr(call, "model_extra", None) or {})


def token_count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**31 else 0
