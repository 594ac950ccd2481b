"""Tables of functions that integer chains look up: which entry an integer has, and the entries [transfer-lut]."""

from __future__ import annotations

import numpy as np

from concord.golden.rounding import Ints
from concord.spec.lookup import BINADE_MIN, binade_entries


def entry_numbers(codes: Ints, exp: int, binades: int, bits: int) -> Ints:
    """Numbers of the entries of ``codes * 2**exp``.

    Zero, and what is less than the first binade, has the entry that is nearest in the first binade or any of it;
    what is beyond the last one has one of the last.

    Parameters
    ----------
    codes : array of int64
        Of the symmetric range of their bits.
    exp : int
        Exponent of the codes: a code times ``2**exp`` is its number.
    binades : int
        Number of binades of the table.
    bits : int
        Bits of a code, sign included.
    """
    half = binade_entries(bits) // 2
    lengths = np.array([magnitude.bit_length() for magnitude in range(2 * half)])
    magnitudes = np.abs(codes)
    length = lengths[magnitudes]
    binade = np.where(magnitudes > 0, np.clip(exp + length - 1 - BINADE_MIN, 0, binades - 1), 0)
    whole = magnitudes << bits - 1 - length
    return np.asarray((2 * binade + (codes < 0)) * half + whole % half)
