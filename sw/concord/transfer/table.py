"""Transfer tables [transfer-lut]: the function between two layers as an integer table.

``entries[j - low] = Qt(op(Qs^-1(j)))`` for every code j of the source scheme Qs, with the target scheme Qt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.functions.interval_bounds import resolve
from concord.functions.table_ends import POINTS, ends_are_constant, everywhere
from concord.functions.tables import Table
from concord.golden.codes import Codes
from concord.transfer.operators import Composition, OperatorLike, PointwiseOperator
from concord.transfer.targets import MAX_BITS, Binary16, TableTarget, codes_between, numbers_of, scale_of_index
from concord.utils.arrays import FloatArray

Entries = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class TransferTable:
    """A table with what it was made from.

    Parameters
    ----------
    source : Codes
        Of the codes looked up.
    operators : tuple of PointwiseOperator
        In the order of application; empty for a conversion.
    target : TableTarget
        Of the entries.
    entries : integer array ``[source.count]``
        Codes of the target, of code ``source.low`` first; kept as a read-only copy of type ``target.dtype``.
    """

    source: Codes
    operators: tuple[PointwiseOperator, ...]
    target: TableTarget
    entries: Entries

    def __post_init__(self) -> None:
        entries = np.asarray(self.entries)
        if entries.shape != (self.source.count,):
            raise ValueError(f"entries must have shape ({self.source.count},), not {entries.shape}")
        self.target.check(entries)
        stored = entries.astype(self.target.dtype)
        stored.flags.writeable = False
        object.__setattr__(self, "entries", stored)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TransferTable):
            return NotImplemented
        own, others = ((t.source, t.operators, t.target) for t in (self, other))
        return own == others and np.array_equal(self.entries, other.entries)

    def __hash__(self) -> int:
        return hash((self.source, self.operators, self.target, self.entries.tobytes()))

    def apply(self, codes: ArrayLike) -> Entries:
        """Look integer codes up, in an array of any shape; ``ValueError`` if one is not a code of the source."""
        index = self.source.check(codes).astype(np.int64) - self.source.low
        return np.asarray(self.entries[index])

    def npu_table(self, name: str = "") -> Table:
        """This table as a table of the NPU; ``ValueError`` unless it is from a :func:`table_index` to binary16.

        Ends are constant as :mod:`concord.functions.table_ends` says; with an operator of the caller's none is.
        """
        scale = scale_of_index(self.source)
        if scale is None or not isinstance(self.target, Binary16):
            raise ValueError(
                f"a table of the NPU must be from table_index to Binary16, not {self.source} to {self.target}"
            )
        label = name or "+".join(operator.name for operator in self.operators) or "identity"
        codes = self.source.low, self.source.high, scale
        constant_ends, values = (False, False), _everywhere(self.operators)
        if values is not None:
            pole = any(operator.pole for operator in self.operators)
            constant_ends = ends_are_constant(*codes, self.entries, values, pole=pole)
        return Table(label, *codes, tuple(self.entries.tolist()), constant_ends)


@lru_cache(maxsize=64)
def _everywhere(operators: tuple[PointwiseOperator, ...]) -> tuple[FloatArray, FloatArray] | None:
    """Bounds on what operators make of all binary16 numbers; None if one is the caller's."""
    if any(operator.custom for operator in operators):
        return None
    return everywhere(Composition(operators).bounds_of(POINTS) or POINTS)


def transfer_table(
    source: Codes, functions: Sequence[OperatorLike], target: TableTarget, *, always_exact: bool = False
) -> TransferTable:
    """Compute a table.

    Parameters
    ----------
    source, target : Codes, TableTarget
        The two sides, of 1 to 16 bits each.
    functions : sequence
        Operators in the order of application, none for a conversion: names, pairs of a name and a mapping of
        parameters, or callables from a ``Fraction`` to a ``Fraction``, ``Decimal`` or float. The result of the last one
        is rounded, once.
    always_exact : bool
        Evaluate all entries in exact arithmetic, as is done for callables. The entries are the same, and it takes about
        0.1 ms for each.
    """
    operators = tuple(PointwiseOperator.of(choice) for choice in functions)
    return TransferTable(source, operators, target, compute(source, operators, target, always_exact=always_exact))


def compute(
    source: Codes, operators: Sequence[PointwiseOperator], target: TableTarget, *, always_exact: bool = False
) -> Entries:
    """The entries of :func:`transfer_table`."""
    for side in (source, target):
        if side.bits > MAX_BITS:
            raise ValueError(f"codes of a table must have at most {MAX_BITS} bits, not {side.bits}")
    chain = Composition(operators)

    def entry(k: int) -> int:
        return target.quantize(chain(source.dequantize(source.low + k)))

    bounds = None if always_exact else chain.bounds_of(numbers_of(source))
    if bounds is None:
        return np.array([entry(k) for k in range(source.count)], dtype=np.int64)
    return resolve(*codes_between(target, bounds), entry)
