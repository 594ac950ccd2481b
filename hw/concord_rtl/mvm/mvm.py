"""The matrix-vector unit: tile engines, result queue and conversion to binary16."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.config import NpuConfig, clog2
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.multipliers import paired
from concord.spec.operations import Op
from concord_rtl.arith.acc_to_binary16 import AccToBinary16
from concord_rtl.arith.block_float import activations, weights
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.mvm.results import ResultQueue
from concord_rtl.mvm.row import Row, WindowPorts, clear_delay, exp_delay, exponent_shape
from concord_rtl.mvm.row_pair import RowPair
from concord_rtl.mvm.window import pass_layout
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.stages import delay


def control_layout(config: NpuConfig) -> data.StructLayout:
    """Fields that accompany the vector and the matrix word of a step."""
    return data.StructLayout(
        {
            "valid": 1,
            "first": 1,  # first step of a job
            "last": 1,  # last step of a job
            "zero": 1,  # the vector counts as zero: the tap lies outside the image
            "depthwise": 1,
            "lane": clog2(config.lanes),  # lane of the tap's weights, in depthwise mode
            "part": clog2(config.steps),  # which L elements of the vector, in dense mode
            "vectors": clog2(config.engines),  # vectors of the job minus 1
        }
    )


def window_layout(config: NpuConfig) -> data.StructLayout:
    """Controls of sliding products in a cycle, as :class:`concord_rtl.mvm.window.WindowUnit` gives them."""
    code = activations(config).code
    return data.StructLayout(
        {"push": 1, "copy": 1, "mant": data.ArrayLayout(code, config.native), "step": pass_layout(config)}
    )


class Mvm(Component):
    """Dense and depthwise products of matrix words with narrow vectors, accumulated exactly.

    Does not fetch and never stalls: one step per cycle, jobs following one another without a gap. Whoever issues jobs
    keeps no more than ``RESULT_SLOTS`` of them between their first step and ``free``. ``ready`` rises ``LATENCY``
    cycles after the last vector of a job; beat k of a vector is on the outputs ``LAUNCH_LATENCY + k`` cycles after its
    ``launch``.

    Parameters
    ----------
    config : NpuConfig
        Configuration.
    slots : int or None
        Number of jobs that the result queue holds; by default :func:`concord.spec.timing.result_places`.
    """

    step = Input(lambda self: control_layout(self.config), "Control of the step of the next cycle.")
    x = Input(lambda self: activations(self.config).word, "The vector of a step.")
    window = Input(
        lambda self: window_layout(self.config),
        "Steps of sliding products, never in the cycle of another step, and what they work on. Only with "
        "``window_taps``.",
        when=lambda self: self.config.window_taps,
    )
    w = Input(
        lambda self: data.ArrayLayout(weights(self.config).word, self.config.rows),
        "The matrix word of a step, ``W_DELAY`` cycles after the vector. In depthwise modes the rows of engine 0 "
        "count.",
    )
    ready = Output(1, "A result vector waits.")
    launch = Input(1, "Take it, in the cycle of ``ready`` or later; not again for N/P cycles.")
    beat = Output(
        lambda self: data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes),
        "Elements of a result vector, binary16.",
    )
    units = Output(
        lambda self: data.ArrayLayout(signed(self.config.scaled_bits), self.config.mfu_lanes),
        "The accumulators of this beat, saturated to W bits, in units of ``2**wgt_exp_min``. Only with ``vv_scale``.",
        when=lambda self: self.config.has(Op.VV_SCALE),
    )
    acc = Output(
        lambda self: data.ArrayLayout(signed(self.config.acc_bits), self.config.mfu_lanes),
        "Accumulators of a beat, ``timing.RESULT_QUEUE + k`` cycles after ``launch``. Only with integer chains.",
        when=lambda self: self.config.has(Op.I_RUN),
    )
    acc_overflow = Output(1, "An accumulator of this beat was saturated to W bits.")
    half_overflow = Output(1, "An element of this beat became an infinity.")
    free = Output(1, "A job has left the queue.")

    #: Cycles by which the matrix word follows the vector, as the matrix memory follows the vector memories.
    W_DELAY = timing.MATRIX_DELAY
    #: Elements of a vector that share a register for what they are.
    GROUP = 2

    def __init__(self, config: NpuConfig, slots: int | None = None):
        self.config = config
        slots = timing.result_places(config) if slots is None else slots
        if not isinstance(slots, int) or slots < 1:
            raise ValueError(f"slots must be an integer of at least 1, not {slots!r}")
        self.slots = slots
        super().__init__()

    @property
    def RESULT_SLOTS(self) -> int:
        """Jobs that may be outstanding."""
        return self.slots

    @property
    def LATENCY(self) -> int:
        """Cycles from the vector of the last step of a job to ``ready``."""
        return self.W_DELAY + timing.sum_latency(self.config) + 1

    @property
    def LAUNCH_LATENCY(self) -> int:
        """Cycles from ``launch`` to the first beat."""
        return timing.launch_latency()

    @property
    def _window_names(self) -> list[str]:
        """Names of the ports by which rows learn of windows."""
        return list(WindowPorts.ports()) if self.config.window_taps else []

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.results = results = ResultQueue(self.config, self.slots)
        pairs = paired(self.config)
        now: Any = Signal(control_layout(self.config))  # of the step whose vector is there
        m.d.sync += now.eq(self.step)
        selected = self._select_pairs(m, now) if pairs else self._select(m, now)
        exp = delay(m, self._exponent(m), exp_delay(self.config), "exp")
        begins, ends, vectors = now.valid & now.first, now.valid & now.last, now.vectors
        if self.config.window_taps:
            step = self.window.step
            begins, ends, vectors = begins | step.first, ends | step.last, Mux(step.valid, 0, vectors)
        clear = delay(m, begins, 1 + clear_delay(self.config), "clear")
        sums = self.W_DELAY + timing.sum_latency(self.config)
        coming = delay(m, ends, sums - 1, "coming", reset_less=False)
        (self._row_pairs if pairs else self._rows)(m, results, selected, exp, clear)
        m.d.comb += [
            results.coming.eq(coming),
            results.vectors.eq(delay(m, vectors, sums, "vectors")),
            results.launch.eq(self.launch),
            self.ready.eq(results.ready),
            self.free.eq(results.free),
        ]
        self._convert(m, results)
        if self.config.has(Op.I_RUN):
            m.d.comb += self.acc.eq(results.o)
        return m

    def _rows(self, m, results, selected, exp, clear):
        dense, own, pick, *window = selected
        for k in range(self.config.rows):
            m.submodules[f"row{k}"] = row = Row(self.config)
            ports = [getattr(row, name) for name in self._window_names]
            inputs = Cat(row.dense, row.own, row.pick, *ports, row.exp, row.clear)
            m.submodules[f"inputs{k}"] = kept = KeptRegister(len(inputs))
            m.d.comb += [
                kept.i.eq(Cat(dense, own[k % self.config.native], pick, *window, exp, clear)),
                inputs.eq(kept.o),
                row.w.eq(self.w[k]),
                results.acc[k].eq(row.acc),
            ]

    def _row_pairs(self, m, results, selected, exp, clear):
        dense, own, pick, depthwise, odd, *window = selected
        pairs = self.config.native // 2
        for k in range(self.config.rows // 2):
            m.submodules[f"pair{k}"] = pair = RowPair(self.config)
            ports = [getattr(pair, name) for name in self._window_names]
            inputs = Cat(pair.dense, pair.own, pair.pick, pair.depthwise, pair.odd, *ports, pair.exp, pair.clear)
            m.submodules[f"inputs{k}"] = kept = KeptRegister(len(inputs))
            m.d.comb += [
                kept.i.eq(Cat(dense, own[k % pairs], pick, depthwise, odd, *window, exp, clear)),
                inputs.eq(kept.o),
            ]
            for n in range(2):
                m.d.comb += [pair.w[n].eq(self.w[2 * k + n]), results.acc[2 * k + n].eq(pair.acc[n])]

    def _dense(self, m, now) -> Value:
        """Register the elements for the lanes in dense mode; zeros where the vector does not count, and otherwise.

        Whether it does is in a register of its own for every ``GROUP`` elements.
        """
        elements = self.x.mant.as_value().word_select(now.part, self.config.lanes * len(self.x.mant[0]))
        dense = Signal(len(elements), reset_less=True)
        counts = self.step.valid & ~self.step.zero & ~self.step.depthwise
        size = self.GROUP * len(self.x.mant[0])
        for start in range(0, len(elements), size):
            m.submodules[f"dense{start}"] = kept = KeptRegister(1)
            bits = slice(start, min(start + size, len(elements)))
            m.d.comb += kept.i.eq(counts)
            m.d.sync += dense[bits].eq(Mux(kept.o, elements[bits], 0))
        return dense

    def _pick(self, m, lane, choices) -> Value:
        """Register which of the lanes, or pairs of them, a tap has; none where there is no tap that counts."""
        counts = self.step.valid & ~self.step.zero & self.step.depthwise
        return delay(m, Mux(counts, 1 << lane, 0)[:choices], 2, "pick")

    def _select(self, m, now):
        """Register the elements for the lanes in either mode."""
        own = Signal.like(self.x.mant, reset_less=True)
        m.d.sync += own.eq(
            Mux(self.window.push, self.window.mant, self.x.mant) if self.config.window_taps else self.x.mant
        )
        return self._dense(m, now), own, self._pick(m, self.step.lane, self.config.lanes), *self._select_window(m)

    def _select_pairs(self, m, now):
        """Selects elements for pairs of rows, whose own elements have the order of the lanes that take them."""
        config = self.config
        code = activations(config).code
        own: Any = Signal(data.ArrayLayout(data.ArrayLayout(code, 2), config.native // 2), reset_less=True)
        depthwise, odd = Signal(reset_less=True), Signal(reset_less=True)
        exchanged = Signal(reset_less=True)
        m.d.sync += exchanged.eq(self.step.depthwise & self.step.lane[0])
        m.d.sync += [depthwise.eq(now.depthwise), odd.eq(exchanged)]
        if config.window_taps:
            m.d.sync += [depthwise.eq(now.depthwise | self.window.step.valid), odd.eq(exchanged & now.valid)]
        for k in range(config.native):
            element = Mux(exchanged, self.x.mant[k ^ 1], self.x.mant[k])
            if config.window_taps:
                element = Mux(self.window.push, self.window.mant[k], element)
            m.d.sync += own[k // 2][k % 2].eq(element)
        return (
            self._dense(m, now),
            own,
            self._pick(m, self.step.lane[1:], config.lanes // 2),
            depthwise,
            odd,
            *self._select_window(m),
        )

    def _select_window(self, m):
        """Register what the rows must know of windows, in the order of :class:`WindowPorts`."""
        for name in self._window_names:
            value = self.window.step.take if name == "take" else self.window[name]
            register = Signal(len(value), name=f"window_{name}", reset_less=name == "take")
            m.d.sync += register.eq(value)
            yield register

    def _exponent(self, m) -> Value:
        exp = Signal(exponent_shape(self.config), reset_less=True)
        own = self.x.exp - self.config.act_exp_min
        if self.config.window_taps:
            own = Mux(self.window.step.valid, self.window.step.exp, own)
        m.d.sync += exp.eq(own)
        return exp

    def _convert(self, m, results):
        accs, halfs = [], []
        for p, unit in enumerate(AccToBinary16(self.config) for _ in range(self.config.mfu_lanes)):
            m.submodules[f"convert{p}"] = unit
            m.d.comb += [unit.acc.eq(results.o[p]), self.beat[p].eq(unit.o)]
            accs.append(unit.acc_overflow)
            halfs.append(unit.half_overflow)
            if self.config.has(Op.VV_SCALE):
                m.d.comb += self.units[p].eq(self._units(m, results.o[p], p))
        m.d.comb += [self.acc_overflow.eq(Cat(accs).any()), self.half_overflow.eq(Cat(halfs).any())]

    def _units(self, m, acc, p) -> Value:
        """A saturated accumulator without what is below the units, when the beat is there."""
        width, below = self.config.acc_width, -self.config.act_exp_min
        excess = acc[width - 1 :]
        over = excess.any() & ~excess.all()
        kept = Mux(over, Cat((~acc[-1]).replicate(width - 1 - below), acc[-1]), acc[below:width])
        return delay(m, kept, AccToBinary16.LATENCY, f"units_{p}").as_signed()
