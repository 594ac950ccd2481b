"""The four operator forms of a quantised layer [dtype-pass], and what they compute in integers.

With the factors s_x, s_w and s_y of input, weights and output, and ``round`` to the nearest, halves to even, saturated
to -127..127 (b_q: refused beyond 32 bits), all forms share

    w_q = round(w * s_w)        b_q = round(b * s_w * s_x)        acc = w_q x_q + b_q    (int32)

and differ in where x_q comes from and what becomes of ``acc``:

===============  ======================  ==========================================
form             input                   output
===============  ======================  ==========================================
wide to wide     x_q = round(x * s_x)    y = acc / (s_w * s_x)
wide to narrow   x_q = round(x * s_x)    y_q = round(acc * s_y / (s_w * s_x))
narrow to wide   x_q is read             y = acc / (s_w * s_x)
narrow to narrow x_q is read             y_q = round(acc * s_y / (s_w * s_x))
===============  ======================  ==========================================

Each is y = w x + b, or y_q = y * s_y, but for roundings. The NPU computes the same with blocks in place of int8: there
the factor is ``2**-exponent``, of a block or of a static step, and products are added on a fixed-point grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from concord.utils.arrays import FloatArray

Codes = npt.NDArray[np.int8]
Sums = npt.NDArray[np.int32]

#: Greatest code: the range is symmetric, as that of mantissas.
CODE_MAX = 127


class DtypeForm(Enum):
    """Type that a quantised layer reads, and type that it writes."""

    WIDE_TO_WIDE = (False, False)
    WIDE_TO_NARROW = (False, True)
    NARROW_TO_WIDE = (True, False)
    NARROW_TO_NARROW = (True, True)

    @classmethod
    def of(cls, reads_narrow: bool, writes_narrow: bool) -> DtypeForm:
        """The form with these types."""
        return cls((reads_narrow, writes_narrow))

    @property
    def reads_narrow(self) -> bool:
        """Whether the input comes in codes; else the layer converts it for itself."""
        return self.value[0]

    @property
    def writes_narrow(self) -> bool:
        """Whether the output leaves in codes."""
        return self.value[1]


def encode(x: npt.ArrayLike, factor: float) -> Codes:
    """``round(x * factor)`` in -127..127; the conversion of [dtype-pass]."""
    return np.clip(np.rint(np.asarray(x, dtype=np.float64) * factor), -CODE_MAX, CODE_MAX).astype(np.int8)


@dataclass(frozen=True, eq=False)
class QuantisedLayer:
    """A fully connected layer in all four forms; a convolution is the same on its windows.

    Parameters
    ----------
    weight, bias : array of float64
        ``[O, K]`` and ``[O]``.
    s_x, s_w, s_y : float
        Factors of input, weights and output, > 0.
    """

    weight: FloatArray
    bias: FloatArray
    s_x: float
    s_w: float
    s_y: float

    def __post_init__(self) -> None:
        for name in ("s_x", "s_w", "s_y"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, not {getattr(self, name)!r}")

    def run(self, form: DtypeForm, x: npt.ArrayLike) -> FloatArray | Codes:
        """Outputs ``[..., O]`` for inputs ``[..., K]``: codes (int8) where the form is narrow, else floats.

        Raises
        ------
        TypeError
            If codes are wanted and ``x`` is not int8, or the other way round.
        ValueError
            If a bias or a sum does not fit int32.
        """
        x = np.asarray(x)
        if (x.dtype == np.int8) is not form.reads_narrow:
            raise TypeError(f"x must be {'int8' if form.reads_narrow else 'floats'} for {form.name}, not {x.dtype!r}")
        acc = self.sums(x if form.reads_narrow else encode(x, self.s_x))
        if form.writes_narrow:
            return encode(acc, self.s_y / (self.s_w * self.s_x))
        return acc / (self.s_w * self.s_x)

    def sums(self, x_q: Codes) -> Sums:
        """``w_q x_q + b_q``."""
        weight = encode(self.weight, self.s_w).astype(np.int64)
        bias = np.rint(self.bias * (self.s_w * self.s_x))
        acc = x_q.astype(np.int64) @ weight.T + bias
        limits = np.iinfo(np.int32)
        for name, values in (("bias", bias), ("sums", acc)):
            if not ((values >= limits.min) & (values <= limits.max)).all():
                raise ValueError(f"{name} must fit int32, not reach {float(np.abs(values).max())!r}")
        return acc.astype(np.int32)
