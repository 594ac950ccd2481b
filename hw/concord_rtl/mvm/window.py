"""Windows of sliding depthwise products: which elements are there, and which of them are multiplied together."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth import *
from amaranth.lib import data
from amaranth.lib.fifo import SyncFIFO

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.multipliers import paired
from concord_rtl.arith.block_float import activations
from concord_rtl.mvm.row import exponent_shape
from concord_rtl.parts.component import Input, NpuUnit, Output


def push_layout(config: NpuConfig) -> data.StructLayout:
    """A vector that enters the window, and its place there."""
    return data.StructLayout(
        {
            "clears": 1,  # the first one of an inner loop: no other counts
            "grows": 1,  # the window has a place more than before it
            "last": 1,  # the last one of a window
            "outside": 1,  # outside the image: counts as zero
            "exp": exponent_shape(config),  # minus act_exp_min
            "mant": data.ArrayLayout(activations(config).code, config.native),
        }
    )


def pass_layout(config: NpuConfig) -> data.StructLayout:
    """A step of the tile engines: all elements of a window that have an exponent, times their weights."""
    return data.StructLayout(
        {
            "valid": 1,
            "first": 1,  # first step of a window
            "last": 1,  # last step of a window
            "take": config.window_taps,  # places that count
            "exp": exponent_shape(config),  # of the elements that count, minus act_exp_min
        }
    )


class WindowUnit(NpuUnit):
    """Control of the registers in :class:`concord_rtl.mvm.window_registers.WindowRegisters`.

    Vectors wait in a queue of ``DEPTH``. One per cycle goes into place 0 and moves the others one place on; when a
    window is complete, it is copied, and the next one comes in while the copy is worked on. Elements with the same
    exponent are one pass; where rows share their multipliers, the second one of a pair of lanes waits for another pass.
    A window takes as many cycles as it has new vectors or as it needs passes, whichever is more, and one at least.

    ``push``, ``copy`` and ``o`` belong together: a pass sees the places as they were copied before its cycle.
    The first pass of a window comes ``LATENCY`` cycles after its last vector at least.

    Parameters
    ----------
    config : NpuConfig
        Configuration with ``window_taps``.
    """

    valid = Input(1, "``i`` enters the queue; only if there is room.")
    i = Input(lambda self: push_layout(self.config), "A vector.")
    taken = Output(1, "A vector leaves the queue.")
    push = Output(1, "``mant`` goes into place 0, all others move on.")
    mant = Output(lambda self: push_layout(self.config)["mant"].shape, "Mantissas of the vector.")
    copy = Output(1, "The places, as they are before this cycle, are copied.")
    o = Output(lambda self: pass_layout(self.config), "A step.")

    #: Vectors that the queue holds.
    DEPTH = timing.WINDOW_PLACES
    LATENCY = 3

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        layout = push_layout(self.config)
        m.submodules.queue = queue = SyncFIFO(width=layout.size, depth=self.DEPTH)
        head: Any = Signal(layout)
        complete, busy, final = Signal(), Signal(), Signal()
        m.d.comb += [
            queue.w_en.eq(self.valid),
            queue.w_data.eq(self.i),
            head.eq(queue.r_data),
            self.copy.eq(complete & (~busy | final)),
            self.push.eq(queue.r_rdy & (~complete | self.copy)),
            queue.r_en.eq(self.push),
            self.taken.eq(self.push),
            self.mant.eq(head.mant),
        ]
        with m.If(self.push):
            m.d.sync += complete.eq(head.last)
        with m.Elif(self.copy):
            m.d.sync += complete.eq(0)
        self._passes(m, self._places(m, head), busy, final)
        return m

    def _places(self, m, head):
        """Fields that the places hold, and for every pair of places a bit that is set if their exponents are equal."""
        size = self.config.window_taps
        exps: Any = Signal(data.ArrayLayout(exponent_shape(self.config), size))
        inside, within = Signal(size), Signal(size)
        equal = [Signal(k, name=f"equal_{k}") for k in range(size)]  # bit j of number k: places j < k
        leads = Signal(size)  # no later element that counts has the exponent
        new = Cat(head.exp == exps[j] for j in range(size - 1))
        counts = ~head.outside
        with m.If(self.push):
            m.d.sync += [
                exps[0].eq(head.exp),
                *(exps[k].eq(exps[k - 1]) for k in range(1, size)),
                inside.eq(Cat(counts, inside)),
                # Places that the present window reaches: those that came in since its inner loop began, up to its taps.
                within.eq(Mux(head.clears, 1, Mux(head.grows, Cat(1, within), within))),
                *(equal[k].eq(Cat(new[k - 1], equal[k - 1])) for k in range(1, size)),
                leads.eq(Cat(counts, leads[: size - 1] & ~(new & counts.replicate(size - 1)))),
            ]
        return exps, inside & within, equal, leads & within

    def _passes(self, m, places, busy, final):
        """Copy a window, and choose one group of its elements after the other, that of the lowest place first."""
        size, lanes = self.config.window_taps, self.config.lanes
        exps, inside, equal, leads = places
        pairs = lanes // 2 if paired(self.config) else lanes
        # The second element of a pair of lanes, if the first one has its exponent, waits for another pass.
        late = Cat(
            inside[k] & inside[k - pairs] & equal[k][k - pairs] if k >= pairs else Const(0, 1) for k in range(size)
        )
        begins = [leads[k] | late[k] & ~_any(late[j] & equal[k][j] for j in range(pairs, k)) for k in range(size)]
        starts = Signal(size)
        m.d.comb += starts.eq(Cat(begins))

        kept_exps, kept_inside, kept_late = Signal.like(exps.as_value()), Signal(size), Signal(size)
        kept_equal = [Signal.like(bits, name=f"kept_equal_{k}") for k, bits in enumerate(equal)]
        chosen, rest, first = Signal(size), Signal(size), Signal()
        left = Signal(size)
        m.d.comb += left.eq(Mux(self.copy, starts, rest))
        with m.If(self.copy):
            m.d.sync += [
                kept_exps.eq(exps),
                kept_inside.eq(inside),
                kept_late.eq(late),
                *(kept.eq(bits) for kept, bits in zip(kept_equal, equal, strict=True)),
            ]
        lowest = left & (~left + 1)
        m.d.sync += [
            busy.eq(self.copy | (busy & ~final)),
            first.eq(self.copy),
            chosen.eq(lowest),
            rest.eq(left & ~lowest),
            final.eq(left & ~lowest == 0),
        ]
        exps = data.View(exps.shape(), kept_exps)
        alike = [
            _any(chosen[j] & (Const(1, 1) if j == k else kept_equal[max(j, k)][min(j, k)]) for j in range(size))
            for k in range(size)
        ]
        same_turn = ~(kept_late ^ (chosen & kept_late).any().replicate(size))
        m.d.comb += [
            self.o.valid.eq(busy),
            self.o.first.eq(busy & first),
            self.o.last.eq(busy & final),
            self.o.take.eq(Cat(alike) & kept_inside & same_turn & busy.replicate(size)),
            self.o.exp.eq(reduce(or_, (exps[k] & chosen[k].replicate(len(exps[k])) for k in range(size)))),
        ]


def _any(bits):
    return Cat(bits).any()
