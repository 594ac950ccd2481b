"""The comparison of the emulator with the RTL, or with a netlist: every value of every layer, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from concord.utils.arrays import Array

Outputs = Mapping[str, Array]


@dataclass(frozen=True)
class TensorComparison:
    """Outcome of a comparison.

    Parameters
    ----------
    values : int
        Values compared.
    difference : str
        The first value that differs, and in which tensor; empty if none does.
    what : str
        What is compared with the emulator.
    """

    values: int
    difference: str = ""
    what: str = "RTL"

    @property
    def passed(self) -> bool:
        """True if everything is equal."""
        return not self.difference

    def __str__(self) -> str:
        if self.passed:
            return f"emulator = {self.what}: PASS ({self.values} values)"
        return f"emulator = {self.what}: FAIL ({self.difference})"


def compare(emulator: Outputs, rtl: Outputs, what: str = "RTL") -> TensorComparison:
    """Compare tensors by name, in the order of ``emulator``: the layer that differs first is named.

    Values are compared as bit patterns: +0 differs from -0, and a NaN equals itself.
    """
    if list(emulator) != list(rtl):
        raise ValueError(f"outputs must be {list(emulator)}, not {list(rtl)}")
    total = sum(values.size for values in emulator.values())
    for name, expected in emulator.items():
        computed = rtl[name]
        if expected.shape != computed.shape:
            raise ValueError(f"{name} must have shape {expected.shape}, not {computed.shape}")
        wrong = _bits(expected) != _bits(computed)
        if wrong.any():
            sample, *index = (int(k) for k in np.argwhere(wrong)[0])
            place = f"{name}{index} of sample {sample}"
            values = f"{expected[sample, *index]!s} in the emulator, {computed[sample, *index]!s} in the {what}"
            return TensorComparison(total, f"{place}: {values}", what)
    return TensorComparison(total, what=what)


def _bits(values: Array) -> NDArray[np.uint32]:
    return np.asarray(np.ascontiguousarray(values, dtype=np.float32).view(np.uint32))
