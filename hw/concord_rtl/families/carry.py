"""Carry chains whose bits are functions of four inputs, as the cells of a family have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth import *

_INPUTS = 4


@dataclass(frozen=True)
class CarryBit:
    """One bit of a carry chain.

    With f the function of its four inputs, the sum is f XOR carry; the next carry is the carry where f is 1, and f of
    the first two inputs with zeros for the others where f is 0. So an adder needs f to be 0 for equal terms only, and
    the first two inputs alone to tell both terms then.

    Parameters
    ----------
    function : callable
        f of four bits.
    inputs : tuple of Value
        Up to four; those left out are 1.
    """

    function: Callable[[int, int, int, int], int]
    inputs: tuple[Value, ...]

    @property
    def table(self) -> int:
        """Values of the function, bit k for the inputs that are the bits of k."""
        return sum((self.function(*(k >> n & 1 for n in range(_INPUTS))) & 1) << k for k in range(1 << _INPUTS))

    @property
    def pins(self) -> tuple[Value, ...]:
        """All four inputs."""
        return (*self.inputs, *[Const(1)] * (_INPUTS - len(self.inputs)))


def plain_chain(bits: list[CarryBit]) -> Value:
    """Sums of a chain without a carry into its first bit, as expressions."""
    sums: list[Value] = []
    carry: Value = Const(0, 1)
    for bit in bits:
        value = Const(bit.table, 1 << _INPUTS).bit_select(Cat(*bit.pins), 1)
        other = Const(bit.table & 0xF, 4).bit_select(Cat(*bit.pins[:2]), 1)
        sums.append(value ^ carry)
        carry = Mux(value, carry, other)
    return Cat(*sums)


def summed(function: Callable[..., Any], first: Value | None, terms: Sequence[Value], carry: Value) -> list[CarryBit]:
    """A bit for ``carry``, and the bits of ``first + function(*terms) + carry``; without ``first`` that is zero.

    The function is of the bits of one place, with ``&``, ``|``, ``^`` and ``~`` of them. It has at most three terms,
    and one less after ``first``.
    """
    most = 3 if first is None else 2
    if not 1 <= len(terms) <= most:
        raise ValueError(f"terms must be 1 to {most} values, not {len(terms)}")

    def value(a: int, b: int, c: int, d: int) -> int:
        # Where the last input is 0 it tells the carry of a place with an even sum: that of the first term.
        if first is None:
            return int(function(*(a, b, c)[: len(terms)])) if d else 0
        return a ^ int(function(*(b, c)[: len(terms)])) if d else a

    inputs = (*(() if first is None else (first,)), *terms)
    return [CarryBit(begins, (carry,)), *(CarryBit(value, bits) for bits in zip(*inputs, strict=True))]


def begins(a: int, b: int, c: int, _: int) -> int:
    """A carry if ``a``; the third input is 1."""
    return 0 if c else a


def both(a: int, u: int, b: int, v: int) -> int:
    """Adds ``a & u`` and ``b & v``."""
    return a & u ^ b & v


def both_less(a: int, u: int, b: int, v: int) -> int:
    """Adds ``b & v`` and the complement of ``a & u``."""
    return 1 ^ a & u ^ b & v


def always(a: int, b: int, c: int, _: int) -> int:
    """A carry; the third input is 1."""
    return 1 ^ c


def plus(a: int, b: int, c: int, _: int) -> int:
    """Adds ``a`` and ``b``; the third input is 1."""
    return a ^ b if c else a


def plus_not(a: int, b: int, c: int, _: int) -> int:
    """Adds ``a`` and the complement of ``b``; the third input is 1."""
    return 1 ^ a ^ b if c else a


def not_plus_not(a: int, b: int, c: int, _: int) -> int:
    """Adds the complements of ``a`` and ``b``; the third input is 1."""
    return a ^ b if c else 1 ^ a


def at_least(a: int, b: int, c: int, _: int) -> int:
    """A carry if ``a >= b``, whatever the carry before; the third input is 1."""
    return 0 if c else a | (1 ^ b)


def less_or_equal(a: int, b: int, c: int, _: int) -> int:
    """A carry if the complement of ``a`` is at least ``b``, whatever the carry before; the third input is 1."""
    return 0 if c else 1 ^ a & b


def sum_of_three(a: int, b: int, c: int, _: int) -> int:
    """The highest bit of a sum: ``a``, ``b`` and ``c``; its carry means nothing."""
    return a ^ b ^ c
