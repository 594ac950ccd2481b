"""Maxima over windows and over the elements of a vector."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.formats import BINARY16_INF, BINARY16_WIDTH
from concord_rtl.arith.binary16_fields import from_order_key, order_key, quiet
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.control import REDUCE_CTRL, ReduceMode
from concord_rtl.parts.stages import delay, max_tree, register

#: The order key of -inf: no canonical number has a lesser one.
LEAST = BINARY16_INF ^ ((1 << BINARY16_WIDTH - 1) - 1)


class Reduce(NpuUnit):
    """Passes native vectors on, or takes maxima of several of them.

    Does not stall. The beats of a vector arrive in successive cycles, vectors back to back or with gaps; what leaves
    does so ``LATENCY`` cycles later. The lanes are all over the device, so each has registers of its own for what it
    does, and controls come a cycle before their beat.

    Maxima are those of the total order -inf < ... < -0 < +0 < ... < inf; a NaN gives the canonical NaN. Vectors that
    are only passed leave a maximum in progress alone.

    Parameters
    ----------
    config : NpuConfig
        Gives N and P.
    """

    i = Input(lambda self: data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes), "One beat.")
    valid = Input(1, "A beat will be there in the next cycle.")
    first = Input(1, "It is the first of its vector.")
    ctrl = Input(REDUCE_CTRL, "What to do with it; the same for all beats of a vector.")
    o = Output(lambda self: data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes), "One beat.")
    o_valid = Output(1, "A beat is there; beats of maxima without ``emit`` do not leave.")
    o_first = Output(1, "It is the first of its vector.")

    @property
    def LATENCY(self):
        """Cycles from a beat in to the same beat out."""
        return timing.reduce_latency(self.config)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        passed, lanes = self.ctrl.mode == ReduceMode.PASS, self.ctrl.mode == ReduceMode.LANES
        leaves = self.valid & (passed | self.ctrl.emit)
        m.d.comb += [
            self.o_valid.eq(delay(m, leaves, 1 + self.LATENCY, "valid", reset_less=False)),
            self.o_first.eq(delay(m, leaves & self.first, 1 + self.LATENCY, "first", reset_less=False)),
        ]
        values = self._running(m, self._keys(m, passed, lanes), passed, lanes)
        scalar = max_tree(m, values, "tree")
        wait = timing.max_tree(self.config.mfu_lanes)
        mode = delay(m, lanes, 2 + wait, "lanes")
        for p, value in enumerate(values):
            value = delay(m, value, wait, f"wait_{p}")
            across = self._own(m, f"across_{p}", mode)
            m.d.comb += self.o[p].eq(from_order_key(Mux(across, scalar, value)))
        return m

    @staticmethod
    def _own(m, name, value) -> Any:
        """A value of the cycle before, in a register of one lane."""
        m.submodules[name] = kept = KeptRegister(len(value))
        m.d.comb += kept.i.eq(value)
        return kept.o

    def _keys(self, m, passed, lanes):
        """First cycle: numbers that compare as unsigned integers."""
        absent = ~passed & (self.ctrl.skip | (lanes & self.ctrl.emit))
        keys = []
        for p, x in enumerate(self.i):
            same, none = self._own(m, f"first_{p}", Cat(passed, absent))
            key = order_key(Mux(same, x, quiet(x))[:BINARY16_WIDTH])
            keys.append(register(m, Mux(none, LEAST, key), f"key_{p}"))
        return keys

    def _running(self, m, keys, passed, lanes):
        """Second cycle: the greater of a key and of the maximum so far."""
        # One maximum per element goes round with the beats; across lanes the one of the beat before goes on.
        fresh = passed | (self.ctrl.start & (~lanes | self.first))
        moves = self.valid & ~passed
        now = register(m, Cat(passed, lanes, fresh, moves), "now")
        values = []
        for p, key in enumerate(keys):
            same, row, starts, goes = self._own(m, f"second_{p}", now)
            ring = [Signal(BINARY16_WIDTH, name=f"ring_{p}_{k}", reset_less=True) for k in range(self.config.beats)]
            before = Mux(starts, Mux(same, 0, LEAST), Mux(row, ring[0], ring[-1]))[:BINARY16_WIDTH]
            greater = Signal(BINARY16_WIDTH, name=f"greater_{p}")
            m.d.comb += greater.eq(Mux(before < key, key, before))
            with m.If(goes):
                m.d.sync += [later.eq(held) for later, held in zip(ring, [greater, *ring], strict=False)]
            values.append(register(m, greater, f"value_{p}"))
        return values
