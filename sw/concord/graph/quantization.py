"""Relation of the codes of a quantised model to values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.utils.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Quantization:
    """Codes that an exporter chose for a tensor: ``value = (code - zero_point) * scale``.

    Parameters
    ----------
    scale : array of float64
        One number, or one per index of ``axis``.
    zero_point : array of int64
        Of the same shape.
    bits, signed : int, bool
        Of the codes.
    axis : int or None
        Axis of the tensor with a scale per index; ``None`` if there is one scale.
    """

    scale: FloatArray
    zero_point: npt.NDArray[np.int64]
    bits: int
    signed: bool
    axis: int | None = None

    @property
    def code_type(self) -> str:
        """Type of the codes, such as ``"uint8"``."""
        return f"{'' if self.signed else 'u'}int{self.bits}"

    @property
    def range(self) -> tuple[FloatArray, FloatArray]:
        """Least and largest value that codes stand for; of the shape of ``scale``."""
        low, high = self.offsets
        return low * self.scale, high * self.scale

    @property
    def offsets(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Least and largest code, less the zero point; of the shape of ``scale``."""
        least = -(1 << (self.bits - 1)) if self.signed else 0
        largest = least + (1 << self.bits) - 1
        return least - self.zero_point, largest - self.zero_point

    @property
    def step(self) -> float:
        """The smallest distance between values that codes stand for."""
        return float(self.scale.min())

    def along(self, numbers: npt.ArrayLike, rank: int) -> FloatArray:
        """Numbers of the shape of ``scale``, in a shape that is broadcast to a tensor of ``rank`` axes."""
        shape = [-1 if axis == self.axis else 1 for axis in range(rank)] if self.axis is not None else []
        return np.asarray(numbers, dtype=np.float64).reshape(shape)

    def rounded(self, values: FloatArray) -> FloatArray:
        """Values ``[samples, *shape]`` after QuantizeLinear and DequantizeLinear: halves to even, saturated."""
        scale, low, high = (self.along(end, values.ndim - 1) for end in (self.scale, *self.offsets))
        codes = np.clip(np.rint(values / scale), low, high)
        return np.asarray(codes * scale + 0.0)  # no negative zero

    def same(self, other: Quantization) -> bool:
        """True if both give the same codes."""
        fixed = (self.bits, self.signed, self.axis) == (other.bits, other.signed, other.axis)
        return fixed and np.array_equal(self.scale, other.scale) and np.array_equal(self.zero_point, other.zero_point)
