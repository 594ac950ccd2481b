"""Places of values in C: arrays of their own, when these are needed, and their rows at a position."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from concord.derive.c.memory import Buffer
from concord.derive.c.storage import CArray, Place
from concord.derive.c.unit import TABLES, CodeLines, Unit
from concord.derive.c.views import Affine
from concord.golden import binary16
from concord.spec.formats import BINARY16_NAN


@dataclass(eq=False)
class _Arrays:
    """The arrays of a storage, as far as it has any."""

    half: Buffer | None = None
    codes: Buffer | None = None
    exponents: Buffer | None = None


@dataclass(eq=False)
class Scope:
    """Lines, buffers and ports that a function has used so far.

    Parameters
    ----------
    lines : CodeLines
    buffers, inputs, outputs : dict
        In the order of their first use.
    places : dict of str to str
        By place of flags, the variable with those that are raised.
    """

    lines: CodeLines = field(default_factory=CodeLines)
    buffers: dict[Buffer, None] = field(default_factory=dict)
    inputs: dict[CArray, None] = field(default_factory=dict)
    outputs: dict[CArray, None] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Position:
    """The loops around statements, over the positions of a group.

    Parameters
    ----------
    count : int
    dims : tuple of int
        Sizes of the loops.
    variables : tuple of str
        Theirs.
    """

    count: int = 1
    dims: tuple[int, ...] = (1,)
    variables: tuple[str, ...] = ("0",)

    @property
    def number(self) -> str:
        """The number of a position, from the variables."""
        strides = tuple(prod(self.dims[k + 1 :]) for k in range(len(self.dims)))
        return Affine(0, strides).text(self.variables)

    def base(self, base: Affine) -> str:
        """The first element of a row."""
        return str(base.offset) if self.count == 1 and self.variables == ("0",) else base.text(self.variables)


class ElementPlaces:
    """Hands out arrays, and remembers from which step to which they are needed.

    Parameters
    ----------
    unit : Unit
    local : set of CArray
        Values that nobody reads outside of their group: they have one row.

    Members
    -------
    clock : int
        Number of the step.
    scope : Scope
        Of the function that is written.
    position : Position
        Of the statements that are written.
    """

    def __init__(self, unit: Unit, local: set[CArray]):
        self.unit, self.local = unit, local
        self.clock = 0
        self.scope, self.position = Scope(), Position()
        self._arrays: dict[CArray, _Arrays] = {}

    @property
    def lines(self) -> CodeLines:
        """The statements."""
        return self.scope.lines

    def used(self, buffer: Buffer) -> str:
        """The name of a buffer that this step needs."""
        buffer.use(self.clock, self.clock)
        self.scope.buffers[buffer] = None
        return buffer.name

    def scratch(self, kind: str, elements: int, *words: str) -> str:
        """An array for this step alone."""
        return self.used(self.unit.buffer(kind, elements, *words))

    def buffers(self, storage: CArray) -> list[Buffer]:
        """The arrays of a storage."""
        arrays = self._arrays.get(storage, _Arrays())
        return [buffer for buffer in (arrays.half, arrays.codes, arrays.exponents) if buffer is not None]

    def half(self, storage: CArray) -> str:
        """The array of binary16 patterns of a storage."""
        match storage.place:
            case Place.INPUT:
                self.scope.inputs[storage] = None
                return storage.name
            case Place.OUTPUT:
                self.scope.outputs[storage] = None
                return storage.name
            case Place.CONSTANT:
                assert storage.data is not None
                return self.patterns(storage.data, storage.name)
        arrays = self._arrays.setdefault(storage, _Arrays())
        if arrays.half is None:
            word = "row" if storage in self.local else "all"
            arrays.half = self.unit.buffer("uint16", self._elements(storage), storage.name, word)
        return self.used(arrays.half)

    def codes(self, storage: CArray) -> tuple[str, str]:
        """The arrays of mantissas and of exponents of a storage."""
        assert storage.block is not None
        arrays = self._arrays.setdefault(storage, _Arrays())
        if arrays.codes is None or arrays.exponents is None:
            elements = self._elements(storage)
            blocks = elements // max(1, storage.shape[-1]) * len(storage.block.sizes)
            arrays.codes = self.unit.buffer(storage.block.kind, elements, storage.name, "codes")
            arrays.exponents = self.unit.buffer("int8", blocks, storage.name, "exponents")
        return self.used(arrays.codes), self.used(arrays.exponents)

    def patterns(self, bits: np.ndarray, *words: str) -> str:
        """A table of binary16 patterns; any NaN is the canonical one."""
        return self.unit.constant(np.where(binary16.is_nan(bits), BINARY16_NAN, bits), "uint16", TABLES, *words)

    def _elements(self, storage: CArray) -> int:
        return storage.size // self.position.count if storage in self.local else storage.size

    def row(self, storage: CArray, name: str, row: int) -> str:
        """A pointer to the row of a position in an array of a storage, with rows of some elements."""
        return name if storage in self.local or self.position.count == 1 else f"{name} + p * {row}"

    def element(self, storage: CArray, name: str, row: int, column: str) -> str:
        """An element of such a row."""
        if storage in self.local or self.position.count == 1:
            return f"{name}[{column}]"
        return f"{name}[p * {row} + {column}]" if row > 1 else f"{name}[p]"
