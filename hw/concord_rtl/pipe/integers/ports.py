"""Connections of the integer engine with sequencer, pipe and host, each defined once."""

from __future__ import annotations

from amaranth import *
from amaranth.lib import data

from concord.spec import isa, timing
from concord.spec.config import NpuConfig, clog2
from concord.spec.integers import TENSOR_WORD
from concord.spec.isa import TENSOR_BITS, WORD_BITS, Op
from concord_rtl.mvm.mvm import control_layout
from concord_rtl.parts.component import Input, Interface, NpuInterface, Output
from concord_rtl.pipe.layouts import matrix_addr_bits, vector_addr_bits, window_layout


def _fields(op: Op, *names: str) -> dict[str, Shape]:
    """Fields of an instruction; all of them, if none is named."""
    layout = isa.FORMS[op].fields
    chosen = [layout[name] for name in names] or layout.fields
    return {field.name: Shape(field.width, field.signed) for field in chosen}


def loops_layout(config: NpuConfig) -> data.StructLayout:
    """State of the program that chains of both kinds share."""
    return data.StructLayout(
        {
            **_fields(Op.SET_SHAPE, "rows"),
            **_fields(Op.SET_ITERS, "inner", "outer"),
            "window": window_layout(config),
            **_fields(Op.SET_PAD, "y0", "x0", "step_y", "step_x"),
        }
    )


def number_bits(config: NpuConfig) -> int:
    """Bits of the number of a column or of a row of tiles."""
    words = config.matrix_depth
    return max(clog2(words * config.lanes), clog2(words // config.steps) + clog2(config.native))


def integer_layout(config: NpuConfig) -> data.StructLayout:
    """Layout of what ``i_`` words have set, addresses with their registers; ``run`` has the fields of ``i_run``."""

    def strides(bits: int) -> data.StructLayout:
        return data.StructLayout({"addr": bits, "row": bits, "inner": bits, "outer": bits})

    vector, matrix, number = vector_addr_bits(config), matrix_addr_bits(config), number_bits(config)
    return data.StructLayout(
        {
            "kind": 2,
            "source": strides(vector),
            "matrix": strides(matrix),
            "matrix_offset": matrix,
            "vector_step": vector,
            "vector_digit": vector,
            "matrix_step": matrix,
            "matrix_digit": matrix,
            **_fields(Op.I_TAPS, "digits", "of"),
            "operand_wide": 1,
            "operand": strides(vector),
            "target_wide": 1,
            "target": strides(vector),
            "column": strides(number),
            "tile_row": strides(number),
            "number_offset": number,
            **_fields(Op.I_PLANES, "count"),
            "target_digit": vector,
            "column_digit": number,
            "run": data.StructLayout(_fields(Op.I_RUN)),
        }
    )


class IntegerPort(NpuInterface):
    """Words for the integer engine, seen from the sequencer.

    Parameters
    ----------
    config : NpuConfig
    """

    execute = Output(1, "``word``, a ``t_`` or ``i_`` word, is executed; only when not ``busy``.")
    word = Output(WORD_BITS, "The word.")
    offset = Output(signed(isa.MATRIX_ADDR_BITS), "The address register that it names.")
    loops = Output(lambda self: loops_layout(self.config), "State that other words have set.")
    start = Output(1, "A run begins.")
    busy = Input(1, "Nothing may be executed: from the cycle after a word on that takes more than one.")
    trap = Input(1, "What is executed ends the run, while ``busy``.")


class IntegerHost(Interface):
    """Accesses of the host to registers of the integer engine, seen from the host; none while a program runs."""

    addr = Output(TENSOR_BITS, "Word of the region.")
    data = Output(TENSOR_WORD.width, "Word of a write.")
    write_tensor = Output(1, "Write a tensor register.")
    write_factor = Output(1, "Write a factor.")
    write_count = Output(1, "Write a counter of updates.")
    tensor = Input(TENSOR_WORD.width, "The tensor register at ``addr``, ``HOST_LATENCY`` cycles later.")
    count = Input(32, "The counter, likewise.")

    HOST_LATENCY = timing.COLUMN_MEMORY


class EngineReads(NpuInterface):
    """Reads of integer chains and their use by the tile engines, seen from the integer engine.

    Parameters
    ----------
    config : NpuConfig
    """

    narrow_en = Output(1, "The narrow memory is read.")
    narrow_addr = Output(lambda self: vector_addr_bits(self.config), "At this address.")
    wide_en = Output(1, "The wide memory is read.")
    wide_addr = Output(lambda self: vector_addr_bits(self.config), "At this address.")
    matrix_addr = Output(lambda self: matrix_addr_bits(self.config), "Word of the matrix memory that is read.")
    step = Output(lambda self: control_layout(self.config), "Step of the tile engines, two cycles after its reads.")
    exp = Output(lambda self: range(self.config.max_shift + 1), "Places by which it counts more, a cycle later.")
    launch = Output(1, "Take the result that waits.")
