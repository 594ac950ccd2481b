"""Codes of accumulators: what ``vv_scale`` computes (requirement S2: from sums of products to the codes of a tensor).

Activations are whole numbers, with exponent 0, and weights multiples of ``2**wgt_exp_min``. So the accumulator is a
whole number of these units; what it has below is dropped. With a factor and a fraction for each element and a shift for
all of them::

    moved  = floor(accumulator * factor / 2**shift)      # in units of 2**-16
    result = rne((moved + fraction) * 2**-16)            # limited to -2047 .. 2047

The factor has 16 bits without a sign, the fraction 16 bits with one, so that it is what a bias leaves behind whole
numbers. The result is a whole number, and therefore exact in binary16. That it is limited raises no flag: a program
must limit what is beyond by a table after it. An accumulator beyond ``acc_width`` saturates before (``ACC_OVERFLOW``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from concord.golden import accumulate, binary16
from concord.golden.rounding import round_shift
from concord.spec.config import NpuConfig
from concord.spec.formats import SCALE_FRACTION_BITS, SCALE_SHIFT_BITS, SCALED_MAX, Rounding
from concord.utils.arrays import Bits, Bools, Ints


def scaled(units: ArrayLike, factor: ArrayLike, fraction: ArrayLike, shift: int) -> Ints:
    """Whole numbers in -2047..2047 of accumulators, which are whole numbers of their units.

    Parameters
    ----------
    units : integer array
        At most 35 bits, sign included.
    factor, fraction : integer arrays
        Broadcast with ``units``; in 0..65535 and in -32768..32767.
    shift : int
        Bits by which products move down, 0 to 31.

    Raises
    ------
    ValueError
        If ``shift`` is out of its range.
    """
    if not 0 <= shift < 1 << SCALE_SHIFT_BITS:
        raise ValueError(f"shift must be in 0..{(1 << SCALE_SHIFT_BITS) - 1}, not {shift!r}")
    products = np.asarray(units).astype(np.int64) * np.asarray(factor).astype(np.int64)
    sums = (products >> shift) + np.asarray(fraction).astype(np.int64)
    whole = round_shift(sums, SCALE_FRACTION_BITS, Rounding.NEAREST_EVEN)
    return np.asarray(np.clip(whole, -SCALED_MAX, SCALED_MAX))


def scale_accumulators(
    acc: ArrayLike, factors: ArrayLike, fractions: ArrayLike, shift: int, config: NpuConfig
) -> tuple[Bits, Bools]:
    """Results of ``vv_scale`` and where the accumulator left its W bits, per element.

    Parameters
    ----------
    acc : integer array
        Final sums, with the least bit ``2**-acc_frac``.
    factors, fractions : arrays of uint16
        Words of the wide memory, broadcast with ``acc``.
    shift : int
        Bits by which ``set_scale`` moves products down, 0 to 31.
    config : NpuConfig
        With ``vv_scale``.
    """
    limited, over = accumulate.saturate(acc, config.acc_width)
    units = np.asarray(limited >> -config.act_exp_min).astype(np.int64)
    fraction = np.asarray(fractions, dtype=np.uint16).view(np.int16)
    return binary16.encode(scaled(units, factors, fraction, shift).astype(np.float64)), over
