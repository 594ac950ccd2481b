"""Conversion of wide vectors to narrow ones."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.formats import HALF_MAX_BITS, HALF_WIDTH, NOISE_BITS, ExponentMode, Rounding

from .arith.helpers import (
    FRACTION,
    MAGNITUDE,
    delay,
    exponent,
    is_nan,
    is_special,
    max_tree,
    max_tree_stages,
    register,
    significand,
)
from .control import QUANT_CTRL
from .noise import Noise
from .shapes import shape_of

FIELD_BITS = MAGNITUDE - FRACTION
#: The exponent field of 1.0, and of the unit of a significand read as an integer.
BIAS = 15
UNIT_BIAS = BIAS + FRACTION
#: Cycles from the exponent of a block to a mantissa.
CONVERT = 4

#: A block while it is converted. ``base`` is the exponent plus an offset that makes it positive.
BLOCK = data.StructLayout({"base": FIELD_BITS, "static": 1, "rounding": 2, "wild": 1})


def offset(config: NpuConfig) -> int:
    """Exponent field of the greatest element minus exponent of the block."""
    return BIAS + config.act.headroom


def finite(x):
    """Infinities count as the greatest number, NaNs as +0."""
    limited = Mux(is_special(x), HALF_MAX_BITS, x[:MAGNITUDE])
    return Mux(is_nan(x), 0, Cat(limited[:MAGNITUDE], x[MAGNITUDE]))


def convert(m, config: NpuConfig, name, x, blocks, noise):
    """Shift, round and limit one finite element: four cycles, the last one without its registers.

    ``blocks`` are the blocks that the element belongs to in these cycles. Returns whether it was limited, and the code.
    """
    mant = config.act_mant
    bias = UNIT_BIAS - offset(config)  # base + bias - exponent: places to shift right for the mantissa
    exp = register(m, exponent(x) - bias, f"exp_{name}")
    sign = delay(m, x[MAGNITUDE], CONVERT, f"sign_{name}")
    sig = delay(m, significand(x), 2, f"sig_{name}")

    right = blocks[0].base - exp
    count = register(m, Mux(right[FIELD_BITS], (1 << FIELD_BITS) - 1, right)[:FIELD_BITS], f"count_{name}")
    # Only normal numbers come here, and with one place to the left they exceed every mantissa.
    large = delay(m, right < 0, 3, f"large_{name}")

    fine = register(m, Cat(Const(0, NOISE_BITS), sig) >> count, f"fine_{name}")
    stochastic = (blocks[2].rounding == Rounding.STOCHASTIC) & config.stochastic
    away = blocks[2].rounding == Rounding.NEAREST_AWAY
    even = ~stochastic & ~away
    addend = Mux(stochastic, noise, Cat(even.replicate(NOISE_BITS - 1), away))
    total = Cat(Const(1, 1), fine) + Cat(even & fine[NOISE_BITS], addend)
    code = register(m, total[NOISE_BITS + 1 :], f"code_{name}")

    outside = large | code[mant - 1 :].any()
    magnitude = Mux(outside, config.act.q_max, code)[: mant - 1]
    return outside, (Cat(magnitude ^ sign.replicate(mant - 1), sign) + sign)[:mant]


class Quantizer(wiring.Component):
    """Converts native vectors of binary16 numbers to blocks with one exponent.

    Does not stall, and does not check that a static exponent is within the activation format. The beats of a vector
    arrive in successive cycles, vectors back to back or with gaps. While one vector is collected and its greatest
    exponent found, the one before is converted, P elements per cycle. ``LATENCY`` cycles pass from the last beat in to
    ``done``. Without ``config.stochastic`` stochastic rounding rounds to nearest even.

    Parameters
    ----------
    config : NpuConfig
        Gives N, P and the activation format.

    Members
    -------
    i : In(ArrayLayout(16, P))
        One beat.
    valid : In(1)
        A beat is there.
    first : In(1)
        It is the first of its vector.
    ctrl : In(QUANT_CTRL)
        Exponent mode, static exponent and rounding; held during all beats of a vector.
    reset_noise : In(1)
        Return the noise to the start of a run.
    word : Out(shape_of(config.narrow_word))
        The block, valid in the cycle of ``done`` only.
    done : Out(1)
        Strobe.
    nonfinite, saturated : Out(1)
        Flags of the vector, valid with ``done``.
    """

    i: Any
    valid: Signal
    first: Signal
    ctrl: Any
    reset_noise: Signal
    word: data.View
    done: Signal
    nonfinite: Signal
    saturated: Signal

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__(
            {
                "i": In(data.ArrayLayout(HALF_WIDTH, config.mfu_lanes)),
                "valid": In(1),
                "first": In(1),
                "ctrl": In(QUANT_CTRL),
                "reset_noise": In(1),
                "word": Out(shape_of(config.narrow_word)),
                "done": Out(1),
                "nonfinite": Out(1),
                "saturated": Out(1),
            }
        )

    @property
    def LATENCY(self):
        """Cycles from the last beat of a vector to ``done``."""
        return 5 + max_tree_stages(self.config.mfu_lanes) + self.config.beats

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        collect = 1 + max_tree_stages(config.mfu_lanes)
        valid = delay(m, self.valid, collect, "valid", reset_less=False)
        first = delay(m, self.valid & self.first, collect, "first", reset_less=False)
        lanes = [register(m, finite(x), f"finite_{p}") for p, x in enumerate(self.i)]
        wild = register(m, Cat(is_special(x) for x in self.i).any(), "wild_1")
        peak = max_tree(m, [x[FRACTION:MAGNITUDE] for x in lanes], "peak")

        last = delay(m, first, config.beats - 1, "last", reset_less=False)
        wild = delay(m, wild, collect - 1, "wild_peak")
        block = self._block(m, valid, first, last, peak, wild, delay(m, self.ctrl, collect, "ctrl"))

        # The elements meet the exponent of their block; one cycle later it has moved on, so it is passed along.
        blocks = [block]
        for k in (1, 2, 3):
            blocks.append(data.View(BLOCK, register(m, blocks[-1], f"block_{k}")))
        noise = self._noise(m, delay(m, valid, config.beats + 1, "active", reset_less=False), blocks[1])
        lanes = [delay(m, x, collect + config.beats - 2, f"wait_{p}") for p, x in enumerate(lanes)]
        codes = [convert(m, config, p, x, blocks, noise[p]) for p, x in enumerate(lanes)]
        begin = delay(m, last, CONVERT, "begin", reset_less=False)
        end = delay(m, last, config.beats + CONVERT - 1, "end", reset_less=False)
        self._emit(m, codes, begin, end, blocks[-1])
        return m

    def _block(self, m, valid, first, last, peak, wild, ctrl):
        """What is known of a block after its last beat, held while it is converted."""
        ctrl = data.View(QUANT_CTRL, ctrl)
        best, seen = Signal(FIELD_BITS), Signal()
        floor = self.config.act_exp_min + offset(self.config)
        before = Mux(first, floor, best)
        greatest = Mux(before < peak, peak, before)
        any_wild = wild | (seen & ~first)
        with m.If(valid):
            m.d.sync += [best.eq(greatest), seen.eq(any_wild)]
        block: Any = Signal(BLOCK)
        static = ctrl.mode == ExponentMode.STATIC
        with m.If(last):
            m.d.sync += [
                block.base.eq(Mux(static, ctrl.exp + offset(self.config), greatest)),
                block.static.eq(static),
                block.rounding.eq(ctrl.rounding),
                block.wild.eq(any_wild),
            ]
        return block

    def _noise(self, m, active, block):
        if not self.config.stochastic:
            return [Const(0, NOISE_BITS)] * self.config.mfu_lanes
        m.submodules.noise = noise = Noise(self.config.mfu_lanes)
        m.d.comb += noise.reset.eq(self.reset_noise)
        m.d.comb += noise.step.eq(active & (block.rounding == Rounding.STOCHASTIC))
        return noise.noise

    def _emit(self, m, codes, begin, end, block):
        """Collect the mantissas; the last beat completes the word."""
        native, lanes = self.config.native, self.config.mfu_lanes
        outside = Cat(over for over, _ in codes).any() & block.static
        mant = self.word.mant
        m.d.sync += [mant[k].eq(mant[k + lanes]) for k in range(native - lanes)]
        m.d.sync += [mant[native - lanes + p].eq(code) for p, (_, code) in enumerate(codes)]
        m.d.sync += [self.word.exp.eq(block.base - offset(self.config)), self.nonfinite.eq(block.wild)]
        m.d.sync += [self.saturated.eq(outside | (self.saturated & ~begin)), self.done.eq(end)]
