"""Bit layouts: ordered, named integer fields, the first field in the least significant bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Field:
    """One integer field, or an array of ``count`` of them.

    Parameters
    ----------
    name : str
        Name of the field, unique in its layout.
    width : int
        Bits of one item.
    signed : bool
        Two's complement if true.
    count : int or None
        Number of items of an array, item 0 in the least significant bits; ``None`` for a scalar.
    doc : str
        One line for the reference pages.
    """

    name: str
    width: int
    signed: bool = False
    count: int | None = None
    doc: str = ""

    @property
    def span(self) -> int:
        """Bits of the whole field."""
        return self.width * (1 if self.count is None else self.count)

    @property
    def low(self) -> int:
        """Least value of one item."""
        return -(1 << self.width - 1) if self.signed else 0

    @property
    def high(self) -> int:
        """Greatest value of one item."""
        return self.low + (1 << self.width) - 1

    def encode(self, value: int) -> int:
        """Return ``value`` as raw bits; ``ValueError`` if it does not fit."""
        if not self.low <= value <= self.high:
            raise ValueError(f"{self.name} must be in {self.low}..{self.high}, not {value!r}")
        return value & (1 << self.width) - 1

    def decode(self, raw: int) -> int:
        """Return the value of the raw bits of one item."""
        return raw - (1 << self.width) if self.signed and raw >> self.width - 1 else raw


@dataclass(frozen=True)
class Layout:
    """Fields packed without gaps."""

    fields: tuple[Field, ...]

    @cached_property
    def width(self) -> int:
        """Bits of the whole layout."""
        return sum(field.span for field in self.fields)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one word on the host link: the bits, little endian, padded with zeros."""
        return (self.width + 7) // 8

    def __getitem__(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(field.name == name for field in self.fields)

    def placed(self) -> Iterator[tuple[int, Field]]:
        """Yield each field with the position of its lowest bit."""
        at = 0
        for field in self.fields:
            yield at, field
            at += field.span

    def pack(self, **values: int | Sequence[int]) -> int:
        """Return the word that holds ``values``.

        Raises
        ------
        TypeError
            If a field is missing or unknown.
        ValueError
            If a value or the length of an array does not fit.
        """
        if set(values) != {field.name for field in self.fields}:
            expected = [field.name for field in self.fields]
            raise TypeError(f"fields must be {expected}, not {list(values)}")
        word = 0
        for at, field in self.placed():
            value: Any = values[field.name]
            items = [value] if field.count is None else list(value)
            if field.count is not None and len(items) != field.count:
                raise ValueError(f"{field.name} must have {field.count} items, not {len(items)}")
            for k, item in enumerate(items):
                word |= field.encode(int(item)) << at + k * field.width
        return word

    def unpack(self, word: int) -> dict[str, Any]:
        """Return the values held by ``word``, arrays as lists."""

        def decoded(at: int, field: Field) -> int:
            return field.decode(word >> at & (1 << field.width) - 1)

        return {
            field.name: decoded(at, field)
            if field.count is None
            else [decoded(at + k * field.width, field) for k in range(field.count)]
            for at, field in self.placed()
        }
