"""The inner loops of a chain: window taps, column tiles and parts of a tile for one job."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.config import NpuConfig, clog2
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of
from concord_rtl.pipe.counters import Countdown
from concord_rtl.pipe.layouts import Reduction, job_layout, matrix_addr_bits, position_shape, vector_addr_bits
from concord_rtl.pipe.loop_address import LoopAddress


def step_layout(config: NpuConfig) -> data.StructLayout:
    """Fields that travel with a source read to the tile engines or to the source queue."""
    return data.StructLayout(
        {
            "reduction": Reduction,
            "depthwise": 1,
            "first": 1,  # first step of the job
            "last": 1,  # last step of the job
            "outside": 1,  # the tap lies outside the image
            "part": clog2(config.steps),
            "lane": clog2(config.lanes),
            "matrix": matrix_addr_bits(config),
            "vectors": clog2(config.engines),
            # of a sliding product; first of its chain; first of an inner loop; window has a place more than before it
            **(dict.fromkeys(("sliding", "starts", "clears", "grows"), 1) if config.window_taps else {}),
        }
    )


class TapWalker(Component):
    """Walks the taps of each job: one step per cycle, jobs following one another without a gap.

    A dense product makes ``kh * kw * cols * N/L`` steps, a depthwise product and a maximum ``kh * kw``, a plain read
    one. A sliding product makes ``kh * columns`` steps, column by column; unless it is the first vector of an inner
    loop, its columns follow those of the vector before.

    Parameters
    ----------
    config : NpuConfig
    """

    jobs = Input(lambda self: stream_of(job_layout(self.config)), "Jobs of the chain walker.")
    o = Output(
        lambda self: stream_of(self.request),
        "Source reads: request of a :class:`HazardGate` with the narrow memory as 0 and the wide memory as 1.",
    )

    def __init__(self, config: NpuConfig, request: data.StructLayout):
        self.config = config
        self.request = request
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        job: Any = Signal(job_layout(self.config))
        active, load, step, last = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self.o.valid.eq(active),
            step.eq(active & self.o.ready),
            self.jobs.ready.eq(~active | (step & last)),
            load.eq(self.jobs.ready & self.jobs.valid),
        ]
        with m.If(load):
            m.d.sync += [job.eq(self.jobs.p), active.eq(1)]
        with m.Elif(step & last):
            m.d.sync += active.eq(0)

        part, cols, kx, ky = self._loops(m, load, step)
        first = Signal()
        with m.If(load):
            m.d.sync += first.eq(1)
        with m.Elif(step):
            m.d.sync += first.eq(0)
        enter = load
        if self.config.window_taps:  # all other jobs go on where the one before ends
            enter = load & ~(self.jobs.p.sliding & ~self.jobs.p.begins)
        addr = self._addresses(m, job, enter, step, part.last, cols.last, kx.last)
        outside = self._bounds(m, job, enter, step, part.last & cols.last, kx.last)
        lane, matrix = self._weights(m, job, load, step, last)
        m.d.comb += last.eq(part.last & cols.last & kx.last & ky.last)

        request, payload = self.o.p, self.o.p.payload
        m.d.comb += [
            request.addr.eq(addr),
            request.memory.eq(job.wide_source),
            request.before.eq(Mux(job.wide_source, job.before_wide, job.before_narrow)),
            request.check.eq(~outside),
            payload.reduction.eq(job.reduction),
            payload.depthwise.eq(job.depthwise),
            payload.first.eq(first),
            payload.last.eq(last),
            payload.outside.eq(outside),
            payload.part.eq(self.config.steps - part.left),
            payload.lane.eq(lane),
            payload.matrix.eq(matrix),
            payload.vectors.eq(job.vectors),
        ]
        if self.config.window_taps:
            m.d.comb += [
                payload.sliding.eq(job.sliding),
                payload.starts.eq(job.starts),
                payload.clears.eq(job.begins & first),
                payload.grows.eq(job.begins | self._missing(m, job, load, step & kx.last).any()),
            ]
        return m

    def _missing(self, m, job, load, column_ends):
        """Columns that the first window of the inner loop has left out, and that later ones have not added yet."""
        p = self.jobs.p
        missing = Signal.like(p.window.kw)
        with m.If(load & p.begins):
            m.d.sync += missing.eq(p.window.kw - p.columns)
        with m.Elif(column_ends & ~job.begins & missing.any()):
            m.d.sync += missing.eq(missing - 1)
        return missing

    def _order(self, sliding, inner, outer):
        """Values for the inner and the outer loop of a window: a sliding one is walked column by column."""
        if not self.config.window_taps:
            return inner, outer
        return Mux(sliding, outer, inner), Mux(sliding, inner, outer)

    def _loops(self, m, load, step):
        """Parts of a tile, column tiles, window columns and window rows, from the inside out."""
        job, steps = self.jobs.p, self.config.steps
        windowed = job.reduction != Reduction.NONE
        kx, ky = job.window.kw, job.window.kh
        if self.config.window_taps:
            kx, ky = self._order(job.sliding, Mux(job.sliding, job.columns, kx), ky)
        dense = (job.reduction == Reduction.PRODUCT) & ~job.depthwise
        levels = {
            "part": (Const(steps, steps.bit_length()), dense),
            "cols": (job.window.cols, dense),
            "kx": (kx, windowed),
            "ky": (ky, windowed),
        }
        loops: list[Any] = []
        for name, (turns, there) in levels.items():
            m.submodules[name] = loop = Countdown(len(turns))
            m.d.comb += [
                loop.load.eq(load),
                loop.turns.eq(turns),
                loop.once.eq(~there),
                loop.step.eq(Cat(step, *(inside.last for inside in loops)).all()),
            ]
            loops.append(loop)
        return loops

    def _addresses(self, m, job, load, step, last_part, last_col, last_kx):
        """Vector address: column tiles in window columns in window rows."""
        m.submodules.addr = address = LoopAddress(vector_addr_bits(self.config))
        sliding = job.sliding if self.config.window_taps else None
        inner, outer = self._order(sliding, job.window.stride_x, job.window.stride_y)
        m.d.comb += [
            address.load.eq(load),
            address.start.eq(self.jobs.p.addr),
            address.step.eq(step & last_part),
            address.last.eq(Cat(last_col, last_kx)),
            address.distances[0].eq(1),
            address.distances[1].eq(inner),
            address.distances[2].eq(outer),
        ]
        return address.addr

    def _bounds(self, m, job, load, step, last_tap, last_kx):
        """Position of the tap and whether it lies outside the image."""
        y, x = Signal(position_shape(), name="y"), Signal(position_shape(), name="x")
        window, checked = job.window, Signal()
        with m.If(load):
            p = self.jobs.p
            m.d.sync += [y.eq(p.y), x.eq(p.x)]
            m.d.sync += checked.eq((p.reduction != Reduction.NONE) & (p.window.height != 0))
        with m.Elif(step & last_tap):
            across = [x.eq(Mux(last_kx, job.x, x + window.dil_x))]
            down = [y.eq(y + window.dil_y)]
            if self.config.window_taps:
                with m.If(job.sliding):
                    m.d.sync += y.eq(Mux(last_kx, job.y, y + window.dil_y))
                    with m.If(last_kx):
                        m.d.sync += x.eq(x + window.dil_x)
                with m.Else():
                    m.d.sync += across
                    with m.If(last_kx):
                        m.d.sync += down
            else:
                m.d.sync += across
                with m.If(last_kx):
                    m.d.sync += down
        outside = Signal()
        m.d.comb += outside.eq(checked & ((y < 0) | (y >= window.height) | (x < 0) | (x >= window.width)))
        return outside

    def _weights(self, m, job, load, step, last):
        """Lane of the tap (depthwise) and word in the matrix memory."""
        lanes = self.config.lanes
        lane = Signal(range(max(2, lanes)))
        matrix = Signal(matrix_addr_bits(self.config))
        last_lane = Signal()
        ends = ~job.depthwise | (lane == lanes - 1) | last
        if self.config.window_taps:  # all weights of a window are in one word
            ends = ends & ~job.sliding
        m.d.comb += last_lane.eq(ends)
        with m.If(load):
            m.d.sync += lane.eq(0)
            with m.If(self.jobs.p.first_row):
                m.d.sync += matrix.eq(self.jobs.p.matrix)
            with m.Elif(step & last_lane):
                m.d.sync += matrix.eq(matrix + 1)
        with m.Elif(step):
            m.d.sync += lane.eq(Mux(last_lane, 0, lane + 1))
            with m.If(last_lane):
                m.d.sync += matrix.eq(matrix + 1)
        return lane, matrix
