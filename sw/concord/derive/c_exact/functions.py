"""The function of an operation in the making."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy.typing as npt

from concord.derive.c.memory import Buffer
from concord.derive.c.unit import TABLES, WEIGHTS, CodeLines, Unit
from concord.derive.c_exact.tensors import CodeTensor
from concord.integer.graph import IntegerOperation


@dataclass(eq=False)
class ExactFunction:
    """Statements, and what they need.

    Parameters
    ----------
    unit : Unit
    operation : IntegerOperation
    step : int
        Number of the step.
    sources : sequence of CodeTensor
        They are the arrays ``x0``, ``x1`` and so on.
    result : CodeTensor
        The array ``y``.
    lines : CodeLines
    scratch : dict of Buffer to str
        Buffers for this function alone, with the names they have in it.
    overflows : bool
        Whether ``raised`` says that an accumulator was too large.
    """

    unit: Unit
    operation: IntegerOperation
    step: int
    sources: Sequence[CodeTensor]
    result: CodeTensor
    lines: CodeLines = field(default_factory=CodeLines)
    scratch: dict[Buffer, str] = field(default_factory=dict)
    overflows: bool = False

    @property
    def label(self) -> str:
        """The name of the operation, or the first one where a converter has put several together."""
        return self.operation.name.partition(";")[0]

    def weights(self, values: npt.ArrayLike, kind: str, word: str) -> str:
        """The name of constant weights."""
        return self.unit.constant(values, kind, WEIGHTS, self.label, word)

    def table(self, values: npt.ArrayLike, kind: str, word: str) -> str:
        """The name of a constant table."""
        return self.unit.constant(values, kind, TABLES, self.label, word)

    def buffer(self, kind: str, elements: int, name: str) -> None:
        """An array for this function alone."""
        buffer = Buffer(name, kind, elements)
        buffer.use(self.step, self.step)
        self.scratch[buffer] = name
