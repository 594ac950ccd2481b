"""Tensor registers: exponents and greatest magnitudes of the tensors of integer chains, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from concord.golden.integers import IntegerRangeError, aligned, beyond_grid, fitted
from concord.spec.integers import FACTORS, SUM_BITS, TENSORS
from concord.spec.isa import TENSOR_EXP_BITS
from concord.spec.operations import Op
from concord.spec.training import TRAIN_EXP_MAX, TRAIN_EXP_MIN
from concord.utils.arrays import Ints

_EXP_LIMIT = 1 << TENSOR_EXP_BITS - 1


def _zeros(count: int) -> Ints:
    return np.zeros(count, dtype=np.int64)


class StepFields(NamedTuple):
    """Fields of the instruction of a step; those of an update are ``accumulators`` and ``coarser``."""

    z: int = 0
    x: int = 0
    y: int = 0
    exp: int = 0
    bits: int = 32
    place: int = 0
    factor: int = 0
    accumulators: int = 0
    coarser: int = 0


@dataclass
class TensorRegisters:
    """The registers, and what the latest steps have left for the chain that follows.

    Parameters
    ----------
    top, exp : arrays of int64 ``[TENSORS]``
        Greatest magnitudes and exponents.
    mant, factor_exp : arrays of int64 ``[FACTORS]``
        Factors.
    rounding : list of tuples
        By place: bits that integers drop, and bits that they are limited to.
    moves : tuple of int
        By how much source and operand of a sum move to the right.
    update : tuple of int
        Registers of weights and of the update, from a word of weights to its accumulators, and the bits by which their
        point is less than 15 below that of weights.
    """

    top: Ints = field(default_factory=lambda: _zeros(TENSORS))
    exp: Ints = field(default_factory=lambda: _zeros(TENSORS))
    mant: Ints = field(default_factory=lambda: _zeros(FACTORS))
    factor_exp: Ints = field(default_factory=lambda: _zeros(FACTORS))
    rounding: list[tuple[int, int]] = field(default_factory=lambda: [(0, 32), (0, 32)])
    moves: tuple[int, int] = (0, 0)
    update: tuple[int, int, int, int] = (0, 0, 0, 0)

    def step(self, op: Op, **fields: int) -> None:
        """Execute a step with the :class:`StepFields` of its instruction.

        Raises
        ------
        IntegerRangeError
            If an exponent or a magnitude leaves its range, or a bias would have more than 46 bits on its grid.
        """
        z, x, y, exp, bits, place, factor, accumulators, coarser = StepFields(**fields)
        e_x, t_x, e_y, t_y = (int(v) for v in (self.exp[x], self.top[x], self.exp[y], self.top[y]))
        match op:
            case Op.T_SET:
                self._set(z, exp)
            case Op.T_MUL:
                self._set(z, e_x + e_y)
            case Op.T_FIT:
                got = fitted(e_x, t_x, bits)
                if t_x and not TRAIN_EXP_MIN < got.wanted <= TRAIN_EXP_MAX:
                    limits = f"{TRAIN_EXP_MIN + 1}..{TRAIN_EXP_MAX}"
                    raise IntegerRangeError(f"exponents of tensors must be in {limits}, not {got.wanted}")
                self._set(z, got.exp, got.top)
                self.rounding[place] = got.right, bits
            case Op.T_SCALE:
                self._set(z, e_x + int(self.factor_exp[factor]), t_x * abs(int(self.mant[factor])))
            case Op.T_ADD:
                grid = aligned(e_x, t_x, e_y, t_y)
                self._set(z, grid.exp)
                self.moves = grid.first, grid.second
            case Op.T_BIAS:
                if beyond_grid(e_x, e_y, t_y):
                    raise IntegerRangeError(f"a bias must have at most 46 bits on the grid of its product, 2**{e_x}")
                self._set(z, e_x)
                self.moves = 0, e_x - e_y if t_y else 0
            case Op.T_UPD:
                self.update = z, x, accumulators, coarser
            case _:
                raise ValueError(f"op must be a step of tensor registers, not {op.name}")

    def _set(self, z: int, exp: int, top: int = 0) -> None:
        if not -_EXP_LIMIT <= exp < _EXP_LIMIT:
            raise IntegerRangeError(f"exponents must be in {-_EXP_LIMIT}..{_EXP_LIMIT - 1}, not {exp}")
        if top >> SUM_BITS - 1:
            raise IntegerRangeError(f"magnitudes must have at most {SUM_BITS - 1} bits, not be {top}")
        self.exp[z], self.top[z] = exp, top
