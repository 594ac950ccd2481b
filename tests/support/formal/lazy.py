"""Lanes of the lazy update against its rules as integers: T changes by what step 1 accepts, and nothing else."""

from __future__ import annotations

from functools import partial

from concord.spec.formats import NOISE_BITS, Rounding
from concord.spec.training import AccumulatorFormat, TrainingFormat
from concord_rtl.pipe.integers.lazy.growth_lane import GrowthLane
from concord_rtl.pipe.integers.lazy.update_lane import UpdateLane
from concord_rtl.pipe.integers.lazy.widths import LazyWidths
from concord_rtl.pipe.integers.update_stage import WIDTHS

from .arith import converted
from .mutant import Change
from .proof import Function

#: Bits of all integers in the definitions, more than any of them needs.
_BITS = 96
_STEPS, _UPDATE, _GROWTH = (
    f"concord_rtl.pipe.integers.lazy.{name}" for name in ("steps", "update_lane", "growth_lane")
)


def _number(value: int) -> str:
    return f"(_ bv{value % (1 << _BITS)} {_BITS})"


def _signed(name: str, width: int) -> str:
    return f"((_ sign_extend {_BITS - width}) {name})"


def _unsigned(name: str, width: int) -> str:
    """Signals of one bit are truth values to the solver."""
    return f"(ite {name} {_number(1)} {_number(0)})" if width == 1 else f"((_ zero_extend {_BITS - width}) {name})"


def _let(*definitions: tuple[str, str]) -> str:
    return "".join(
        f"(define-fun {name} () {'Bool' if name.startswith('is-') else f'(_ BitVec {_BITS})'} {text})\n"
        for name, text in definitions
    )


def _magnitude(value: str) -> str:
    return f"(ite (bvslt {value} {_number(0)}) (bvneg {value}) {value})"


def _like(value: str, magnitude: str) -> str:
    """``magnitude`` with the sign of ``value``."""
    return f"(ite (bvslt {value} {_number(0)}) (bvneg {magnitude}) {magnitude})"


def _rounded(value: str, places: str) -> str:
    """``value * 2**-places``, to the nearest, halves away from zero."""
    half = f"(bvlshr (bvshl {_number(1)} {places}) {_number(1)})"
    return _like(value, f"(bvlshr (bvadd {_magnitude(value)} {half}) {places})")


def _limited(value: str, most: int) -> str:
    least = f"(ite (bvslt {value} {_number(-most)}) {_number(-most)} {value})"
    return f"(ite (bvsgt {value} {_number(most)}) {_number(most)} {least})"


def _elements(widths: LazyWidths) -> str:
    """Weight and accumulator before and after, in their symmetric ranges before."""
    weight, acc = widths.weight.bits, widths.accumulator.bits
    coarser = _unsigned("(in coarser)", widths.coarser_max.bit_length()) if widths.coarser_max else _number(0)
    most = [(name, _number(q_max)) for name, q_max in (("w", widths.weight.q_max), ("a", widths.accumulator.q_max))]
    return _let(
        ("coarser", coarser),
        ("shift", f"(bvsub {_number(widths.shift)} coarser)"),
        ("w", _signed("(in weight)", weight)),
        ("a", _signed("(in acc)", acc)),
        ("w-new", _signed("(out o_weight)", weight)),
        ("a-new", _signed("(out o_acc)", acc)),
        ("total", "(bvadd (bvshl w shift) a)"),
        ("total-new", "(bvadd (bvshl w-new shift) a-new)"),
    ) + "".join(
        f"(assert ({order} {name} {limit}))\n"
        for order, name, limit in (
            *(("bvsle", _magnitude(name), limit) for name, limit in most),
            ("bvule", "coarser", _number(widths.coarser_max)),
        )
    )


def _update(widths: LazyWidths) -> str:
    """Something of the first pass is wrong."""
    acc, fraction = widths.accumulator, widths.fraction
    if widths.stochastic:
        moved = f"(bvlshr (bvadd moved-fine {_unsigned('(in noise)', NOISE_BITS)}) {_number(NOISE_BITS)})"
    else:
        moved = f"(bvlshr (bvadd moved-fine {_number(1)}) {_number(1)})"
    places, limit = widths.places_max.bit_length(), widths.growth_max.bit_length()
    grown = [_rounded(_rounded("after", _number(k)), "shift") for k in range(widths.growth_max)]
    beyond = [f"(bvsgt {_magnitude(weight)} {_number(widths.weight.q_max)})" for weight in grown]
    ends = " ".join(f"(and (= room {_number(k)}) {bit})" for k, bit in enumerate(beyond))
    need = "(out need)" if widths.growth_max == 1 else None
    bits = [need or f"(= ((_ extract {k} {k}) (out need)) #b1)" for k in range(widths.growth_max)]
    right = [
        "(= total-new after)",
        "(=> (not is-beyond) (= w-new w-wide))",
        "(=> is-beyond (and (= w-new w) (= a-new held)))",
        "(= (out refused) (and (in active) (or (distinct held (bvadd a moved)) is-end)))",
        f"(= (out vanished) (and (in active) (distinct c {_number(0)}) (= moved {_number(0)})))",
        *(f"(= {bit} (and (in active) {out}))" for bit, out in zip(bits, beyond, strict=True)),
    ]
    return (
        _elements(widths)
        + _let(
            ("c", _signed("(in change)", widths.change.bits)),
            ("places", _unsigned("(in places)", places)),
            ("room", _unsigned("(in limit)", limit)),
            ("moved-fine", f"(bvlshr (bvshl {_magnitude('c')} {_number(acc.bits + fraction)}) places)"),
            ("moved", _like("c", moved)),
            ("held", _limited("(bvadd a moved)", acc.q_max)),
            ("after", "(bvadd (bvshl w shift) held)"),
            ("w-wide", f"(bvadd w {_rounded('held', 'shift')})"),
            ("is-beyond", f"(bvsgt {_magnitude('w-wide')} {_number(widths.weight.q_max)})"),
            ("is-end", f"(or false {ends})"),
        )
        + f"(assert (bvule places {_number(widths.places_max)}))\n(assert (bvule room {_number(widths.growth_max)}))\n"
        + f"(assert (not (and {' '.join(right)})))"
    )


def _growth(widths: LazyWidths) -> str:
    """Something of the second pass is wrong."""
    q_max = widths.weight.q_max
    return (
        _elements(widths)
        + _let(
            ("places", _unsigned("(in places)", widths.growth_max.bit_length())),
            ("after", _rounded("total", "places")),
            ("w-wide", _rounded("after", "shift")),
            ("is-end", f"(bvsgt {_magnitude('w-wide')} {_number(q_max)})"),
        )
        + f"(assert (bvule places {_number(widths.growth_max)}))\n"
        + f"(assert (not (ite is-end (and (= w-new {_like('w-wide', _number(q_max))}) (= a-new {_number(0)}))"
        + " (and (= total-new after) (= w-new w-wide)))))"
    )


def _make(kind: type, widths: LazyWidths) -> str:
    return converted(kind(widths))


_NOISY = LazyWidths(TrainingFormat(5), AccumulatorFormat(8, None, Rounding.STOCHASTIC), TrainingFormat(12))
_DIRECT = LazyWidths(TrainingFormat(4), AccumulatorFormat(8, 1), TrainingFormat(12))
_FORMATS = {"8/16/32": WIDTHS, "5/8/12 stochastic": _NOISY, "4/8/12 point 1": _DIRECT}
_INPUTS = ("change", "active", "places", "weight", "acc", "limit")

PROOFS = (
    *(
        Function(
            f"lazy update, {name}", "T changes by what step 1 accepts; weight, accumulator, flags, growth",
            partial(_make, UpdateLane, widths), UpdateLane.latency(widths), _update(widths),
            held=(*_INPUTS, *widths.coarser, *(["noise"] if widths.stochastic else [])), fast=widths is _NOISY,
            changes=(
                Change(_STEPS, "low[-1] & ~(value[-1] & ~low[:-1].any())", "low[-1]"),
                Change(_UPDATE, "over_1 | over_2 | over_3", "over_1 | over_2"),
                Change(_UPDATE, "up ^ negative", "up"),
            ),
        )
        for name, widths in _FORMATS.items()
    ),
    *(
        Function(
            f"lazy growth, {name}", "T shifted and rounded once, divided anew; ends of the range",
            partial(_make, GrowthLane, widths), GrowthLane.LATENCY, _growth(widths),
            held=("weight", "acc", "places", *widths.coarser), fast=widths is WIDTHS,
            changes=(
                Change(_STEPS, "low[-1] & ~(value[-1] & ~low[:-1].any())", "low[-1]"),
                Change(_GROWTH, "half & ~(total[-1] & ~below)", "half"),
            ),
        )
        for name, widths in _FORMATS.items()
    ),
)  # fmt: skip
