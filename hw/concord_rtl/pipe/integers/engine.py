"""The integer engine: integer chains and the steps of tensor registers."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth import *
from amaranth.lib import data, wiring

from concord.spec.config import NpuConfig
from concord.spec.integers import DIGIT_BITS, DIGIT_HALF, SUM_BITS
from concord.spec.isa import DIGITS_MAX, OPCODE_BITS
from concord.spec.operations import TENSOR_OPS, Op
from concord.spec.training import TRAIN_EXP_BITS, TRAIN_EXP_MAX
from concord_rtl.arith.block_float import activations
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.memories.tile_port import TilePort
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.memory_ports import WritePort
from concord_rtl.parts.shapes import shape_of, view
from concord_rtl.parts.stages import delay, max_tree, register
from concord_rtl.pipe.integers.collector import ELEMENT_BITS, VectorCollector
from concord_rtl.pipe.integers.integer_lane import IntegerLane
from concord_rtl.pipe.integers.ports import EngineReads, IntegerHost, IntegerPort
from concord_rtl.pipe.integers.reader import IntegerReader
from concord_rtl.pipe.integers.state import IntegerState
from concord_rtl.pipe.integers.tensor_unit import TensorUnit
from concord_rtl.pipe.integers.update_counters import UpdateCounters
from concord_rtl.pipe.integers.update_stage import UpdateStage
from concord_rtl.pipe.integers.writer import IntegerWriter
from concord_rtl.pipe.layouts import vector_addr_bits


class IntegerEngine(Component):
    """Executes ``t_`` and ``i_`` words, one after the other (:mod:`concord.spec.integers`).

    While it is ``active`` the engine alone uses the vector memories, the matrix memory and the tile engines. Nothing
    stalls: a vector begins each ``interval`` of its chain, and the cycles of a chain follow from its loops
    (:func:`concord.spec.timing.integer_chain`).

    Parameters
    ----------
    config : NpuConfig
    product_latency, result_latency : int
        Cycles of the tile engines, as :class:`concord_rtl.pipe.integers.reader.IntegerReader` needs them.
    """

    words = Input(lambda self: IntegerPort(self.config), "Words of the program.")
    host = Input(lambda self: IntegerHost(), "Registers for the host.")
    reads = Output(lambda self: EngineReads(self.config), "Reads, and steps of the tile engines.")
    narrow_data = Input(lambda self: activations(self.config).word, "Narrow word of the read of three cycles ago.")
    wide_data = Input(lambda self: shape_of(self.config.wide_word), "Wide word, likewise.")
    acc = Input(
        lambda self: data.ArrayLayout(signed(self.config.acc_bits), self.config.mfu_lanes),
        "Accumulators of a launched result.",
    )
    narrow = Output(
        lambda self: WritePort(vector_addr_bits(self.config), activations(self.config).word), "Narrow words."
    )
    wide = Output(lambda self: WritePort(vector_addr_bits(self.config), shape_of(self.config.wide_word)), "Wide words.")
    tiles = Output(lambda self: TilePort(self.config), "Columns and rows of tiles.")
    active = Output(1, "A chain is under way: the memories and the tile engines belong to it.")
    dense_step = Output(1, "Strobe of a step of the tile engines, for a counter.")
    chain = Output(1, "Strobe of a chain, likewise.")
    vector = Output(1, "Strobe of a vector at its destination, but for those of growth.")

    def __init__(self, config: NpuConfig, *, product_latency: int, result_latency: int):
        self.config = config
        self.latencies = {"product_latency": product_latency, "result_latency": result_latency}
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        words = self._words(m)
        m.submodules.state = state = IntegerState(self.config)
        m.submodules.tensors = tensors = TensorUnit()
        m.submodules.reader = reader = IntegerReader(self.config, **self.latencies)
        m.submodules.writer = writer = IntegerWriter(self.config)
        m.submodules.update = update = UpdateStage(self.config)
        m.d.comb += [
            state.clear.eq(words.start),
            state.execute.eq(words.execute),
            state.word.eq(words.word),
            state.offset.eq(words.offset),
        ]
        self._tensor_steps(m, words, tensors)
        over, ends = Signal(), Signal()
        load, grows = self._phases(m, words, state.o.run, tensors, writer, update, over, ends)
        self._host(m, words, state.o.run, tensors, update, grows, tensors.updated & grows)
        m.d.comb += [
            reader.loops.eq(words.loops),
            reader.state.eq(self._copied(m, "reader_state", state.o)),
            reader.accumulators.eq(tensors.update.accumulators),
            reader.grows.eq(grows),
            reader.load.eq(load),
            reader.narrow_data.eq(self.narrow_data),
            reader.wide_data.eq(self.wide_data),
            reader.acc.eq(self.acc),
            writer.loops.eq(words.loops),
            writer.state.eq(self._copied(m, "writer_state", state.o)),
            writer.accumulators.eq(tensors.update.accumulators),
            writer.load.eq(load),
            self.dense_step.eq(reader.reads.step.valid),
        ]
        wiring.connect(m, reader.reads, wiring.flipped(self.reads))
        wiring.connect(m, writer.tiles, wiring.flipped(self.tiles))
        for port, own in ((self.narrow, writer.narrow), (self.wide, writer.wide)):
            m.d.sync += [port.en.eq(own.en), port.addr.eq(own.addr), port.data.eq(own.data)]
        results, valid, overs = self._lanes(m, state.o.run, tensors, reader, update.top, load)
        self._update(m, reader, tensors, update, results, valid, state.o.run.update)
        overs += self._collect(m, state.o, results, valid, update, writer, load, grows)
        self._watch(m, words, overs, over)
        return m

    @staticmethod
    def _copied(m, name, value) -> Value:
        """Copy of a value that stays for a chain, in a register near its user: wires from afar would be the longest."""
        m.submodules[name] = copy = KeptRegister(len(Value.cast(value)))
        m.d.comb += copy.i.eq(value)
        return copy.o

    def _words(self, m):
        """The words in registers of the engine's own, and its answer a cycle later, too: ``INTEGER_WAY``."""
        port = self.words
        words = IntegerPort(self.config).create(path=("own",))
        takes = Cat(port.word[:OPCODE_BITS] == op for op in (*TENSOR_OPS, Op.I_RUN)).any()
        begins = delay(m, port.execute & takes, 1, "begins", reset_less=False)
        m.d.sync += [words.execute.eq(port.execute), words.word.eq(port.word), words.offset.eq(port.offset)]
        m.d.comb += [
            words.loops.eq(port.loops),
            words.start.eq(port.start),
            port.busy.eq(begins | words.busy | delay(m, words.busy, 1, "answers", reset_less=False)),
            port.trap.eq(delay(m, words.trap, 1, "traps", reset_less=False)),
        ]
        return words

    def _tensor_steps(self, m, words, tensors):
        """Steps of tensor registers, as their words say."""
        with m.Switch(words.word[:OPCODE_BITS]):
            for op in TENSOR_OPS:
                with m.Case(op):
                    fields = view(op, words.word)
                    names = fields.shape().members.keys() & tensors.step.shape().members.keys()
                    m.d.comb += [tensors.start.eq(words.execute)]
                    m.d.comb += [tensors.step[name].eq(fields[name]) for name in sorted(names - {"op"})]
        m.d.comb += [tensors.step.op.eq(words.word[:OPCODE_BITS]), tensors.reset.eq(words.start)]

    def _phases(self, m, words, run, tensors, writer, update, over, ends):
        """A chain from its word to the tensor register that it changes; ``ends``: its last vector has been written."""
        names = ("begin", "load", "grows", "idle", "illegal")
        begin, load, grows, idle, illegal = (Signal(name=name) for name in names)
        own, change = tensors.update.exp, tensors.update.change_exp
        stuck = update.need & ~grows & (own == TRAIN_EXP_MAX)
        m.d.sync += illegal.eq(run.update & (_beyond_training(own) | _beyond_training(change) | stuck))
        m.d.comb += [
            begin.eq(words.execute & (words.word[:OPCODE_BITS] == Op.I_RUN)),
            self.chain.eq(begin),
            words.busy.eq(~idle | tensors.busy),
            words.trap.eq(tensors.trap | ends & (over | illegal)),
            tensors.factor_number.eq(run.factor),
            tensors.peak_tensor.eq(run.tensor),
            tensors.peak.eq(ends & run.peak & ~over),
            tensors.updated.eq(ends & run.update & ~(over | illegal)),
            tensors.grown.eq(grows),
            update.clear.eq(load),
            update.grows.eq(grows),
        ]
        with m.FSM(name="phase"):
            with m.State("IDLE"):
                m.d.comb += idle.eq(1)
                with m.If(begin):
                    m.d.sync += grows.eq(0)
                    m.next = "FACTOR"
            with m.State("FACTOR"):  # the mantissa of the factor comes, and what the tensor register has seen
                m.next = "LOAD"
            with m.State("LOAD"):
                m.d.comb += [load.eq(1), self.active.eq(1)]
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += self.active.eq(1)
                with m.If(writer.finished):
                    m.next = "END"
                    with m.If(run.update & update.need & ~(grows | over | illegal)):
                        m.d.sync += grows.eq(1)
                        m.next = "LOAD"
            with m.State("END"):  # the last words are written
                m.d.comb += [ends.eq(1), self.active.eq(1)]
                m.next = "IDLE"
        return load, grows

    def _host(self, m, words, run, tensors, update, grows, grown):
        """Registers and counters for the host."""
        host = self.host
        m.submodules.counters = counters = UpdateCounters(self.config)
        m.d.comb += [
            tensors.host_addr.eq(Mux(words.busy, run.tensor, host.addr)),
            host.tensor.eq(tensors.host_data),
            host.count.eq(counters.data),
            tensors.write.en.eq(host.write_tensor),
            tensors.write.addr.eq(host.addr),
            tensors.write.data.eq(host.data),
            tensors.factor_write.en.eq(host.write_factor),
            tensors.factor_write.addr.eq(host.addr),
            tensors.factor_write.data.eq(host.data),
            counters.addr.eq(host.addr),
            counters.w_en.eq(host.write_count),
            counters.w_data.eq(host.data),
            counters.refused.eq(Mux(grows, 0, update.refused)),
            counters.vanished.eq(Mux(grows, 0, update.vanished)),
            counters.grown.eq(grown),
        ]

    def _watch(self, m, words, overs, over):
        """Keeps a bit that is set if anything has left its range since the word was executed."""
        beyond = register(m, reduce(or_, overs), "beyond")
        with m.If(words.execute):
            m.d.sync += over.eq(0)
        with m.Elif(beyond & self.active):
            m.d.sync += over.eq(1)

    def _lanes(self, m, run, tensors, reader, weights_top, load):
        """Everything between source and destination, the greatest magnitude, and bits for what leaves its range."""
        results, magnitudes, overs = [], [], []
        controls = {
            "scale": run.scale,
            "factor": tensors.factor,
            "round0_on": run.round0,
            "round0": tensors.round0,
            "add": run.add,
            "moves": tensors.moves,
            "round1_on": run.round1,
            "round1": tensors.round1,
            "relu": run.relu,
            "mask": run.mask,
            "written": run.to_vector | run.to_column | run.to_row | run.update,
        }
        for p in range(self.config.mfu_lanes):
            m.submodules[f"lane{p}"] = lane = IntegerLane()
            beat = reader.o.elements[p]
            own = {name: self._copied(m, f"lane{p}_{name}", value) for name, value in controls.items()}
            m.d.comb += [
                lane.value.eq(beat.value),
                lane.operand.eq(beat.operand),
                lane.keep.eq(beat.keep),
                lane.valid.eq(reader.valid),
                lane.factor.eq(own.pop("factor").as_signed()),
                *(Value.cast(getattr(lane, name)).eq(value) for name, value in own.items()),
            ]
            results.append(lane.o)
            magnitudes.append(register(m, lane.magnitude, f"magnitude_{p}"))
            overs.append(lane.over)
        top = Signal(SUM_BITS - 1)
        latest = register(m, max_tree(m, magnitudes, "magnitudes"), "magnitude")
        with m.If(load):  # what the register has seen before counts as well
            m.d.sync += top.eq(tensors.host_data.top)
        with m.Elif(latest > top):
            m.d.sync += top.eq(latest)
        m.d.comb += tensors.top.eq(Mux(run.update, weights_top, top))
        overs.append(reader.valid & reader.o.beyond.any())
        return results, delay(m, reader.valid, IntegerLane.LATENCY, "result", reset_less=False), overs

    def _update(self, m, reader, tensors, update, results, valid, on):
        """Results as updates of the weights that were read with them."""
        m.d.comb += [
            update.first.eq(reader.valid & on),
            update.second.eq(valid & on),
            update.exp.eq(tensors.update.exp),
            update.change_exp.eq(tensors.update.change_exp),
            update.coarser.eq(tensors.update.coarser),
        ]
        for p, result in enumerate(results):
            beat, element = reader.o.elements[p], update.elements[p]
            m.d.comb += [
                element.weight.eq(beat.weight),
                element.acc.eq(beat.acc),
                update.changes[p].eq(result),
            ]

    def _collect(self, m, state, results, valid, update, writer, load, grows):
        """Vectors of results, or of new weights with their accumulators, for the writer.

        Returns bits for results that are beyond the words that they are written to.
        """
        m.submodules.collector = collector = VectorCollector(self.config)
        halves, above = Signal(ELEMENT_BITS), Signal(ELEMENT_BITS)  # those of all digits that are written; bits above
        with m.Switch(state.count):
            for count in range(2, DIGITS_MAX + 1):
                with m.Case(count):
                    m.d.sync += halves.eq(sum(DIGIT_HALF << DIGIT_BITS * p for p in range(count)))
                    m.d.sync += above.eq(-1 << DIGIT_BITS * count)
            with m.Default():
                m.d.sync += [halves.eq(0), above.eq(0)]
        run, beyond = state.run, []
        single = register(m, state.count == 1, "single")
        codes = register(m, ~run.update & (run.to_vector & ~state.target_wide | run.to_column | run.to_row), "codes")
        for p, result in enumerate(results):
            number = (result + Cat(halves, Const(0, 1)).as_signed())[:ELEMENT_BITS]
            m.d.sync += collector.i[p].eq(Mux(run.update, update.o[p].as_value(), number))
            high = result[self.config.act_mant - 1 :]
            least = high.all() & ~result[: self.config.act_mant - 1].any()
            wide = register(m, single & (high.any() & ~high.all() | least), f"wide_{p}")
            beyond.append(codes & collector.valid & (wide | (collector.i[p] & above).any()))
        m.d.sync += collector.valid.eq(Mux(state.run.update, update.o_valid, valid))
        m.d.comb += [
            collector.clear.eq(load),
            collector.shift.eq(writer.shift),
            writer.closes.eq(collector.closes),
            writer.ready.eq(collector.ready),
            writer.i.eq(collector.o),
            self.vector.eq(collector.ready & ~grows),
        ]
        return beyond


def _beyond_training(exp):
    """Bit that is set if an exponent has more bits than those of training."""
    high = exp[TRAIN_EXP_BITS - 1 :]
    return high.any() & ~high.all()
