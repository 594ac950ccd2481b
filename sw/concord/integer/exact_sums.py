"""Reach of codes: with it :mod:`concord.sums` says how large their sums can become."""

from __future__ import annotations

from concord.integer.wide_numbers import WideNumbers
from concord.transfer import UniformAffine


def reach_of(scheme: UniformAffine | WideNumbers, zero_point: int) -> int:
    """Largest magnitude of a code less a zero point."""
    return max(scheme.high - zero_point, zero_point - scheme.low)
