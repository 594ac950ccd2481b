"""The outer loops of a chain: one native vector per turn."""

from __future__ import annotations

from typing import Any, NamedTuple

from amaranth import *

from concord.spec.config import clog2
from concord.spec.operations import ADDRESSED, OPERANDS, Op
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.control import Act, AddOp
from concord_rtl.parts.shapes import stream_of
from concord_rtl.pipe.counters import Countdown
from concord_rtl.pipe.layouts import (
    Reduction,
    block_addr_bits,
    chain_layout,
    count_shape,
    fetch_layout,
    job_layout,
    launch_layout,
    position_shape,
    retire_layout,
    scale_layout,
    vector_addr_bits,
)
from concord_rtl.pipe.loop_address import LoopAddress
from concord_rtl.pipe.row_gate import RowGate


class _State(NamedTuple):
    """Loop state of the vector that is issued next."""

    rows_left: Signal
    y: Signal
    x: Signal
    first_row: Signal
    starts: Signal | None
    begins: Signal | None
    columns: Value | None
    last: Value


class ChainWalker(NpuUnit):
    """Walks outer iterations, inner iterations and rows, and issues one vector per cycle at most.

    Issuing a vector sends a launch token, a retire token and its operand reads, enters its writes in the hazard
    trackers and, for the first of every T rows of a dense product and for every vector otherwise, sends a job to the
    tap walker, all in one cycle. The next chain follows without a gap. It does not ask the receivers: whoever drives
    ``enable`` knows that all have room.

    Columns of a window on the left of the image hold nothing. The first window of an inner loop of a sliding product
    leaves them out, as far as one column is left: its address moves past them, a cycle each, before it is issued.

    With ``m_wr`` a chain with a product begins when all rows of the matrix memory that chains before it
    write are there, unless all of its words lie behind every tile that has been written to in this run.

    Parameters
    ----------
    config : NpuConfig
    """

    chains = Input(lambda self: stream_of(chain_layout(self.config)), "Chain descriptors.")
    enable = Input(1, "A vector may be issued in this cycle.")
    job = Output(
        lambda self: job_layout(self.config),
        "What the vector needs from the tile engines, valid with ``issued`` only where ``with_job`` is set.",
    )
    launch = Output(
        lambda self: launch_layout(self.config),
        "What it needs in front of the vector units, valid with ``issued``.",
    )
    retire = Output(lambda self: retire_layout(self.config), "What it needs at the end, valid with ``issued``.")
    fetch = Output(lambda self: fetch_layout(self.config), "Its operands, valid with ``issued``.")
    wide_tail = Input(lambda self: count_shape(self.config), "From the hazard tracker of the wide memory.")
    narrow_tail = Input(lambda self: count_shape(self.config), "From the hazard tracker of the narrow memory.")
    push_wide = Output(1, "Enter a write of the wide memory.")
    push_narrow = Output(1, "Enter a write of the narrow memory.")
    wide_addr = Output(lambda self: vector_addr_bits(self.config), "Address of that write of the wide memory.")
    narrow_addr = Output(lambda self: vector_addr_bits(self.config), "Address of that write of the narrow memory.")
    start = Input(1, "Start of a run. Only with ``m_wr``.", when=lambda self: self.config.has(Op.M_WR))
    row_written = Input(
        1,
        "A row of the matrix memory has been written. Only with ``m_wr``.",
        when=lambda self: self.config.has(Op.M_WR),
    )
    issued = Output(1, "A vector is issued in this cycle.")
    with_job = Output(1, "It starts a job.")
    active = Output(1, "A chain is being walked.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        chain: Any = Signal(chain_layout(self.config))
        addresses = self._addresses(m, chain)
        load, step, skip = Signal(), Signal(), Signal()
        group = Signal(range(self.config.engines))
        ready = self.active & self.enable
        if self.config.has(Op.M_WR):
            m.submodules.row_gate = rows = RowGate(self.config)
            p = self.chains.p
            m.d.comb += [
                rows.start.eq(self.start),
                rows.issued.eq(step & chain.to_matrix),
                rows.row.eq(addresses["narrow"].addr),
                rows.written.eq(self.row_written),
                rows.load.eq(load),
                rows.product.eq(p.reduction == Reduction.PRODUCT),
                rows.matrix.eq(p.matrix),
            ]
            ready = ready & ~rows.waits
        m.d.comb += [
            self.with_job.eq((group == 0) | (chain.reduction != Reduction.PRODUCT) | chain.depthwise),
            step.eq(ready & ~skip),
            self.issued.eq(step),
        ]
        state = self._loops(m, chain, addresses, group, load, step, skip)
        last = state.last
        m.d.comb += [
            self.chains.ready.eq(~self.active | (step & last)),
            load.eq(self.chains.ready & self.chains.valid),
        ]
        with m.If(load):
            m.d.sync += [chain.eq(self.chains.p), self.active.eq(1)]
        with m.Elif(step & last):
            m.d.sync += self.active.eq(0)
        self._tokens(m, chain, {name: address.addr for name, address in addresses.items()}, state)
        return m

    def _addresses(self, m, chain):
        """Addresses of the current vector, by what they are of."""
        addresses = {}
        for name in ADDRESSED:
            bits = block_addr_bits(self.config) if name == "narrow" else vector_addr_bits(self.config)
            shifted = name == "source" and self.config.window_taps > 0
            m.submodules[f"{name}_addr"] = addresses[name] = address = LoopAddress(bits, with_shift=shifted)
            m.d.comb += address.start.eq(self.chains.p[name].addr)
            m.d.comb += address.distances.eq(Cat(chain[name].row, chain[name].inner, chain[name].outer))
        return addresses

    def _loops(self, m, chain, addresses, group, load, step, skip):
        """Counters of the current vector, and what moves its addresses."""
        p = self.chains.p
        loops = {name: Countdown(len(chain[name])) for name in ("rows", "inner", "outer")}
        rows, inner, outer = loops.values()
        y, x = Signal(position_shape(), name="y"), Signal(position_shape(), name="x")
        for name, loop in loops.items():
            m.submodules[name] = loop
            m.d.comb += [loop.load.eq(load), loop.turns.eq(p[name])]
        m.d.comb += [
            rows.step.eq(step),
            inner.step.eq(step & rows.last),
            outer.step.eq(step & rows.last & inner.last),
        ]
        first_row = Signal()
        starts, begins, columns = None, None, None
        if self.config.window_taps:
            starts, begins = self._places(m, load, step, rows, inner)
            columns = self._columns(m, chain, load, step, begins, x, skip)
        for address in addresses.values():
            m.d.comb += [address.load.eq(load), address.step.eq(step), address.last.eq(Cat(rows.last, inner.last))]
        with m.If(load):
            m.d.sync += [y.eq(p.y0), x.eq(p.x0), group.eq(0), first_row.eq(1)]
        with m.Elif(step):
            m.d.sync += [
                group.eq(Mux(rows.last | (group == self.config.engines - 1), 0, group + 1)),
                first_row.eq(rows.last),
            ]
            with m.If(rows.last):
                m.d.sync += x.eq(Mux(inner.last, chain.x0, x + chain.step_x))
                with m.If(inner.last):
                    m.d.sync += y.eq(y + chain.step_y)
        if self.config.window_taps:  # positions of later windows are not looked at: they go on where this one ends
            source = addresses["source"]
            m.d.comb += [source.shift.eq(skip), source.offset.eq(chain.window.stride_x)]
            with m.If(skip):
                m.d.sync += x.eq(x + chain.window.dil_x)
        return _State(rows.left, y, x, first_row, starts, begins, columns, rows.last & inner.last & outer.last)

    def _places(self, m, load, step, rows, inner):
        """Bits for the first vector of a chain, and for the first one of an inner loop."""
        starts, begins = Signal(), Signal()
        with m.If(load):
            m.d.sync += [starts.eq(1), begins.eq(1)]
        with m.Elif(step):
            m.d.sync += [starts.eq(0), begins.eq(rows.last & inner.last)]
        return starts, begins

    def _columns(self, m, chain, load, step, begins, x, skip):
        """Columns of the current window to read; whether one of them is left out now."""
        p = self.chains.p
        left, bounded, single = Signal.like(chain.window.kw), Signal(), Signal()
        with m.If(load):
            m.d.sync += [left.eq(p.window.kw), single.eq(p.window.kw == 1)]
            m.d.sync += bounded.eq(p.sliding & (p.window.height != 0))
        with m.Elif(step):
            m.d.sync += [left.eq(chain.window.kw), single.eq(chain.window.kw == 1)]
        with m.Elif(skip):
            m.d.sync += [left.eq(left - 1), single.eq(left == 2)]
        m.d.comb += skip.eq(self.active & bounded & begins & x[-1] & ~single)
        return Mux(begins, left, chain.window.cols)

    def _tokens(self, m, chain, addr, state):
        """Payloads of a vector."""
        engines = self.config.engines
        vectors = Signal(clog2(engines))
        if engines > 1:
            m.d.comb += vectors.eq(Mux(state.rows_left < engines, state.rows_left - 1, engines - 1))
        narrow = chain.to_narrow
        if self.config.has(Op.M_WR):
            narrow = narrow & ~chain.to_matrix
        job, fetch, retire = self.job, self.fetch, self.retire
        m.d.comb += [
            job.wide_source.eq(chain.wide_source),
            job.addr.eq(addr["source"]),
            job.reduction.eq(chain.reduction),
            job.depthwise.eq(chain.depthwise),
            job.matrix.eq(chain.matrix),
            job.first_row.eq(state.first_row),
            job.vectors.eq(Mux(chain.depthwise, 0, vectors)),
            job.y.eq(state.y),
            job.x.eq(state.x),
            job.window.eq(chain.window),
            job.before_wide.eq(self.wide_tail),
            job.before_narrow.eq(self.narrow_tail),
            self.launch.reduction.eq(chain.reduction),
            *(self.launch[name].eq(chain[name]) for name in scale_layout(self.config)),
            self.launch.unit0.eq(chain.unit0),
            self.launch.unit1.eq(chain.unit1),
            self.launch.early.eq(
                (chain.unit0.act != Act.TABLE)
                & ~(chain.unit1.mul | chain.unit1.add.as_value().any() | chain.unit1.act.as_value().any())
            ),
            fetch.before.eq(self.wide_tail),
            fetch.enable.eq(
                Cat(
                    chain.unit0.mul,
                    chain.unit0.add != AddOp.NONE,
                    chain.unit1.mul,
                    chain.unit1.add != AddOp.NONE,
                )
            ),
            *(fetch.addr[k].eq(addr[name]) for k, name in enumerate(OPERANDS)),
            retire.pc.eq(chain.pc),
            retire.quant.eq(chain.quant),
            retire.to_wide.eq(chain.to_wide),
            retire.wide.eq(addr["wide"]),
            retire.to_narrow.eq(chain.to_narrow),
            retire.narrow.eq(addr["narrow"]),
            *([retire.to_matrix.eq(chain.to_matrix)] if self.config.has(Op.M_WR) else []),
            self.push_wide.eq(self.issued & chain.to_wide),
            self.push_narrow.eq(self.issued & narrow),
            self.wide_addr.eq(addr["wide"]),
            self.narrow_addr.eq(addr["narrow"]),
        ]
        if self.config.window_taps:
            m.d.comb += [
                job.sliding.eq(chain.sliding),
                job.starts.eq(state.starts),
                job.begins.eq(state.begins),
                job.columns.eq(state.columns),
            ]
