"""Sums on the accumulator grid: exact integers, rounded once at the end, independent of order and tiling.

A native dot product of mantissas is an integer; shifted left by ``x_exp + w_exp + frac`` it lies on the grid whose
least bit is ``2**-frac``. The final value saturates to ``width`` bits, two's complement (``ACC_OVERFLOW``), and is
rounded once, nearest even, to binary16. An exact zero gives +0; a negative sum that rounds to
zero gives -0, as in IEEE 754. Beyond 65504 after rounding it becomes an infinity (``HALF_OVERFLOW``).

A register that is narrower than the greatest sum (``NpuConfig.acc_register``) ends a sum where it leaves it: then, and
only then, the order of the terms decides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from concord.golden import binary16
from concord.spec.config import NpuConfig
from concord.spec.widths import limits
from concord.utils.arrays import Bits, Bools, Integers

_SAFE_BITS = 62
_SQUASH_BITS = 12


def accumulate(
    x_mant: ArrayLike, x_exp: ArrayLike, w_mant: ArrayLike, w_exp: ArrayLike, frac: int, register: int = 0
) -> Integers:
    """Return the grid integers ``[..., R]`` of R matrix rows times vectors of K blocks.

    With a ``register``, blocks are the terms of the machine, in its order, and both every term and every sum of the
    first terms must fit that many bits, two's complement. The first that does not ends the sum: whatever follows, the
    result is the nearest integer that does not fit on the side of that term.

    Parameters
    ----------
    x_mant, x_exp : integer arrays ``[..., K, N]`` and ``[..., K]``
        Activation blocks.
    w_mant, w_exp : integer arrays ``[..., R, K, N]`` and ``[..., R, K]``
        Weight blocks.
    frac : int
        F; ``ValueError`` if a product would have bits below ``2**-F``.
    register : int
        Bits of the register that adds up; 0: as many as are needed.
    """
    xm, wm = (np.asarray(m).astype(np.int64) for m in (x_mant, w_mant))
    xe, we = (np.asarray(e).astype(np.int64) for e in (x_exp, w_exp))
    dot = np.einsum("...kn,...rkn->...rk", xm, wm)
    shift = xe[..., None, :] + we + frac
    if shift.size and shift.min() < 0:
        raise ValueError(f"exponents must not be below the grid 2**-{frac}, not {-int(shift.min())} too small")
    if not dot.size:
        return np.zeros(dot.shape[:-1], dtype=np.int64)
    bits = int(np.abs(dot).max()).bit_length() + int(shift.max()) + dot.shape[-1].bit_length()
    terms: Integers = dot << shift if bits <= _SAFE_BITS else dot.astype(object) << shift.astype(object)
    if register and bits >= register:
        return ended(terms, register)
    return np.asarray(terms.sum(axis=-1), dtype=terms.dtype)


def ended(terms: Integers, register: int) -> Integers:
    """Sums of terms ``[..., K]``, one after the other in a register of some bits, until something does not fit.

    Where something does not, the nearest integer that does not fit on the side of that term.
    """
    sums, (low, high) = np.add.accumulate(terms, axis=-1), limits(register)
    leaves = np.zeros(terms.shape, dtype=np.bool_)
    for values in (terms, sums):
        leaves |= (values < low) | (values > high)
    first = leaves.argmax(axis=-1)[..., None]
    # A sum leaves on the side of its last term: both operands have that sign.
    negative = np.take_along_axis(terms, first, axis=-1)[..., 0] < 0
    ends = np.array([high + 1, low - 1], dtype=terms.dtype)
    return np.asarray(np.where(leaves.any(axis=-1), ends[negative.astype(np.int64)], sums[..., -1]))


def saturate(acc: ArrayLike, width: int) -> tuple[Integers, Bools]:
    """Limit grid integers to ``width`` bits, two's complement; also return where that changed them.

    Raises ``TypeError`` for floats: NumPy makes them of a mixture of int64 and larger integers, and they are not exact.
    """
    exact: Integers = np.asarray(acc)
    if exact.dtype.kind not in "iuO":
        raise TypeError(f"acc must hold integers, not {exact.dtype}")
    if exact.dtype != object:
        exact = exact.astype(np.int64)
    low, high = limits(width)
    if exact.dtype != object and width > 64:
        return exact, np.zeros(exact.shape, dtype=np.bool_)
    over = (exact < low) | (exact > high)
    return np.asarray(np.clip(exact, low, high)), np.asarray(over, dtype=np.bool_)


def _squash(magnitude: int) -> float:
    """The integer with everything below its top 53 bits folded into one sticky bit: rounds to binary16 the same way."""
    drop = max(0, magnitude.bit_length() - 52)
    sticky = magnitude & (1 << drop) - 1 != 0
    return float((magnitude >> drop << 1 | sticky) << drop) / 2


def round_grid(acc: ArrayLike, frac: int) -> Bits:
    """Round grid integers of any size once, nearest even, to binary16."""
    exact: Integers = np.asarray(acc)
    if exact.dtype == object:
        signed = [np.copysign(_squash(abs(int(a))), int(a)) for a in exact.flat]
        return binary16.encode(np.ldexp(np.array(signed, dtype=np.float64).reshape(exact.shape), -frac))
    whole = exact.astype(np.int64)
    magnitude = np.abs(whole).astype(np.uint64)
    sticky = (magnitude & (1 << _SQUASH_BITS) - 1) != 0
    squashed = (magnitude >> _SQUASH_BITS << 1 | sticky).astype(np.float64) * 2.0 ** (_SQUASH_BITS - 1)
    value = np.where(magnitude >> 53 == 0, magnitude.astype(np.float64), squashed)
    return binary16.encode(np.ldexp(np.where(whole < 0, -value, value), -frac))


def acc_to_binary16(acc: ArrayLike, config: NpuConfig | tuple[int, int]) -> tuple[Bits, Bools, Bools]:
    """Saturate and round grid integers.

    Parameters
    ----------
    acc : array of int64 or of Python integers
        Final sums.
    config : NpuConfig or (width, frac)
        W and F of the grid.

    Returns
    -------
    bits, acc_overflow, half_overflow : arrays like ``acc``
        Results and flags, per element.
    """
    width, frac = (config.acc_width, config.acc_frac) if isinstance(config, NpuConfig) else config
    limited, over = saturate(acc, width)
    bits = round_grid(limited, frac)
    return bits, over, binary16.is_inf(bits)
