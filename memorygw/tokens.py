"""Counting tokens, offline, for any text and any model name (K2)."""

import base64
import lzma
from functools import cache
from importlib.resources import files
from threading import Lock
from typing import Protocol

import tiktoken
from tiktoken.model import encoding_name_for_model

from memorygw.conf import component, conf

DEFAULT_ENCODING = "o200k_base"
ENCODINGS = ("o200k_base", "cl100k_base")

# tiktoken panics on a run of about a million blanks (a BaseException from Rust) and is slow on one endless word.
_CHUNK_CHARS = 100_000

_loading = Lock()


class Tokenizer(Protocol):
    """What ``MEMORYGW_TOKENIZER`` names."""

    def count(self, text: str, model: str) -> int:
        """Tokens of ``text`` for ``model``. Never raises, whatever the text and the name; never needs the network."""
        ...


class TiktokenTokenizer:
    """tiktoken with the vocabularies we ship; marker text such as ``<|endoftext|>`` is plain text."""

    def count(self, text: str, model: str) -> int:
        # A vocabulary takes most of a second: the first requests of a process wait for one loading, not for one each.
        with _loading:
            encoding = _encoding(_encoding_name(model))
        pieces = (text[start : start + _CHUNK_CHARS] for start in range(0, len(text), _CHUNK_CHARS))
        return sum(len(encoding.encode_ordinary(piece)) for piece in pieces)


def count_tokens(text: str, model: str) -> int:
    tokenizer: Tokenizer = component("TOKENIZER")
    return tokenizer.count(text, model)


def _encoding_name(model: str) -> str:
    """The setting's encoding, else tiktoken's, else the default; a provider's prefix (``openai/gpt-4``) is ignored."""
    name: str = conf.MODELS.get(model, {}).get("encoding", "")
    if not name:
        try:
            name = encoding_name_for_model(model.rpartition("/")[2])
        except KeyError:
            name = DEFAULT_ENCODING
    return name if name in ENCODINGS else DEFAULT_ENCODING


@cache
def _encoding(name: str) -> tiktoken.Encoding:
    folder = files("memorygw") / "vocabularies"
    lines = lzma.decompress((folder / f"{name}.tiktoken.xz").read_bytes()).splitlines()
    pairs = (line.split() for line in lines)
    return tiktoken.Encoding(
        name,
        pat_str=(folder / f"{name}.pattern").read_text("utf-8"),
        mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in pairs},
        special_tokens={},
    )
