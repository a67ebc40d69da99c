"""The seam between memorygw and an embedder, and what a vector is in a row of the database."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
StoredVector = bytes | memoryview | Vector

_STORED = np.dtype("<f4")


class Embedder(Protocol):
    """What ``MEMORYGW_EMBEDDER`` names; made once per process, used by many threads."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in their order, all of one length. Raises `ModelFailedError`, never another error.

        It should not try again for long: an answer may be waiting, and late work is tried again anyway.
        """
        ...


def to_bytes(vector: Vector) -> bytes:
    """A vector as it is stored: float32, little-endian."""
    return vector.astype(_STORED).tobytes()


def from_bytes(stored: StoredVector) -> Vector:
    """The vector that `to_bytes` wrote; a vector is taken as it is."""
    return np.frombuffer(stored, dtype=_STORED)


def has_length(stored: StoredVector, numbers: int) -> bool:
    return np.frombuffer(stored, dtype=np.uint8).size == numbers * _STORED.itemsize
