"""Places of values in C: arrays of their own, when these are needed, and their rows at a position."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from concord.derive.c.memory import Buffer
from concord.derive.c.storage import CArray, NumberForm, Place
from concord.derive.c.unit import TABLES, CodeLines, Unit
from concord.derive.c.views import Affine
from concord.golden import binary16
from concord.spec.formats import BINARY16_NAN


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
        self._arrays: dict[tuple[CArray, NumberForm], list[Buffer]] = {}

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
        return [buffer for form in NumberForm for buffer in self._arrays.get((storage, form), ())]

    def half(self, storage: CArray) -> str:
        """The array of binary16 patterns of a storage."""
        return self.arrays(storage, NumberForm.HALF)[0]

    def arrays(self, storage: CArray, form: NumberForm) -> list[str]:
        """The arrays of a storage in a form: of binary16 patterns, or of mantissas and of exponents."""
        if form is NumberForm.HALF:
            match storage.place:
                case Place.INPUT:
                    self.scope.inputs[storage] = None
                    return [storage.name]
                case Place.OUTPUT:
                    self.scope.outputs[storage] = None
                    return [storage.name]
                case Place.CONSTANT:
                    assert storage.data is not None
                    return [self.patterns(storage.data, storage.name)]
        if (storage, form) not in self._arrays:
            count, word = (self.position.count, "row") if storage in self.local else (1, "all")
            self._arrays[storage, form] = [
                self.unit.buffer(part.kind, part.elements // count, storage.name, part.word or word)
                for part in storage.parts(form)
            ]
        return [self.used(buffer) for buffer in self._arrays[storage, form]]

    def patterns(self, bits: np.ndarray, *words: str) -> str:
        """A table of binary16 patterns; any NaN is the canonical one."""
        return self.unit.constant(np.where(binary16.is_nan(bits), BINARY16_NAN, bits), "uint16", TABLES, *words)

    def row(self, storage: CArray, name: str, row: int) -> str:
        """A pointer to the row of a position in an array of a storage, with rows of some elements."""
        return name if storage in self.local or self.position.count == 1 else f"{name} + p * {row}"

    def element(self, storage: CArray, name: str, row: int, column: str) -> str:
        """An element of such a row."""
        if storage in self.local or self.position.count == 1:
            return f"{name}[{column}]"
        return f"{name}[p * {row} + {column}]" if row > 1 else f"{name}[p]"
