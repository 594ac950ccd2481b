"""A layer in the four forms of :mod:`concord.graph.passes.dtype_forms`, in int8 and int32, to compare with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.graph.passes.dtype_forms import DtypeForm
from concord.utils.arrays import FloatArray

Codes = npt.NDArray[np.int8]
Sums = npt.NDArray[np.int32]
#: Greatest code: the range is symmetric, as that of mantissas.
CODE_MAX = 127


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
