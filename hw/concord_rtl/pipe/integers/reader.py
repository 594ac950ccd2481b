"""Sources and operands of integer chains."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data
from amaranth.lib.fifo import SyncFIFO

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.integers import SUM_BITS, WIDE_BITS
from concord.spec.operations import IntegerSource
from concord_rtl.arith.block_float import activations
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import shape_of
from concord_rtl.parts.stages import delay, register
from concord_rtl.pipe.integers.ports import EngineReads, integer_layout, loops_layout
from concord_rtl.pipe.integers.step_walker import StepWalker
from concord_rtl.pipe.integers.vector_loops import VectorLoops
from concord_rtl.pipe.layouts import position_shape, vector_addr_bits
from concord_rtl.pipe.loop_address import LoopAddress

#: Cycles of an interval in which the words of a vector are read: narrow operand, source, operand, the second words.
NARROW_OPERAND, SOURCE, OPERAND, SECOND_SOURCE, SECOND_OPERAND = range(5)
#: From the beginning of a vector without a product to the cycle in front of its first beat.
MEMORY_BEATS = timing.INTEGER_SOURCE


def beat_layout(config: NpuConfig) -> data.StructLayout:
    """Elements of a beat: the source, the operand, and a weight with its accumulator."""
    element = data.StructLayout(
        {
            "value": signed(SUM_BITS),
            "operand": signed(WIDE_BITS),
            "weight": signed(config.act_mant),
            "acc": signed(BINARY16_WIDTH),
            "keep": 1,
        }
    )
    return data.StructLayout({"elements": data.ArrayLayout(element, config.mfu_lanes), "beyond": config.mfu_lanes})


class IntegerReader(Component):
    """Reads the vectors of a chain at its interval, or has the tile engines make them, and gives their beats.

    Nothing stalls: the interval leaves room for all words. A beat per cycle, N/P cycles per vector.

    Parameters
    ----------
    config : NpuConfig
    product_latency : int
        Cycles from the vector of the last step of a product to its result.
    result_latency : int
        Cycles from the launch of a result to its first accumulators.
    """

    loops = Input(lambda self: loops_layout(self.config), "Loops and window of the chain, which stay.")
    state = Input(lambda self: integer_layout(self.config), "What it reads, likewise.")
    accumulators = Input(lambda self: vector_addr_bits(self.config), "From a word of weights to its accumulators.")
    grows = Input(1, "The chain goes over the weights once more: their accumulators alone are wide.")
    load = Input(1, "A chain begins; three cycles later its first vector.")
    reads = Output(lambda self: EngineReads(self.config), "Reads, steps of the tile engines, and launches.")
    narrow_data = Input(lambda self: activations(self.config).word, "Narrow word of the read of three cycles ago.")
    wide_data = Input(lambda self: shape_of(self.config.wide_word), "Wide word, likewise.")
    acc = Input(
        lambda self: data.ArrayLayout(signed(self.config.acc_bits), self.config.mfu_lanes),
        "Accumulators of a launched result.",
    )
    valid = Output(1, "A beat is there.")
    o = Output(
        lambda self: beat_layout(self.config),
        "The beat; ``beyond``: a sum, a weight or an accumulator that is out of range.",
    )

    def __init__(self, config: NpuConfig, *, product_latency: int, result_latency: int):
        self.config = config
        self.product_latency = product_latency
        self.result_latency = result_latency
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        state = self.state
        product, tick, loops = self._cadence(m)
        addresses = self._addresses(m, loops)
        ticks = [tick, *(delay(m, tick, k, f"tick{k}", reset_less=False) for k in range(1, SECOND_OPERAND + 1))]
        narrow_operand = (state.run.add | state.run.mask | state.run.update) & ~state.operand_wide
        wide_source = (state.kind == IntegerSource.WIDE) & ~self.grows
        wide_operand = state.run.add & state.operand_wide
        steps, launch = self._product(m, product, ticks, loops, addresses)
        self._reads(m, ticks, addresses, steps, narrow_operand, wide_source, wide_operand)
        early = delay(m, tick & ~product, MEMORY_BEATS, "memory_beats", reset_less=False)
        late = delay(m, launch, self.result_latency - 1, "product_beats", reset_less=False)
        first = Signal()  # the first beat is there in the next cycle, or in one from then on
        m.d.comb += first.eq(early | late)
        self._beats(m, product, first, ticks, narrow_operand)
        return m

    def _cadence(self, m):
        """A strobe at the beginning of each vector, and the loops."""
        run = self.state.run
        product = Signal()
        m.d.comb += product.eq(self.state.kind == IntegerSource.PRODUCT)
        m.submodules.loops = loops = VectorLoops(self.config)
        walking, cycle = Signal(), Signal(len(run.interval))
        ends = Signal()
        begins = delay(m, self.load, 2, "begins", reset_less=False)
        m.d.comb += ends.eq(walking & (cycle == run.interval - 1))
        with m.If(begins):
            m.d.sync += [walking.eq(1), cycle.eq(0)]
        with m.Elif(walking):
            m.d.sync += cycle.eq(Mux(ends, 0, cycle + 1))
            with m.If(ends & loops.last.all()):
                m.d.sync += walking.eq(0)
        m.d.comb += [loops.loops.eq(self.loops), loops.load.eq(self.load), loops.step.eq(ends)]
        return product, walking & (cycle == 0), loops

    def _addresses(self, m, loops):
        """Addresses of source, tiles and operand of the vector."""
        addresses: dict[str, Value] = {}
        for name, offset in (("source", 0), ("operand", 0), ("matrix", self.state.matrix_offset)):
            strides = self.state[name]
            m.submodules[name] = address = LoopAddress(len(strides.addr))
            m.d.comb += [
                address.load.eq(self.load),
                address.start.eq(strides.addr + offset),
                address.step.eq(loops.step),
                address.last.eq(loops.last[:2]),
                *(address.distances[k].eq(strides[level]) for k, level in enumerate(("row", "inner", "outer"))),
            ]
            addresses[name] = address.addr
        return addresses

    def _positions(self, m, loops):
        """Row and column of the image that the first tap of the vector meets."""
        y, x = Signal(position_shape(), name="y_start"), Signal(position_shape(), name="x_start")
        with m.If(self.load):
            m.d.sync += [y.eq(self.loops.y0), x.eq(self.loops.x0)]
        with m.Elif(loops.step & loops.last[0]):
            m.d.sync += x.eq(Mux(loops.last[1], self.loops.x0, x + self.loops.step_x))
            with m.If(loops.last[1]):
                m.d.sync += y.eq(y + self.loops.step_y)
        return y, x

    def _product(self, m, product, ticks, loops, addresses):
        """Steps of the tile engines, and the launch of results."""
        m.submodules.steps = steps = StepWalker(self.config)
        y, x = self._positions(m, loops)
        m.d.comb += [
            steps.loops.eq(self.loops),
            steps.state.eq(self.state),
            steps.load.eq(ticks[0] & product),
            steps.vector_start.eq(addresses["source"]),
            steps.matrix_start.eq(addresses["matrix"]),
            steps.y_start.eq(y),
            steps.x_start.eq(x),
        ]
        reads, control = self.reads, self.reads.step
        lead = timing.VECTOR_READ - 1  # control comes a cycle before the vector
        m.d.comb += [
            control.valid.eq(delay(m, steps.valid, lead, "step", reset_less=False)),
            control.first.eq(delay(m, steps.first, lead, "step_first")),
            control.last.eq(delay(m, steps.last, lead, "step_last", reset_less=False)),
            control.zero.eq(delay(m, steps.outside, lead, "step_zero")),
            control.part.eq(delay(m, steps.part, lead, "step_part")),
            reads.exp.eq(delay(m, steps.exp, lead + 1, "step_exp")),
        ]
        launch = delay(m, steps.last, timing.VECTOR_READ + self.product_latency, "launch", reset_less=False)
        m.d.comb += reads.launch.eq(launch)
        return steps, launch

    def _reads(self, m, ticks, addresses, steps, narrow_operand, wide_source, wide_operand):
        """Drives the enables and addresses of the reads in their cycles, see :data:`NARROW_OPERAND`."""
        reads, update = self.reads, self.state.run.update
        narrow_source = ticks[SOURCE] & (self.state.kind == IntegerSource.NARROW)
        second_operand = register(m, addresses["operand"] + 1, "second_operand")  # the next vector may begin then
        m.d.comb += [
            reads.narrow_en.eq(steps.valid | narrow_source | ticks[NARROW_OPERAND] & narrow_operand),
            reads.matrix_addr.eq(steps.matrix),
            reads.wide_en.eq(
                (ticks[SOURCE] | ticks[SECOND_SOURCE]) & wide_source
                | (ticks[OPERAND] | ticks[SECOND_OPERAND]) & wide_operand
                | ticks[OPERAND] & update
            ),
        ]
        with m.If(steps.valid):
            m.d.comb += reads.narrow_addr.eq(steps.vector)
        with m.Elif(narrow_source):
            m.d.comb += reads.narrow_addr.eq(addresses["source"])
        with m.Else():
            m.d.comb += reads.narrow_addr.eq(addresses["operand"])
        with m.If(ticks[SOURCE]):
            m.d.comb += reads.wide_addr.eq(addresses["source"])
        with m.Elif(ticks[SECOND_SOURCE]):
            m.d.comb += reads.wide_addr.eq(addresses["source"] + 1)
        with m.Elif(ticks[OPERAND]):
            m.d.comb += reads.wide_addr.eq(addresses["operand"] + Mux(update, self.accumulators, 0))
        with m.Else():
            m.d.comb += reads.wide_addr.eq(second_operand)

    def _words(self, m, ticks, first, narrow_operand):
        """Registers of the words that beats are made of: narrow source and operand, accumulators, wide halves."""
        narrow, wide = self.narrow_data.mant.as_value(), self.wide_data.as_value()

        def arrives(slot: int) -> Value:
            return delay(m, ticks[slot], timing.VECTOR_READ, f"arrives{slot}", reset_less=False)

        halves = {}
        slots = {"source": SOURCE, "operand": OPERAND, "second_source": SECOND_SOURCE, "second_operand": SECOND_OPERAND}
        for name, slot in slots.items():
            halves[name] = half = Signal(len(wide), name=name, reset_less=True)
            with m.If(arrives(slot)):
                m.d.sync += half.eq(wide)
        coming = Signal(len(narrow), reset_less=True)
        with m.If(arrives(SOURCE)):
            m.d.sync += coming.eq(narrow)
        m.submodules.operands = operands = SyncFIFO(width=len(narrow), depth=8)
        m.d.comb += [
            operands.w_en.eq(arrives(NARROW_OPERAND) & narrow_operand),
            operands.w_data.eq(narrow),
            operands.r_en.eq(first),
        ]
        source, operand, accs = (Signal(len(v), reset_less=True) for v in (narrow, narrow, wide))
        with m.If(first):
            m.d.sync += [source.eq(coming), operand.eq(operands.r_data), accs.eq(halves["operand"])]
        return source, operand, accs, halves

    def _beats(self, m, product, first, ticks, narrow_operand):
        """The beats of a vector in the cycles after ``first``; on the outputs a cycle later."""
        config, run, state = self.config, self.state.run, self.state
        lanes, beats, size = config.mfu_lanes, config.beats, config.act_mant
        source, operand, accs, halves = self._words(m, ticks, first, narrow_operand)
        beat, going = Signal(range(max(2, beats))), Signal()
        with m.If(first):
            m.d.sync += [going.eq(1), beat.eq(0)]
        with m.Elif(going):
            m.d.sync += [beat.eq(beat + 1), going.eq(beat != beats - 1)]
        valid = register(m, going, "valid")
        m.d.comb += self.valid.eq(valid)
        last_row = self._last_row(m, first)
        half = beats // 2
        second, within = beat >= half, Mux(beat >= half, beat - half, beat)[: max(1, (half - 1).bit_length())]
        wide = {
            name: Mux(second, halves[f"second_{name}"], halves[name]).word_select(within, lanes * WIDE_BITS)
            for name in ("source", "operand")
        }
        codes = {"source": source, "operand": operand}
        narrow = {name: word.word_select(beat, lanes * size) for name, word in codes.items()}
        acc = accs.word_select(beat, lanes * BINARY16_WIDTH)
        for p in range(lanes):
            o = self.o.elements[p]
            code = {name: word.word_select(p, size).as_signed() for name, word in narrow.items()}
            number = {name: word.word_select(p, WIDE_BITS).as_signed() for name, word in wide.items()}
            value = Signal(signed(SUM_BITS), name=f"value_{p}")
            with m.If(product):
                m.d.comb += value.eq(self.acc[p][:SUM_BITS].as_signed())
            with m.Elif(state.kind == IntegerSource.WIDE):
                m.d.comb += value.eq(number["source"])
            keep = ~last_row | (run.valid == 0) | (beat * lanes + p < run.valid)
            with m.Else():
                m.d.comb += value.eq(code["source"])
            high = self.acc[p][SUM_BITS - 1 :]
            sum_beyond = high.any() & ~high.all() | _is_least(self.acc[p][:SUM_BITS])
            own = acc.word_select(p, BINARY16_WIDTH)
            update_beyond = run.update & (_is_least(code["operand"]) | _is_least(own))
            m.d.sync += [
                o.value.eq(value),
                o.operand.eq(Mux(state.operand_wide, number["operand"], code["operand"])),
                o.weight.eq(code["operand"]),
                o.acc.eq(own),
                o.keep.eq(keep),
                self.o.beyond[p].eq(going & (product & sum_beyond | update_beyond)),
            ]

    def _last_row(self, m, first) -> Signal:
        """Bit that is set if the vector whose beats are there is the last one of its rows."""
        rows = self.loops.rows
        row = Signal.like(rows)
        last = Signal()
        with m.If(self.load):
            m.d.sync += row.eq(0)
        with m.Elif(first):
            m.d.sync += [row.eq(Mux(row == rows - 1, 0, row + 1)), last.eq(row == rows - 1)]
        return last


def _is_least(value):
    """Bit that is set if a number in two's complement is the one that the symmetric range does not have."""
    return value[-1] & ~value[:-1].any()
