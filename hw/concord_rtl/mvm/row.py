"""One matrix row of a tile engine."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.windows import lane_of
from concord_rtl.arith.block_float import activations, weights
from concord_rtl.cells.dsp import Multiplier
from concord_rtl.mvm.align import Align
from concord_rtl.mvm.window_registers import WindowRegisters
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.stages import delay


def exponent_shape(config: NpuConfig):
    """An exponent of activations minus ``act_exp_min``."""
    return range(config.act.exp_max - config.act_exp_min + 1)


class WindowPorts(NpuUnit):
    """Ports of rows that have registers of windows, with ``window_taps`` only: the element comes in by ``own``."""

    push = Input(
        1, "``own`` goes into place 0 of its registers, all others move on.", when=lambda self: self.config.window_taps
    )
    copy = Input(1, "The places, as they are before this cycle, are copied.", when=lambda self: self.config.window_taps)
    take = Input(
        lambda self: self.config.window_taps,
        "Places whose copied elements are multiplied.",
        when=lambda self: self.config.window_taps,
    )


def exp_delay(config: NpuConfig) -> int:
    """Cycles by which the exponent follows: the shift count is added up just before it is used."""
    return timing.product_latency(config) - 1


def clear_delay(config: NpuConfig) -> int:
    """Cycles by which ``clear`` follows the operands: it acts in the cycle before they are added."""
    return timing.sum_latency(config) - 2


class RowSum(NpuUnit):
    """Common part of all rows after their multipliers: adder tree, alignment, accumulator.

    Derived classes say what there is to add.

    Parameters
    ----------
    config : NpuConfig
        Configuration.
    """

    exp = Input(
        lambda self: exponent_shape(self.config),
        "Exponent of the vector minus ``act_exp_min``, ``exp_delay(config)`` cycles after the rest.",
    )
    clear = Input(1, "The sum begins again with the step presented ``clear_delay(config)`` cycles before.")
    acc = Output(
        lambda self: signed(self.config.acc_bits),
        "Sum so far. With a register of R bits beyond R bits once a term or a sum did not fit, on the side where it "
        "left.",
    )

    def _exponent(self) -> Value:
        """Exponent of the weights, with the operands."""
        raise NotImplementedError

    def _products(self, m) -> list[Signal]:
        """Products of the lanes, registered."""
        raise NotImplementedError

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        bits = config.register_bits
        m.submodules.align = align = Align(config.lane_dot_bits, config.max_shift, config.acc_register or None)
        exp = delay(m, self._exponent(), exp_delay(config), "exp_late")
        shift = Signal.like(align.shift, reset_less=True)
        m.d.sync += shift.eq(self.exp + exp)
        m.d.comb += [align.shift.eq(shift), align.i.eq(self._tree(m, self._products(m)))]

        # Clearing just before a first step leaves the adder without a multiplexer: the register has a reset of its own.
        total = Signal(signed(bits))
        running = Signal(signed(bits))
        result = Signal(signed(bits), reset_less=True)
        m.d.comb += total.eq(running + align.o)
        m.d.sync += [result.eq(total), running.eq(Mux(self.clear, 0, total))]
        m.d.comb += self.acc.eq(self._beyond(m, align, running, result) if config.acc_register else result)
        return m

    def _beyond(self, m, align, running, result) -> Value:
        """The result with one bit more: beyond its own bits once something has left them.

        Judged by the signs of the cycle before, beside the adder and not behind it.
        """
        before, cleared, left, below = (Signal(name=name) for name in ("before", "cleared", "left", "below"))
        leaves = align.over | (before == align.negative) & (result[-1] != align.negative)
        gone, side = left | leaves, Mux(left, below, align.negative)
        m.d.sync += [
            before.eq(running[-1]),
            cleared.eq(self.clear),
            left.eq(gone & ~cleared),
            below.eq(side),
        ]
        return Cat(result[:-1], Mux(gone, ~side, result[-1])[0], Mux(gone, side, result[-1])).as_signed()

    def _tree(self, m, terms) -> Value:
        """Add up pairwise, a register per level, as narrow as the symmetric mantissas allow."""
        leaves = 1
        while len(terms) > 1:
            leaves *= 2
            shape = activations(self.config).dot(weights(self.config), leaves)
            sums = []
            for k in range(0, len(terms), 2):
                node = Signal(shape, name=f"sum{leaves}_{k}", reset_less=True)
                m.d.sync += node.eq(terms[k] + terms[k + 1])
                sums.append(node)
            terms = sums
        return terms[0]


class Row(WindowPorts, RowSum):
    """L multipliers, adder tree, alignment, accumulator.

    Never stalls and keeps no count of steps: every cycle adds a product, idle cycles must bring zeros. One step per
    cycle. The sum including the step of a cycle is on ``acc`` ``concord.spec.timing.sum_latency(config)`` cycles later.

    Parameters
    ----------
    config : NpuConfig
        Configuration.
    """

    dense = Input(
        lambda self: data.ArrayLayout(activations(self.config).code, self.config.lanes),
        "Elements for the lanes; zeros in depthwise mode.",
    )
    own = Input(lambda self: activations(self.config).code, "The element with the number of this row.")
    pick = Input(lambda self: self.config.lanes, "The lane that takes ``own`` in depthwise mode; zero in dense mode.")
    w = Input(lambda self: weights(self.config).word, "Weights and their exponent.")

    def _exponent(self) -> Value:
        return self.w.exp

    def _products(self, m) -> list[Signal]:
        products = []
        kept = self._window(m) if self.config.window_taps else {}
        for lane in range(self.config.lanes):
            a = Signal(activations(self.config).code, name=f"a{lane}", reset_less=True)
            b = Signal(weights(self.config).code, name=f"b{lane}", reset_less=True)
            taken = self.dense[lane] | Mux(self.pick[lane], self.own, 0)
            if lane in kept:
                taken = taken | kept[lane]
            m.d.sync += [a.eq(taken), b.eq(self.w.mant[lane])]
            m.submodules[f"mul{lane}"] = mul = Multiplier(self.config.act_mant, self.config.wgt_mant)
            m.d.comb += [mul.a.eq(a), mul.b.eq(b)]
            products.append(mul.o)
        return products

    def _window(self, m) -> dict[int, Value]:
        """Element of the window that each lane takes, or zero, by lane."""
        m.submodules.window = window = WindowRegisters(self.config)
        m.d.comb += [window.i.eq(self.own), window.push.eq(self.push), window.copy.eq(self.copy)]
        lanes = self.config.lanes
        return {lane_of(k, lanes): Mux(self.take[k], window.o[k], 0) for k in range(self.config.window_taps)}
