"""Scales of requantisations as fractions, and pairs of whole numbers with a quotient."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from concord.compiler.codes.tensors import NotOnNpu
from concord.integer.float32 import Integers
from concord.integer.requantise import FloatRequantisation, Requantisation, Requantiser
from concord.integer.tflite.fixed_point import FixedPointMultiplier
from concord.integer.tflite.requantise import Binary64Requantisation, FixedPointRequantisation


def real_scales(requantiser: Requantiser, bias: Integers) -> tuple[list[Fraction], list[Fraction], bool]:
    """Factors of accumulators and numbers that are added, in codes, by channel; whether halves are rounded up.

    Raises
    ------
    NotOnNpu
        If it is another requantisation than those of ONNX and TensorFlow Lite.
    """
    match requantiser:
        case Requantisation():
            scales, term, up = [Fraction(float(scale)) for scale in requantiser.scale.ravel()], None, False
        case FloatRequantisation():
            step = Fraction(float(requantiser.step))
            scales = [Fraction(float(factor)) / step for factor in requantiser.factor.ravel()]
            term, up = [Fraction(float(number)) / step for number in requantiser.term.ravel()], False
        case FixedPointRequantisation():
            scales, term, up = fixed_scale(requantiser.scale), None, True
        case Binary64Requantisation():
            pairs = zip(requantiser.significand.ravel().tolist(), requantiser.exponent.ravel().tolist(), strict=True)
            scales, term, up = [Fraction(number) * Fraction(2) ** exponent for number, exponent in pairs], None, True
        case _:
            raise NotOnNpu(f"{type(requantiser).__name__} has no factors")
    channels = max(bias.size, len(scales), 0 if term is None else len(term))
    scales, terms = scales * (channels // len(scales)), (term or [Fraction(0)]) * (channels // len(term or [0]))
    biases = bias.ravel().tolist() * (channels // max(bias.size, 1))
    return scales, [scale * number + more for scale, number, more in zip(scales, biases, terms, strict=True)], up


def fixed_scale(scale: FixedPointMultiplier) -> list[Fraction]:
    """The real multipliers of TensorFlow Lite."""
    pairs = zip(np.ravel(scale.multiplier).tolist(), np.ravel(scale.shift).tolist(), strict=True)
    return [Fraction(multiplier) * Fraction(2) ** (shift - 31) for multiplier, shift in pairs]


def nearest_weights(first: Fraction, second: Fraction, most: int) -> tuple[int, int]:
    """Two whole numbers up to ``most`` whose quotient is nearest to that of two numbers; of equal ones the greatest."""
    if not first or not second:
        return (most, 0) if first else (0, most)
    ratio = min(first, second) / max(first, second)
    larger = np.arange(most, 0, -1)
    smaller = np.maximum(np.rint(larger * float(ratio)), 1)
    best = int(np.argmin(np.abs(smaller / larger - float(ratio))))
    pair = int(larger[best]), int(smaller[best])
    return pair if first >= second else pair[::-1]
