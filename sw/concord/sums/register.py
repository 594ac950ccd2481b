"""Sums of products in an accumulator of few bits, as the machine makes them [overflow].

A term is the sum of the products of some neighbours ("lanes") along the channels of a tap; terms are added one after
the other. The first term or sum that does not fit the register ends the sum, just beyond it, whatever follows
(:func:`concord.golden.accumulate.ended`). What no order of the terms could make leave the register is not looked at
term by term: the sum of the magnitudes of its products fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from concord.golden.accumulate import ended, saturate
from concord.spec.widths import largest
from concord.sums.exact import exact_type
from concord.sums.reach import norms, sides_of
from concord.utils.arrays import Array

#: Terms that are worked on together.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class ProductOperands:
    """Rows of elements and the weights that each of them meets, in the order of the machine.

    Parameters
    ----------
    rows : array of integers ``[N, groups, K]``
        Elements: taps one after the other, channels within a tap.
    weights : array of integers ``[groups, K, O]``
        Weights: every row of a group meets every column of it.
    channels : int
        Elements of a tap: terms do not reach from one tap into the next.
    """

    rows: Array
    weights: Array
    channels: int

    def terms(self, at: tuple[Array, Array, Array], lanes: int) -> Array:
        """Terms ``[n, terms]`` of the sums with these rows, groups and columns: whole numbers in int64."""
        row, group, column = at
        products = self.rows[row, group].astype(np.int64) * self.weights[group, :, column].astype(np.int64)
        by_tap = products.reshape(len(products), -1, self.channels)
        starts = np.arange(0, self.channels, lanes)
        return np.add.reduceat(by_tap, starts, axis=2).reshape(len(products), -1)


def _reach(of: ProductOperands, most: int) -> Array | None:
    """Bounds of the magnitude of all partial sums, in any order; ``None`` if they are within ``most`` for all.

    Elements that are not negative make sums between those of the negative and of the positive weights.
    """
    w, x = of.weights.astype(np.float64), np.abs(of.rows)
    apart = bool(of.rows.min(initial=0) >= 0)
    if float(x.max(initial=0)) * float(norms(w, 1, apart).max(initial=0)) <= most:
        return None
    by_group = x.swapaxes(0, 1).astype(np.float64)
    sides = [np.matmul(by_group, side) for side in sides_of(w, apart)]
    return np.asarray(np.maximum.reduce(sides).swapaxes(0, 1))


def limited(sums: Array, of: ProductOperands, lanes: int, bits: int) -> tuple[Array, int]:
    """Sums as a register of some bits holds them.

    Parameters
    ----------
    sums : array ``[N, groups, O]``
        The exact ones.
    of : ProductOperands
        Operands of the products that are added up.
    lanes : int
        Products of a term.
    bits : int
        Bits of the register, sign included.

    Returns
    -------
    sums : array ``[N, groups, O]``
        Those that have left the register are ``2**(bits - 1)`` or ``-2**(bits - 1) - 1``.
    count : int
        Number of sums that have left the register.
    """
    most = largest(bits)
    reach = _reach(of, most)
    if reach is None:
        return sums, 0
    row, group, column = np.nonzero(reach > most)
    if not len(row):
        return sums, 0
    result, count = sums.astype(np.result_type(sums.dtype, exact_type(most + 2))), 0
    step = max(1, _CHUNK // of.rows.shape[2])
    for first in range(0, len(row), step):
        some = slice(first, first + step)
        at = row[some], group[some], column[some]
        values = ended(of.terms(at, lanes), bits)
        count += int(np.count_nonzero(saturate(values, bits)[1]))
        result[at] = values
    return result, count
