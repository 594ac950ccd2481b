"""Adder, multiplier and converters of binary16 against the floating-point theory of SMT-LIB."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from unittest.mock import patch

from amaranth import *
from amaranth.back import rtlil
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_EXP_MIN, BINARY16_FRAC, BINARY16_NAN, BINARY16_PRECISION
from concord.spec.presets import TINY, UP5K
from concord_rtl.arith import binary16_mul
from concord_rtl.arith.acc_to_binary16 import AccToBinary16
from concord_rtl.arith.binary16_add import Binary16Add
from concord_rtl.arith.binary16_mul import Binary16Mul
from concord_rtl.arith.narrow_to_binary16 import NarrowToBinary16
from concord_rtl.cells.dsp import Multiplier
from concord_rtl.parts.control import AddOp

from .mutant import Change
from .proof import Function

NAN = f"#x{BINARY16_NAN:04x}"
_HALF = "(define-fun {name} () (_ FloatingPoint 5 11) ((_ to_fp 5 11) {bits}))\n"


def converted(unit: wiring.Component) -> str:
    """A unit as module ``top``, with the names of its members."""
    ports = [Value.cast(getattr(unit, name)) for name in unit.signature.members]
    return rtlil.convert(unit, ports=ports, name="top", emit_src=False)


def _wrong(*right: str) -> str:
    """Some of these does not hold."""
    return f"(assert (not (and {' '.join(right)})))"


def _is(bits: str, value: str) -> str:
    """``bits`` are the pattern of ``value``, and the one canonical pattern if that is not a number."""
    return f"(ite (fp.isNaN {value}) (= {bits} {NAN}) (= ((_ to_fp 5 11) {bits}) {value}))"


# Sums --------------------------------------------------------------------------------------------

_OPERANDS = _HALF.format(name="x", bits="(in a)") + _HALF.format(name="y", bits="(in b)")
_FINITE = "(not (fp.isInfinite x)) (not (fp.isInfinite y))"


def _sum(op: AddOp, expression: str) -> str:
    value = f"(define-fun r () (_ FloatingPoint 5 11) {expression})\n"
    overflow = f"(= (out overflow) (and (fp.isInfinite r) {_FINITE}))"
    return f"(assert (= (in op) (_ bv{op.value} 3)))\n" + _OPERANDS + value + _wrong(_is("(out o)", "r"), overflow)


def _choice() -> str:
    """The other operations; of two equal numbers the zeros have the order -0, +0."""
    nan = f"(or (fp.isNaN x) (fp.isNaN y)) {NAN}"
    greater = f"(ite {nan} (ite (fp.lt x y) (in b) (ite (fp.lt y x) (in a) (bvand (in a) (in b)))))"
    lesser = f"(ite {nan} (ite (fp.lt x y) (in a) (ite (fp.lt y x) (in b) (bvor (in a) (in b)))))"
    ops = {AddOp.NONE: "(in a)", AddOp.MAX: greater, AddOp.MIN: lesser}
    right = [f"(=> (= (in op) (_ bv{op.value} 3)) (= (out o) {value}))" for op, value in ops.items()]
    some = " ".join(f"(= (in op) (_ bv{op.value} 3))" for op in ops)
    return f"(assert (or {some}))\n" + _OPERANDS + _wrong(*right, "(not (out overflow))")


# Products ----------------------------------------------------------------------------------------

_SIGNIFICAND = 2 * BINARY16_PRECISION
#: Zeros above the highest one of 11 bits, as 22; 11 if there is none.
_ZEROS = "(define-fun zeros ((v (_ BitVec 11))) (_ BitVec 22) {})\n".format(
    "".join(f"(ite (= ((_ extract {10 - k} {10 - k}) v) #b1) (_ bv{k} 22) " for k in range(11))
    + "(_ bv11 22)"
    + ")" * 11
)
#: What is known of a product of significands without multiplying: it has as many zeros above its highest one as both
#: together, or one more; it is zero if one of them is.
_PLAUSIBLE = """
(define-fun plausible ((a (_ BitVec 11)) (b (_ BitVec 11)) (p (_ BitVec 22))) Bool
  (let ((n (bvadd (zeros a) (zeros b))))
  (ite (or (= a (_ bv0 11)) (= b (_ bv0 11))) (= p (_ bv0 22))
  (and (= (bvlshr (bvshl p n) n) p) (not (= ((_ extract 21 20) (bvshl p n)) #b00))))))
"""
_FACTORS = """
(define-fun exponent ((v (_ BitVec 16))) (_ BitVec 32)
  (ite (= ((_ extract 14 10) v) #b00000) (_ bv1 32) (concat (_ bv0 27) ((_ extract 14 10) v))))
(define-fun significand ((v (_ BitVec 16))) (_ BitVec 11)
  (concat (ite (= ((_ extract 14 10) v) #b00000) #b0 #b1) ((_ extract 9 0) v)))
"""


def _product() -> str:
    """Finite factors: the exact product, rounded once. Others by the theory."""
    single = """
(declare-const single (_ BitVec 32))
(assert (= ((_ to_fp 8 24) single) ((_ to_fp_unsigned 8 24) RNE (in product))))
(assert (plausible (significand (in a)) (significand (in b)) (in product)))
(define-fun exact () (_ FloatingPoint 8 24)
  (ite (= (in product) (_ bv0 22)) (_ +zero 8 24)
  ((_ to_fp 8 24) (bvadd single (bvshl (bvsub (bvadd (exponent (in a)) (exponent (in b))) (_ bv50 32)) (_ bv23 32))))))
(define-fun magnitude () (_ FloatingPoint 5 11) ((_ to_fp 5 11) RNE exact))
(define-fun negative () Bool (= ((_ extract 15 15) (bvxor (in a) (in b))) #b1))
(define-fun r () (_ FloatingPoint 5 11)
  (ite (or (fp.isNaN x) (fp.isNaN y) (fp.isInfinite x) (fp.isInfinite y))
    (ite (or (fp.isNaN x) (fp.isNaN y) (fp.isZero x) (fp.isZero y)) (_ NaN 5 11)
      (ite negative (_ -oo 5 11) (_ +oo 5 11)))
    (ite negative (fp.neg magnitude) magnitude)))
"""
    overflow = f"(= (out overflow) (and (fp.isInfinite r) {_FINITE}))"
    return (
        "(assert (not (in skip)))\n" + _ZEROS + _PLAUSIBLE + _FACTORS + _OPERANDS + single
        + _wrong(_is("(out o)", "r"), overflow)
    )  # fmt: skip


class _FreeProduct(wiring.Component):
    """Stands for the multiplier: any product, as late."""

    LATENCY = Multiplier.LATENCY
    #: The one made last.
    made: _FreeProduct

    def __init__(self, a_width: int, b_width: int):
        super().__init__({"a": In(a_width), "b": In(b_width), "o": Out(_SIGNIFICAND)})
        self.product = Signal(_SIGNIFICAND)
        _FreeProduct.made = self

    def elaborate(self, platform: None) -> Module:
        m = Module()
        value = self.product
        for k in range(self.LATENCY):
            later = Signal(_SIGNIFICAND, name=f"product_{k + 1}", reset_less=True)
            m.d.sync += later.eq(value)
            value = later
        m.d.comb += self.o.eq(value)
        return m


def _mul(held: bool) -> str:
    """A multiplier of binary16 around a product that is free."""
    with patch.object(binary16_mul, "Multiplier", _FreeProduct):
        unit = Binary16Mul(held=held)
        fragment = Fragment.get(unit, None)
    ports = [unit.a, unit.b, unit.skip, unit.o, unit.overflow, _FreeProduct.made.product]
    return rtlil.convert(fragment, ports=ports, name="top", emit_src=False)


_FIRST, _SECOND = "((_ extract 10 0) (in a))", "((_ extract 10 0) (in b))"


def _range() -> str:
    """What the proof of the rounding assumes of products holds of those of the multiplier."""
    positive = "".join(f"(assert (= ((_ extract 11 11) (in {name})) #b0))\n" for name in "ab")
    return positive + _ZEROS + _PLAUSIBLE + _wrong(f"(plausible {_FIRST} {_SECOND} ((_ extract 21 0) (out o)))")


def _range_cases() -> tuple[str, ...]:
    """The places of the leading ones of both factors."""
    places = range(BINARY16_PRECISION + 1)
    return tuple(
        f"(and (= (zeros {_FIRST}) (_ bv{i} 22)) (= (zeros {_SECOND}) (_ bv{j} 22)))" for i in places for j in places
    )


# Converters --------------------------------------------------------------------------------------


def _accumulator(config: NpuConfig) -> str:
    """Clamped to W bits, then rounded: exact in binary64, whose exponent takes the place of the point."""
    bits, width = config.acc_bits, config.acc_width
    high, low = f"(_ bv{(1 << width - 1) - 1} {bits})", f"(bvneg (_ bv{1 << width - 1} {bits}))"
    return f"""
(define-fun clamped () (_ BitVec {bits})
  (ite (bvsgt (in acc) {high}) {high} (ite (bvslt (in acc) {low}) {low} (in acc))))
(declare-const double (_ BitVec 64))
(assert (= ((_ to_fp 11 53) double) ((_ to_fp 11 53) RNE ((_ extract {width - 1} 0) clamped))))
(define-fun exact () (_ FloatingPoint 11 53) (ite (= clamped (_ bv0 {bits})) (_ +zero 11 53)
  ((_ to_fp 11 53) (bvsub double (_ bv{config.acc_frac << 52} 64)))))
(define-fun r () (_ FloatingPoint 5 11) ((_ to_fp 5 11) RNE exact))
""" + _wrong(
        _is("(out o)", "r"),
        "(= (out acc_overflow) (not (= clamped (in acc))))",
        "(= (out half_overflow) (fp.isInfinite r))",
    )


def _narrow(config: NpuConfig) -> str:
    """Exact in binary32, whose exponent is added to, and no more than that in binary16."""
    mant = config.act_mant
    return f"""
(assert (bvsge (in exp) {_signed(config.act_exp_min)}))
(assert (bvsle (in exp) {_signed(config.act.exp_max)}))
(assert (not (= (in mant) (_ bv{1 << mant - 1} {mant}))))
(declare-const single (_ BitVec 32))
(assert (= ((_ to_fp 8 24) single) ((_ to_fp 8 24) RNE (in mant))))
(define-fun exact () (_ FloatingPoint 8 24) (ite (= (in mant) (_ bv0 {mant})) (_ +zero 8 24)
  ((_ to_fp 8 24) (bvadd single (bvshl ((_ sign_extend 24) (in exp)) (_ bv23 32))))))
(define-fun r () (_ FloatingPoint 5 11) ((_ to_fp 5 11) (out o)))
""" + _wrong("(= ((_ to_fp 8 24) RNE r) exact)")


def _signed(value: int) -> str:
    return f"(_ bv{value & 0xFF} 8)"


_ADD, _MUL = "concord_rtl.arith.binary16_add", "concord_rtl.arith.binary16_mul"
_ACC, _NARROW = "concord_rtl.arith.acc_to_binary16", "concord_rtl.arith.narrow_to_binary16"
_HELPERS = "concord_rtl.arith.binary16_fields"
_SUMS = {
    AddOp.ADD: "(fp.add RNE x y)",
    AddOp.SUB: "(fp.sub RNE x y)",
    AddOp.RSUB: "(fp.sub RNE y x)",
}


def _make(unit: Callable[[], wiring.Component]) -> str:
    return converted(unit())


PROOFS = (
    *(
        Function(
            "binary16 adder", f"{op.name}: the exact sum rounded to nearest even, canonical NaN, overflow flag",
            partial(_make, Binary16Add), Binary16Add.LATENCY, _sum(op, expression),
            changes=(
                Change(_HELPERS, "guard & (sticky | lsb)", "guard & sticky"),
                Change(_ADD, "Mux(zeros < limit, zeros, limit)", "zeros"),
                Change(_ADD, "sign & difference.any()", "sign"),
                Change(_ADD, "infinite[0] & infinite[1] & subtract", "infinite[0] & infinite[1]"),
            ),
        )
        for op, expression in _SUMS.items()
    ),
    Function(
        "binary16 adder", "MAX, MIN, NONE: the operand that is the greater, the lesser, the first, with all its bits",
        partial(_make, Binary16Add), Binary16Add.LATENCY, _choice(), fast=True,
        changes=(Change(_ADD, "a_below_b ^ (op == AddOp.MIN)", "a_below_b"),),
    ),
    Function(
        "multiplier", "products of significands lie in the range of their factors",
        partial(_make, partial(Multiplier, BINARY16_PRECISION + 1, BINARY16_PRECISION + 1)),
        Multiplier.LATENCY, _range(),
        cases=_range_cases(),
        changes=(Change("concord_rtl.families.primitives", "a_register * b_register", "a_register + b_register"),),
    ),
    *(
        Function(
            "binary16 multiplier" + (", held" if held else ""),
            "any product in the range of its factors rounded to nearest even, canonical NaN, overflow flag",
            partial(_mul, held), Binary16Mul.LATENCY, _product(), held=("a", "b", "skip") if held else (),
            fast=not held,
            changes=(
                Change(_MUL, "sticky | (carry & window[0])", "sticky"),
                Change(_MUL, "limits = [LOWEST - k for", "limits = [LOWEST - 1 - k for"),
                Change(_MUL, "(rest[0] | ~nonzero[1])", "rest[0]"),
            ),
        )
        for held in (False, True)
    ),
    *(
        Function(
            f"accumulator to binary16, {config.name}", "clamped to the register, rounded to nearest even, both flags",
            partial(_make, partial(AccToBinary16, config, held=config.serial)),
            AccToBinary16.LATENCY, _accumulator(config),
            held=("acc",) if config.serial else (), fast=not config.serial,
            changes=(
                Change(_ACC, "~negative).replicate(width - 1)", "negative).replicate(width - 1)"),
                *((Change(_ACC, ".any() | lost, ", ".any(), "),) if config.acc_frac > BINARY16_FRAC else ()),
            ),
        )
        for config in (TINY, UP5K)
    ),
    *(
        Function(
            f"block mantissa to binary16, {config.name}", "the same number, for every code of the format",
            partial(_make, partial(NarrowToBinary16, config, held=config.serial)),
            NarrowToBinary16.LATENCY, _narrow(config),
            held=("mant", "exp") if config.serial else (), fast=not config.serial,
            changes=(
                Change(_NARROW, "Mux(zeros < limit, zeros, limit)", "zeros"),
            ) if config.act_exp_min < BINARY16_EXP_MIN else (
                Change(_NARROW, "replicate(width + 1)) + self.mant[-1]", "replicate(width + 1)) + 0"),
            ),
        )
        for config in (TINY, UP5K)
    ),
)  # fmt: skip
