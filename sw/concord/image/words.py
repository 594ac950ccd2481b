"""Many words at once: layouts packed into bytes and back, vectorised.

The bytes are those of the host link: little endian, unused high bits zero, ``Layout.nbytes`` per word.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from concord.spec.fields import Field, Layout
from concord.utils.arrays import Bytes, Ints


def _bits_of(field: Field, values: ArrayLike, count: int) -> Bytes:
    """Bits ``[count, span]`` of one field, least significant first."""
    items = np.asarray(values).astype(np.int64).reshape((count, -1) if count else (0, field.count or 1))
    if items.shape[1] != (field.count or 1):
        raise ValueError(f"{field.name} must have {field.count or 1} items per word, not {items.shape[1]}")
    if items.size and not field.low <= items.min() <= items.max() <= field.high:
        worst = items.min() if items.min() < field.low else items.max()
        raise ValueError(f"{field.name} must be in {field.low}..{field.high}, not {worst}")
    return (items[:, :, None] >> np.arange(field.width) & 1).astype(np.uint8).reshape(count, field.span)


def pack_words(layout: Layout, **values: ArrayLike) -> Bytes:
    """Pack arrays ``[count]`` (``[count, items]`` for array fields) into ``[count, nbytes]``.

    Fields may have up to 63 bits; the errors are those of :meth:`Layout.pack`.
    """
    if set(values) != {field.name for field in layout.fields}:
        raise TypeError(f"fields must be {[field.name for field in layout.fields]}, not {list(values)}")
    count = len(np.asarray(values[layout.fields[0].name]))
    bits = np.concatenate([_bits_of(field, values[field.name], count) for field in layout.fields], axis=1)
    padded = np.zeros((count, 8 * layout.nbytes), dtype=np.uint8)
    padded[:, : layout.width] = bits
    return np.packbits(padded, axis=1, bitorder="little")


def unpack_words(layout: Layout, data: ArrayLike) -> dict[str, Ints]:
    """Inverse of :func:`pack_words`: arrays ``[count]``, or ``[count, items]`` for array fields."""
    raw = np.asarray(data, dtype=np.uint8).reshape(-1, layout.nbytes)
    bits = np.unpackbits(raw, axis=1, bitorder="little")
    values = {}
    for at, field in layout.placed():
        items = bits[:, at : at + field.span].reshape(len(raw), field.span // field.width, field.width).astype(np.int64)
        number = (items << np.arange(field.width)).sum(axis=2)
        if field.signed:
            number -= (number >> field.width - 1) << field.width
        values[field.name] = number[:, 0] if field.count is None else number
    return values


def to_integers(data: ArrayLike) -> list[int]:
    """Words ``[count, nbytes]`` as integers."""
    return [int.from_bytes(row.tobytes(), "little") for row in np.asarray(data, dtype=np.uint8)]


def to_bytes(words: Iterable[int], nbytes: int) -> Bytes:
    """Integers as words ``[count, nbytes]``; ``ValueError`` if one does not fit."""
    listed = [int(word) for word in words]
    for word in listed:
        if word < 0 or word >> 8 * nbytes:
            raise ValueError(f"words must be integers of {nbytes} bytes, not {word!r}")
    joined = b"".join(word.to_bytes(nbytes, "little") for word in listed)
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, nbytes)
