"""The chain pipe put together: from chain descriptors to writes."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.operations import Op
from concord_rtl.arith.block_float import activations, weights
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.memories.row_access import RowPort
from concord_rtl.memories.tile_port import TilePort
from concord_rtl.mvm.mvm import Mvm
from concord_rtl.mvm.window import WindowUnit
from concord_rtl.parts.component import Input, Output
from concord_rtl.parts.control import MFU_CTRL
from concord_rtl.parts.register_slice import RegisterSlice
from concord_rtl.parts.shapes import shape_of
from concord_rtl.parts.stages import delay, register
from concord_rtl.pipe.chain_walker import ChainWalker
from concord_rtl.pipe.hazard import HazardGate, HazardTracker
from concord_rtl.pipe.integers.engine import IntegerEngine
from concord_rtl.pipe.integers.ports import IntegerHost, IntegerPort
from concord_rtl.pipe.launch import Launcher
from concord_rtl.pipe.layouts import matrix_addr_bits, scale_layout, vector_addr_bits
from concord_rtl.pipe.operands import OperandFetch
from concord_rtl.pipe.ports import PipePorts, VectorPort
from concord_rtl.pipe.source import SourceReader
from concord_rtl.pipe.tap_walker import TapWalker, step_layout
from concord_rtl.pipe.writeback import Writeback
from concord_rtl.vector.mfu import Mfu
from concord_rtl.vector.reduce import Reduce


class ChainPipe(PipePorts):
    """Everything between chain descriptors and memories.

    Parameters
    ----------
    config : NpuConfig
    table_init, slot_init : list of int
        Initial contents of table memory and table descriptors.
    """

    narrow = Output(
        lambda self: VectorPort(vector_addr_bits(self.config), activations(self.config).word),
        "Narrow vector memory, with registered outputs.",
    )
    wide = Output(
        lambda self: VectorPort(vector_addr_bits(self.config), shape_of(self.config.wide_word)),
        "Wide vector memory, with registered outputs.",
    )
    matrix_addr = Output(lambda self: matrix_addr_bits(self.config), "Address in the matrix memory.")
    matrix_data = Input(
        lambda self: data.ArrayLayout(weights(self.config).word, self.config.rows),
        "Its word, from registered outputs.",
    )
    row = Output(
        lambda self: RowPort(self.config),
        "Rows of the matrix memory. Only with ``m_wr``.",
        when=lambda self: self.config.has(Op.M_WR),
    )
    tiles = Output(
        lambda self: TilePort(self.config),
        "Columns and rows of tiles of the matrix memory. Only with integer chains.",
        when=lambda self: self.config.has(Op.I_RUN),
    )
    integers = Input(
        lambda self: IntegerPort(self.config),
        "Words of integer chains, none while a chain is under way. Only with integer chains.",
        when=lambda self: self.config.has(Op.I_RUN),
    )
    integer_host = Input(
        lambda self: IntegerHost(),
        "Registers of integer chains for the host. Only with integer chains.",
        when=lambda self: self.config.has(Op.I_RUN),
    )
    reset_noise = Input(1, "Start of a run.")

    def __init__(self, config: NpuConfig, *, table_init=(), slot_init=()):
        self.config = config
        self.units = [Mfu(config, unit, table_init=table_init, slot_init=slot_init) for unit in range(2)]
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        config = self.config
        m.submodules.walker = walker = ChainWalker(config)
        m.submodules.wide_tracker = wide_tracker = HazardTracker(config)
        m.submodules.narrow_tracker = narrow_tracker = HazardTracker(config)
        m.submodules.operands = operands = OperandFetch(config)
        m.submodules.mvm = mvm = Mvm(config)
        m.submodules.launcher = launcher = Launcher(config, latency=mvm.LAUNCH_LATENCY)
        m.submodules.writeback = writeback = Writeback(config)
        wiring.connect(m, wiring.flipped(self.chains), walker.chains)
        source, gate, jobs = self._source(m, walker, wide_tracker, narrow_tracker, mvm, launcher, writeback)
        self._tokens(m, walker, launcher, writeback, operands, [jobs, wide_tracker.room, narrow_tracker.room])
        self._hazards(m, walker, wide_tracker, narrow_tracker, writeback, operands, gate)
        self._memories(m, source, operands, writeback)
        self._datapath(m, mvm, launcher, operands, writeback)
        self._progress(m, walker, writeback)
        m.d.comb += [
            self.events.dense_step.eq(source.dense_step),
            self.events.depthwise_step.eq(source.depthwise_step),
            self.events.chain.eq(self.chains.valid & self.chains.ready),
            self.events.vector.eq(self.retired.valid),
            self.events.stalled.eq(gate.stalled | operands.stalled),
            writeback.reset_noise.eq(self.reset_noise),
        ]
        if config.has(Op.I_RUN):
            self._integers(m, mvm, source)
        return m

    def _integers(self, m, mvm, source):
        """Integer chains, which have the memories and the tile engines for themselves: no other chain is under way."""
        m.submodules.engine = engine = IntegerEngine(
            self.config, product_latency=mvm.LATENCY, result_latency=timing.RESULT_QUEUE
        )
        reads, events = engine.reads, self.events
        wiring.connect(m, wiring.flipped(self.integers), engine.words)
        wiring.connect(m, wiring.flipped(self.integer_host), engine.host)
        wiring.connect(m, engine.tiles, wiring.flipped(self.tiles))
        m.d.comb += [
            engine.narrow_data.eq(self.narrow.read.data),
            engine.wide_data.eq(self.wide.read.data),
            engine.acc.eq(mvm.acc),
        ]
        with m.If(engine.active):
            m.d.sync += [
                self.narrow.read.en.eq(reads.narrow_en),
                self.narrow.read.addr.eq(reads.narrow_addr),
                self.wide.read.en.eq(reads.wide_en),
                self.wide.read.addr.eq(reads.wide_addr),
                self.matrix_addr.eq(reads.matrix_addr),
            ]
            m.d.comb += [
                source.free.eq(0),
                mvm.step.eq(reads.step),
                mvm.x.exp.eq(reads.exp + self.config.act_exp_min),
                mvm.launch.eq(reads.launch),
                *(
                    getattr(getattr(self, memory).write, name).eq(getattr(getattr(engine, memory), name))
                    for memory in ("narrow", "wide")
                    for name in ("en", "addr", "data")
                ),
                events.dense_step.eq(engine.dense_step),
                events.vector.eq(engine.vector),
            ]
        with m.If(engine.chain):
            m.d.comb += events.chain.eq(1)

    def _source(self, m, walker, wide_tracker, narrow_tracker, mvm, launcher, writeback):
        """Jobs to taps, taps to reads, reads to tile engines and source queue."""
        config = self.config
        m.submodules.gate = gate = HazardGate(config, memories=2, payload=step_layout(config))
        m.submodules.taps = taps = TapWalker(config, gate.request)
        m.submodules.source = source = SourceReader(
            config, slots=mvm.RESULT_SLOTS, places=WindowUnit.DEPTH, request=gate.o.p.shape()
        )
        m.submodules.job_queue = jobs = SyncFIFOBuffered(width=walker.job.shape().size, depth=timing.JOBS)
        m.d.comb += [jobs.w_en.eq(walker.issued & walker.with_job), jobs.w_data.eq(walker.job)]
        _drain(m, jobs, taps.jobs)
        m.submodules.tap_queue = tap_queue = SyncFIFO(width=gate.request.size, depth=timing.TAPS)
        m.d.comb += [tap_queue.w_en.eq(taps.o.valid & taps.o.ready), tap_queue.w_data.eq(taps.o.p)]
        m.d.sync += taps.o.ready.eq(tap_queue.w_level <= timing.TAPS - 2)
        _drain(m, tap_queue, gate.i)
        # The way back from the receivers of the reads ends at this register.
        m.submodules.reads = reads = RegisterSlice(gate.o.p.shape())
        wiring.connect(m, gate.o, reads.i)
        wiring.connect(m, reads.o, source.i)
        wiring.connect(m, source.queue, launcher.queue)
        m.d.comb += source.soon.eq(launcher.queue_soon)
        for index, (name, tracker) in enumerate((("narrow", narrow_tracker), ("wide", wide_tracker))):
            m.d.comb += [
                gate.entries[index].eq(tracker.entries),
                gate.head[index].eq(tracker.head),
                gate.pop[index].eq(getattr(writeback, f"{name}_done")[1]),
            ]
        step = source.coming
        m.d.comb += [
            source.free.eq(mvm.free),
            mvm.step.valid.eq(source.coming_valid),
            mvm.step.first.eq(step.first),
            mvm.step.last.eq(step.last),
            mvm.step.zero.eq(step.outside),
            mvm.step.depthwise.eq(step.depthwise),
            mvm.step.lane.eq(step.lane),
            mvm.step.part.eq(step.part),
            mvm.step.vectors.eq(step.vectors),
            mvm.x.eq(self.narrow.read.data),
            mvm.w.eq(self.matrix_data),
        ]
        if config.window_taps:
            self._window(m, source, mvm)
        return source, gate, jobs.w_level <= timing.JOBS - 2

    def _window(self, m, source, mvm):
        """Vectors of sliding products on their way to the tile engines."""
        m.submodules.window = window = WindowUnit(self.config)
        vector, word = window.i, self.narrow.read.data
        m.d.comb += [
            window.valid.eq(source.push),
            *(vector[name].eq(source.step[name]) for name in ("clears", "grows", "last", "outside")),
            vector.exp.eq(word.exp - self.config.act_exp_min),
            vector.mant.eq(word.mant),
            source.taken.eq(window.taken),
            source.done.eq(window.o.last),
            mvm.window.push.eq(window.push),
            mvm.window.copy.eq(window.copy),
            mvm.window.mant.eq(window.mant),
            mvm.window.step.eq(window.o),
        ]

    def _tokens(self, m, walker, launcher, writeback, operands, room):
        """Queues of tokens. A vector is issued when all receivers had room for two in the cycle before."""
        depth = self.config.inflight
        m.submodules.launch_queue = launch = SyncFIFOBuffered(width=walker.launch.shape().size, depth=depth)
        m.submodules.retire_queue = retire = SyncFIFOBuffered(width=walker.retire.shape().size, depth=depth)
        m.d.comb += [
            launch.w_data.eq(walker.launch),
            retire.w_data.eq(walker.retire),
            operands.i.eq(walker.fetch),
            *(enable.eq(walker.issued) for enable in (launch.w_en, retire.w_en, operands.push)),
        ]
        _drain(m, launch, launcher.tokens)
        _drain(m, retire, writeback.tokens)
        room = [*room, operands.room, launch.w_level <= depth - 2, retire.w_level <= depth - 2]
        m.d.sync += walker.enable.eq(Cat(room).all())

    def _hazards(self, m, walker, wide_tracker, narrow_tracker, writeback, operands, gate):
        for name, tracker in (("wide", wide_tracker), ("narrow", narrow_tracker)):
            m.d.comb += [
                tracker.push.eq(getattr(walker, f"push_{name}")),
                tracker.addr.eq(getattr(walker, f"{name}_addr")),
                getattr(walker, f"{name}_tail").eq(tracker.tail),
                tracker.pop.eq(getattr(writeback, f"{name}_done")[0]),
            ]
        m.d.comb += [
            operands.entries.eq(wide_tracker.entries),
            operands.head.eq(wide_tracker.head),
            operands.pop.eq(writeback.wide_done[2]),
        ]
        if self.config.has(Op.M_WR):
            m.d.comb += [walker.start.eq(self.reset_noise), walker.row_written.eq(writeback.row_done)]

    def _memories(self, m, source, operands, writeback):
        """Read ports: sources first, then operands. Write ports: the writeback alone."""
        wide_addr = Mux(source.wide_read, source.vector_addr, operands.addr)
        m.d.sync += [
            self.narrow.read.en.eq(source.narrow_read),
            self.narrow.read.addr.eq(source.vector_addr),
            self.wide.read.en.eq(source.wide_read | operands.read),
            self.wide.read.addr.eq(wide_addr),
            self.matrix_addr.eq(source.matrix_addr),
        ]
        m.d.comb += [
            operands.grant.eq(~source.wide_read),
            source.narrow_data.eq(self.narrow.read.data),
            source.wide_data.eq(self.wide.read.data),
            operands.wide_data.eq(self.wide.read.data),
        ]
        wiring.connect(m, writeback.narrow, wiring.flipped(self.narrow.write))
        wiring.connect(m, writeback.wide, wiring.flipped(self.wide.write))
        if self.config.has(Op.M_WR):
            wiring.connect(m, writeback.row, wiring.flipped(self.row))

    def _datapath(self, m, mvm, launcher, operands, writeback):
        """Fixed-latency part: reduction, two multifunction units, writeback; flags travel along.

        In front of the writeback, vectors that leave the first unit early meet the others.
        """
        m.submodules.reduce = reduce = Reduce(self.config)
        control, coming = launcher.control, launcher.coming
        m.d.comb += [
            mvm.launch.eq(launcher.result_launch),
            launcher.result_ready.eq(mvm.ready),
            launcher.result.eq(mvm.beat),
            launcher.available.eq(operands.available),
            operands.reserve.eq(launcher.reserve),
            reduce.i.eq(launcher.beat),
            reduce.valid.eq(coming.valid),
            reduce.first.eq(coming.head),
            reduce.ctrl.mode.eq(coming.mode),
            reduce.ctrl.start.eq(coming.start),
            reduce.ctrl.emit.eq(coming.emit),
            reduce.ctrl.skip.eq(coming.skip),
        ]
        from_result = control.valid & control.result
        half, acc = from_result & mvm.half_overflow, from_result & mvm.acc_overflow
        nonfinite, clamped = Const(0, 1), Const(0, 1)
        half, acc = (delay(m, value, reduce.LATENCY + 1, f"{name}_0") for name, value in (("half", half), ("acc", acc)))
        if self.config.has(Op.VV_SCALE):
            scaling = self.units[0].scaling
            half = half & ~scaling.on  # codes are rounded from the accumulators, not from their binary16 numbers
            units = delay(m, mvm.units, reduce.LATENCY + 1, "units")
            m.d.comb += scaling.units.eq(units)
        early_half, early_acc = (delay(m, value, timing.MFU_EARLY, "early_flag") for value in (half, acc))
        beats = data.View(reduce.o.shape(), register(m, reduce.o, "reduced"))
        valid = delay(m, reduce.o_valid, 1, "reduced_valid", reset_less=False)
        first = register(m, reduce.o_first, "reduced_first")
        valid_soon, first_soon = reduce.o_valid, reduce.o_first
        for number, unit in enumerate(self.units):
            m.submodules[f"mfu{number}"] = unit
            multiplies = self._controls(m, number, unit, launcher, valid_soon, first_soon)
            m.d.comb += [
                unit.i.eq(beats),
                unit.valid.eq(valid),
                unit.first.eq(first),
                unit.mul_operand.eq(operands.beat[2 * number]),
                unit.add_operand.eq(operands.beat[2 * number + 1]),
                operands.soon[2 * number].eq(valid_soon & multiplies),
                operands.soon[2 * number + 1].eq(unit.add_soon),
            ]
            self._tables(m, number, unit)
            half = delay(m, half, unit.LATENCY, f"half_{number + 1}") & unit.o_valid | unit.half_overflow
            acc = delay(m, acc, unit.LATENCY, f"acc_{number + 1}") & unit.o_valid
            nonfinite = delay(m, nonfinite, unit.LATENCY, f"nonfinite_{number + 1}") | unit.nonfinite
            clamped = delay(m, clamped, unit.LATENCY, f"clamped_{number + 1}") | unit.table_clamped
            beats, valid, first = unit.o, unit.o_valid, unit.o_first
            valid_soon, first_soon = unit.valid_soon, unit.first_soon
        early = self.units[0].early
        for lane in range(self.config.mfu_lanes):
            m.submodules[f"early_{lane}"] = is_early = KeptRegister(1)
            m.d.comb += is_early.i.eq(self.units[0].early_soon)
            m.d.sync += writeback.beat[lane].eq(Mux(is_early.o, early["values"][lane], beats[lane]))
        m.d.sync += [
            writeback.valid.eq(early.valid | valid),
            writeback.head.eq(early.valid & early.first | first),
            writeback.half_overflow.eq(early.valid & (early.half_overflow | early_half) | half),
            writeback.acc_overflow.eq(early.valid & early_acc | acc),
            writeback.nonfinite.eq(nonfinite),
            writeback.table_clamped.eq(clamped),
        ]

    def _controls(self, m, number, unit, launcher, valid_soon, first_soon) -> Value:
        """Controls of a unit wait in a queue for their vector, and in a register for all of its beats.

        Vectors that leave the first unit early have none in the queue of the second one.

        Returns whether the beat of the next cycle is multiplied, if there is one.
        """
        token = launcher.token
        first = {"early": 1, **scale_layout(self.config)} if number == 0 else {}
        layout = data.StructLayout({"unit": MFU_CTRL, **first})
        queue = SyncFIFOBuffered(width=layout.size, depth=self.config.inflight)
        m.submodules[f"controls{number}"] = queue
        begins = valid_soon & first_soon
        head: Any = Signal(layout, name=f"controls{number}_head")
        held: Any = Signal(layout, name=f"controls{number}_held")
        with m.If(begins):
            m.d.sync += held.eq(head)
        m.d.comb += [
            queue.w_en.eq(launcher.emitted & ~token.early if number else launcher.emitted),
            queue.w_data.eq(Cat(token[f"unit{number}"], *(token[name] for name in first))),
            queue.r_en.eq(begins),
            head.eq(queue.r_data),
            unit.ctrl.eq(held.unit),
            unit.leaves.eq(0 if number else held.early),
        ]
        if "scale" in first:
            m.d.comb += [unit.scaling.on.eq(held.scale), unit.scaling.shift.eq(held.shift)]
        return Mux(first_soon, head.unit.mul, held.unit.mul)

    def _tables(self, m, number, unit):
        """Both units hold the same tables; the host reads those of the first."""
        if number == 0:
            wiring.connect(m, wiring.flipped(self.tables), unit.tables)
            return
        for name in ("write", "slot_write"):
            wiring.connect(m, wiring.flipped(getattr(self.tables, name)), getattr(unit.tables, name))
        m.d.comb += [unit.tables.sel.eq(self.tables.sel), unit.tables.addr.eq(self.tables.addr)]

    def _progress(self, m, walker, writeback):
        """Vectors between issue and retirement."""
        under_way = Signal(range(4 * self.config.inflight + 1))
        m.d.sync += [
            under_way.eq(under_way + walker.issued - writeback.retired.valid),
            self.drained.eq(~self.chains.valid & ~walker.active & (under_way == 0)),
        ]
        wiring.connect(m, writeback.retired, wiring.flipped(self.retired))


def _drain(m, queue, target):
    """Connect the read side of a queue to a stream."""
    m.d.comb += [target.valid.eq(queue.r_rdy), target.p.eq(queue.r_data), queue.r_en.eq(target.ready)]
