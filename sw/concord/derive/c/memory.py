"""Buffers in one arena: those that are never needed at the same time may have the same place."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np

#: Bytes that places are multiples of.
ALIGNMENT = 4


@dataclass(eq=False)
class Buffer:
    """A piece of the arena.

    Parameters
    ----------
    name : str
        In C.
    kind : str
        Type of an element without ``_t``.
    elements : int
    first, last : int
        Steps from and to which it is needed, both included.
    offset : int
        Bytes from the start of the arena.
    """

    name: str
    kind: str
    elements: int
    first: int = -1
    last: int = -1
    offset: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes, a multiple of the alignment."""
        return -(-self.elements * np.dtype(self.kind).itemsize // ALIGNMENT) * ALIGNMENT

    def use(self, first: int, last: int) -> None:
        """Keeps the buffer in the steps ``first`` to ``last``, too."""
        self.first = first if self.first < 0 else min(self.first, first)
        self.last = max(self.last, last)


def place(buffers: Iterable[Buffer]) -> int:
    """Give every buffer its place, the largest first, each as low as it fits; returns the bytes of the arena."""
    placed: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda some: (-some.nbytes, some.first)):
        beside = [other for other in placed if other.first <= buffer.last and buffer.first <= other.last]
        offset = 0
        for other in sorted(beside, key=lambda some: some.offset):
            if other.offset >= offset + buffer.nbytes:
                break
            offset = max(offset, other.offset + other.nbytes)
        buffer.offset = offset
        placed.append(buffer)
    return max((buffer.offset + buffer.nbytes for buffer in placed), default=0)


#: Arrays that buffers are in, with the type of their elements: what has 32 bits is apart, for an array has one type.
_ARENA, _WIDE = ("arena", "uint16"), ("wide", "int32")


def _array_of(buffer: Buffer) -> tuple[str, str]:
    return _WIDE if buffer.kind == _WIDE[1] else _ARENA


def placed_in_arrays(buffers: Collection[Buffer]) -> tuple[int, str]:
    """Gives every buffer its place; returns the bytes of all arrays, and their definitions."""
    total, lines = 0, []
    for name, kind in (_ARENA, _WIDE):
        size = place(buffer for buffer in buffers if _array_of(buffer) == (name, kind))
        total += size
        if size:
            lines.append(f"static {kind}_t {name}[{size // np.dtype(kind).itemsize}] CONCORD_ARENA;")
    return total, "\n".join(["/* All buffers. */", *lines] if lines else [])


def start_of(buffer: Buffer, kind: str = "") -> str:
    """A pointer to the first element of a placed buffer, as elements of a type."""
    name, own = _array_of(buffer)
    start = f"{name} + {buffer.offset // np.dtype(own).itemsize}"
    return start if (kind or buffer.kind) == own or own == _WIDE[1] else f"({kind or buffer.kind}_t *)({start})"
