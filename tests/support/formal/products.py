"""Products of symmetric codes, shared multipliers and carry chains, against multiplication."""

from __future__ import annotations

from collections.abc import Iterator

from amaranth import *

from concord_rtl.cells.dsp import PairMultiplier
from concord_rtl.families.logic_product import logic_product
from concord_rtl.families.primitives import Primitives
from concord_rtl.families.shared_product import shared_product

from .arith import converted
from .mutant import Change
from .proof import Function


class _Built(PairMultiplier):
    """Built as for a device, of cells that are plain logic."""

    def elaborate(self, platform: None) -> Module:
        m = Module()
        if self.in_logic:
            for k in range(2):
                logic_product(m, self.a, self.b[k], self.o[k], f"product{k}", Primitives())
        else:
            shared_product(m, self.a, list(self.b), list(self.o), Primitives())
        return m


def _definition(a: int, b: int) -> str:
    """Symmetric codes, and one of both products is not what it must be."""
    bits = a + b - 1

    def code(name: str, width: int) -> str:
        return f"(not (= {name} (_ bv{1 << width - 1} {width})))"

    def wide(name: str, width: int) -> str:
        return f"((_ sign_extend {bits - width}) {name})"

    factors = [f"((_ extract {b * k + b - 1} {b * k}) (in b))" for k in range(2)]
    codes = [code("(in a)", a), *(code(factor, b) for factor in factors)]
    products = [
        f"(= ((_ extract {bits * k + bits - 1} {bits * k}) (out o)) (bvmul {wide('(in a)', a)} {wide(factor, b)}))"
        for k, factor in enumerate(factors)
    ]
    return f"(assert (and {' '.join(codes)} (not (and {' '.join(products)}))))"


def _proof(a: int, b: int, in_logic: bool, fast: bool, *changes: Change) -> Function:
    """A multiplier of each value of the shared operand is a case of its own."""
    return Function(
        unit=f"pair of products {'in logic' if in_logic else 'in one multiplier'}, {a} x {b}",
        text="both products of all symmetric codes",
        rtlil=lambda: converted(_Built(a, b, in_logic=in_logic)),
        latency=PairMultiplier.LATENCY,
        definition=_definition(a, b),
        cases=tuple(f"(= (in a) (_ bv{k} {a}))" for k in range(1 << a)),
        fast=fast,
        changes=changes,
    )


_SHARED = "concord_rtl.families.shared_product"
_LOGIC = "concord_rtl.families.logic_product"
_BORROW = Change(_SHARED, "high.eq(b[1] - b[0][-1])", "high.eq(b[1])")
_SIGN = Change(_SHARED, "CarryBit(plus_not, (upper[i], sign))", "CarryBit(plus_not, (upper[i], ~sign))")
_LOWEST = Change(_SHARED, "(a[i + 1], u[n], a[i], u[n + 1])", "(a[i + 1], u[n], a[i], u[n])")
_LAST = Change(_LOGIC, "CarryBit(both_less, ", "CarryBit(both, ")
_PLACE = Change(_LOGIC, "range(len(a) + 2)]", "range(len(a) + 1)]")


def _proofs() -> Iterator[Function]:
    yield _proof(4, 4, False, True, _BORROW, _SIGN)
    yield _proof(8, 8, False, False, _BORROW, _SIGN, _LOWEST)
    yield _proof(8, 6, False, False, _BORROW, _SIGN)
    yield _proof(8, 5, False, False, _BORROW)
    yield _proof(4, 4, True, True, _LAST, _PLACE)
    yield _proof(8, 8, True, False, _LAST, _PLACE)
    yield _proof(8, 5, True, False, _LAST)


PROOFS = tuple(_proofs())
