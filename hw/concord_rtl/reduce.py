"""Maxima over windows and over the elements of a vector."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_INF, BINARY16_WIDTH
from concord_rtl.arith.helpers import delay, from_order_key, max_tree, order_key, quiet, register
from concord_rtl.control import REDUCE_CTRL, ReduceMode

#: The order key of -inf: no canonical number has a lesser one.
LEAST = BINARY16_INF ^ ((1 << BINARY16_WIDTH - 1) - 1)


class Reduce(wiring.Component):
    """Passes native vectors on, or takes maxima of several of them.

    Does not stall. The beats of a vector arrive in successive cycles, vectors back to back or with gaps; what leaves
    does so ``LATENCY`` cycles later. Maxima are those of the total order -inf < ... < -0 < +0 < ... < inf; a NaN gives
    the canonical NaN. Vectors that are only passed leave a maximum in progress alone.

    Parameters
    ----------
    config : NpuConfig
        Gives N and P.

    Members
    -------
    i : In(ArrayLayout(16, P))
        One beat.
    valid : In(1)
        A beat is there.
    first : In(1)
        It is the first of its vector.
    ctrl : In(REDUCE_CTRL)
        What to do; held during all beats of a vector.
    o : Out(ArrayLayout(16, P))
        One beat.
    o_valid, o_first : Out(1)
        Likewise; beats of maxima without ``emit`` do not leave.
    """

    i: data.View
    valid: Signal
    first: Signal
    ctrl: Any
    o: data.View
    o_valid: Signal
    o_first: Signal

    def __init__(self, config: NpuConfig):
        self.config = config
        beat = data.ArrayLayout(BINARY16_WIDTH, config.mfu_lanes)
        super().__init__(
            {
                "i": In(beat),
                "valid": In(1),
                "first": In(1),
                "ctrl": In(REDUCE_CTRL),
                "o": Out(beat),
                "o_valid": Out(1),
                "o_first": Out(1),
            }
        )

    @property
    def LATENCY(self):
        """Cycles from a beat in to the same beat out."""
        return timing.reduce_latency(self.config)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        kept = (self.ctrl.mode == ReduceMode.PASS) | self.ctrl.emit
        m.d.comb += [
            self.o_valid.eq(delay(m, self.valid & kept, self.LATENCY, "valid", reset_less=False)),
            self.o_first.eq(delay(m, self.valid & kept & self.first, self.LATENCY, "first", reset_less=False)),
        ]
        keys = self._keys(m)
        lanes_mode = delay(m, self.ctrl.mode == ReduceMode.LANES, 2, "lanes")
        values = self._running(m, keys)
        scalar = max_tree(m, values, "tree")
        wait = timing.max_tree(self.config.mfu_lanes)
        lanes_mode = delay(m, lanes_mode, wait, "scalar")
        for p, value in enumerate(values):
            value = delay(m, value, wait, f"wait_{p}")
            m.d.comb += self.o[p].eq(from_order_key(Mux(lanes_mode, scalar, value)))
        return m

    def _keys(self, m):
        """First cycle: numbers that compare as unsigned integers."""
        passed = self.ctrl.mode == ReduceMode.PASS
        absent = ~passed & (self.ctrl.skip | ((self.ctrl.mode == ReduceMode.LANES) & self.ctrl.emit))
        keys = []
        for p, x in enumerate(self.i):
            key = order_key(Mux(passed, x, quiet(x))[:BINARY16_WIDTH])
            keys.append(register(m, Mux(absent, LEAST, key), f"key_{p}"))
        return keys

    def _running(self, m, keys):
        """Second cycle: the greater of a key and of the maximum so far."""
        passed = register(m, self.ctrl.mode == ReduceMode.PASS, "passed")
        lanes = register(m, self.ctrl.mode == ReduceMode.LANES, "across")
        # One maximum per element goes round with the beats; across lanes the one of the beat before goes on.
        start = self.ctrl.start & ((self.ctrl.mode != ReduceMode.LANES) | self.first)
        fresh = register(m, start | (self.ctrl.mode == ReduceMode.PASS), "fresh")
        moves = register(m, self.valid & (self.ctrl.mode != ReduceMode.PASS), "moves")
        values = []
        for p, key in enumerate(keys):
            ring = [Signal(BINARY16_WIDTH, name=f"ring_{p}_{k}", reset_less=True) for k in range(self.config.beats)]
            before = Mux(fresh, Mux(passed, 0, LEAST), Mux(lanes, ring[0], ring[-1]))[:BINARY16_WIDTH]
            greater = Signal(BINARY16_WIDTH, name=f"greater_{p}")
            m.d.comb += greater.eq(Mux(before < key, key, before))
            with m.If(moves):
                m.d.sync += [later.eq(now) for later, now in zip(ring, [greater, *ring], strict=False)]
            values.append(register(m, greater, f"value_{p}"))
        return values
