"""Latencies and depths of the hardware that decide about cycles: its units and the model of cycles read them here.

Cycles if nothing else is said. What takes several parts is a function of the configuration.
"""

from __future__ import annotations

from concord.spec.config import NpuConfig, clog2
from concord.spec.integers import FACTOR_MANT_BITS
from concord.spec.isa import FORMS
from concord.spec.multipliers import paired
from concord.spec.operations import Op, PipelineStage

# Memories and queues ------------------------------------------------------------------------------------------------

#: From the address of a block RAM to its word, which is registered.
BLOCK_RAM = 2
#: From a write to a queue to the word at its other end: with a registered output, and without.
BUFFERED_QUEUE, QUEUE = 2, 1
#: From one side of a register slice to the other.
REGISTER_SLICE = 1

# Sequencer ----------------------------------------------------------------------------------------------------------

#: Of a decoder.
DECODER = 1
#: From a jump of the fetch unit to its first word: a cycle for the address, memory, decoder, queue.
FETCH_JUMP = 1 + BLOCK_RAM + DECODER + BUFFERED_QUEUE
#: From an ``end_loop`` to the first word of the next turn: the jump leaves a register.
LOOP_JUMP = 1 + FETCH_JUMP

# Arithmetic ---------------------------------------------------------------------------------------------------------

#: Of one product per multiplier, and of two that share one.
MULTIPLIER, PAIR_MULTIPLIER = 2, 4
#: Of the alignment to the grid.
ALIGN = 2
#: Of conversions to binary16.
ACC_TO_BINARY16, NARROW_TO_BINARY16 = 5, 3
#: Of sum and product of binary16 numbers.
BINARY16_ADD, BINARY16_MUL = 4, 4
#: Of codes of accumulators, and when the fraction is added: as sum and product, whose operands they use.
ACC_SCALE, SCALE_FRACTION = BINARY16_MUL + BINARY16_ADD, BINARY16_MUL
#: Of a table, and by how much its slot number comes before the argument.
TABLE, TABLE_SLOT_LEAD = 3 + BLOCK_RAM, 1
#: From the exponent of a block to a mantissa.
CONVERT = 4

# Chain pipe ---------------------------------------------------------------------------------------------------------

#: Jobs that wait between the walkers, and source reads that wait between tap walker and hazard gate.
JOBS, TAPS = 4, 4
#: Vectors that wait for their place in a window.
WINDOW_PLACES = 16
#: Registers of a hazard gate.
HAZARD_GATE = 3
#: From a read of a vector memory to its data: the pipe registers addresses on their way to the memories.
VECTOR_READ = 1 + BLOCK_RAM
#: By which a matrix word follows the vector, whose memory is nearer.
MATRIX_DELAY = 2
#: From the launch of a result to its first accumulators.
RESULT_QUEUE = 2
#: Of a multifunction unit, and from a beat to its operands.
MUL_OFFSET = 0
ADD_OFFSET = MUL_OFFSET + BINARY16_MUL
ACT_OFFSET = ADD_OFFSET + BINARY16_ADD
MFU = ACT_OFFSET + TABLE + 1
#: From a beat at the first unit to its result in front of the tables, from where vectors that need neither a table nor
#: the second unit leave at once; and of the register in which they meet the others.
MFU_EARLY, MFU_MERGE = ACT_OFFSET + 1, 1


def operand_places(config: NpuConfig) -> int:
    """Vectors that wait at each operand port: at most what one column of distributed memory holds."""
    return min(16, config.inflight)


def source_places(config: NpuConfig) -> int:
    """Vectors that wait in the source queue."""
    return min(8, config.inflight)


def result_places(config: NpuConfig) -> int:
    """Jobs that the result queue holds; it is made of flip-flops with N = 4.

    A job of a sliding product holds its place from the first vector of its window on, long before its first step.
    """
    return 2 if config.native == 4 else 16 if config.window_taps else 8


def max_tree(count: int) -> int:
    """Registers on the way through a tree of maxima: a quarter of the values is left after each."""
    return (clog2(count) + 1) // 2


def product_latency(config: NpuConfig) -> int:
    """Cycles from the operands of a row to the dot product of its lanes."""
    return (PAIR_MULTIPLIER if paired(config) else 1 + MULTIPLIER) + clog2(config.lanes)


def sum_latency(config: NpuConfig) -> int:
    """Cycles from the operands of a row to the sum that includes them."""
    return product_latency(config) + ALIGN + 1


def launch_latency() -> int:
    """Cycles from the launch of a vector to its first beat at the reduction unit."""
    return RESULT_QUEUE + ACC_TO_BINARY16


def mfu_latency(early: bool) -> int:
    """Cycles of the multifunction units, for vectors that leave early and for the others."""
    return (MFU_EARLY if early else 2 * MFU) + MFU_MERGE


def reduce_latency(config: NpuConfig) -> int:
    """Cycles of the reduction unit."""
    return 2 + max_tree(config.mfu_lanes)


def quantizer_latency(config: NpuConfig) -> int:
    """Cycles from the last beat of a vector to its narrow word."""
    return 1 + CONVERT + max_tree(config.mfu_lanes) + config.beats


# Feeder ---------------------------------------------------------------------------------------------------------------

#: From the address of an element's last byte to its number, and to that of the code book for it: memories, a register.
FEEDER_NUMBER = BLOCK_RAM + 1
FEEDER_CODE = 2 * BLOCK_RAM + 1
#: From the number of a vector's last element to the strobe that ends the vector.
FEEDER_END = 1
#: From that strobe to the first elements at the converter: they are taken over, and leave a register.
FEEDER_PLAY = 2


def feeder_lanes(config: NpuConfig) -> int:
    """Elements that the feeder converts at a time."""
    return min(2, config.native)


def feeder_beats(config: NpuConfig) -> int:
    """Cycles in which it takes those of a vector."""
    return config.native // feeder_lanes(config)


def feeder_close(coded: bool) -> int:
    """Cycles from the one in which no element of a vector is left to the strobe that ends it."""
    return FEEDER_END + (FEEDER_CODE if coded else FEEDER_NUMBER)


def feeder_convert(config: NpuConfig) -> int:
    """Cycles from the strobe that ends a vector of numbers to its word."""
    return FEEDER_PLAY + CONVERT + feeder_beats(config)


# External memory ------------------------------------------------------------------------------------------------------

#: From the word of a copy to the refresh that it begins with, and from the last column, read or written, to the next
#: word.
COPY_BEGIN, COPY_END, COPY_SENT = 1, 2, 1
#: From the address of a word of a vector memory to the word, and from the last column of a word that a copy writes to
#: the first one of the next word.
VECTOR_WORD = BLOCK_RAM
VECTOR_COLUMN = 1 + VECTOR_WORD


def copy_settle(config: NpuConfig) -> int:
    """Cycles from the refresh of a copy to its first column: enough for a refresh that has just begun, and its own.

    An access of the host that has begun is over by then, too.
    """
    memory = config.sdram_timing
    return 2 * memory.rfc + memory.rp + memory.ras + memory.wr + 8


# Element-serial pipe ------------------------------------------------------------------------------------------------

#: From an address to the word of a memory of columns.
COLUMN_MEMORY = 1
#: From a word to the next one: its address, the program memory, the address registers.
SERIAL_WORD = 3
#: From an address at a vector memory to its data, and from the address of an operand, which has to be looked up, to the
#: register in front of the operations.
SERIAL_MEMORY = 1
SERIAL_OPERAND = COLUMN_MEMORY + SERIAL_MEMORY + 1
#: Of the placement on the grid.
GRID_SHIFT = MULTIPLIER + 1
#: From a term to the sum that includes it, and from the last operands of a product.
SERIAL_TERM = GRID_SHIFT + 1
SERIAL_SUM = MULTIPLIER + SERIAL_TERM
#: From the address of an element of a source to the one in which the result changes.
SERIAL_READ = SERIAL_MEMORY + NARROW_TO_BINARY16 + 1
#: From the address of one outside the image to the cycle in which it is left out.
SERIAL_OUTSIDE = 1
#: Of products, sums and tables in a stage of the multifunction units.
SERIAL_MUL = SERIAL_OPERAND + BINARY16_MUL
SERIAL_ADD = SERIAL_OPERAND + SERIAL_TERM + ACC_TO_BINARY16
SERIAL_TABLE = TABLE_SLOT_LEAD + TABLE + 1
#: From the number of an element to its narrow code.
SERIAL_VECTOR_END = COLUMN_MEMORY + CONVERT


def serial_cycles(op: Op) -> int:
    """Cycles from the beginning of a stage of the multifunction units to the cycle in which the result changes.

    It is the same cycle where the result follows from the element alone.
    """
    cycles = {PipelineStage.MUL0: SERIAL_MUL, PipelineStage.ADD0: SERIAL_ADD}
    return SERIAL_TABLE if op is Op.V_TBL else cycles.get(FORMS[op].stages[0], 0)


# Integer chains -----------------------------------------------------------------------------------------------------

#: Of a rounding of magnitudes.
MAGNITUDE_ROUNDER = 4
#: From the source of an element to its magnitude after the sum: the product with the factor and a sum of its two
#: parts, the magnitude, a rounding, the choice of who moves to the left, both moves, a term, the sum, its magnitude.
INTEGER_PEAK = MULTIPLIER + 1 + 1 + MAGNITUDE_ROUNDER + 1 + 2 + 1 + 1 + 1
#: From there to the result: a rounding, the sign.
INTEGER_LANE = INTEGER_PEAK + MAGNITUDE_ROUNDER + 1
#: Of words on their way to the integer engine, and of its answer that they have been executed or have trapped: the
#: sequencer is on the other side of the device.
INTEGER_WAY = 1 + 1
#: From the start of a step of the tensor registers to the next one: words that are read, their register, two stages for
#: the place of the first one, how many bits there are above, a rounding, the write.
TENSOR_STEP = COLUMN_MEMORY + 1 + 2 + 1 + MAGNITUDE_ROUNDER + 1
#: Of ``t_scale``, which multiplies bit by bit.
TENSOR_SCALE = TENSOR_STEP + FACTOR_MANT_BITS
#: Of both passes of a lazy update.
LAZY_UPDATE, LAZY_GROWTH = 9, 5
#: From the word of an integer chain to the beginning of its loops, from there to its first vector, and from the end of
#: its last interval to the next word.
INTEGER_BEGIN, INTEGER_LOOPS, INTEGER_END = 2, 3, 2
#: From the beginning of a vector that is read to the cycle in front of its first beat.
INTEGER_SOURCE = 6
#: From the last beat of a vector to its first word at a memory.
INTEGER_COLLECT = 3


def integer_result(config: NpuConfig) -> int:
    """Cycles from the last step of a product to the cycle before the first beat of its result."""
    return VECTOR_READ + MATRIX_DELAY + sum_latency(config) + 1 + RESULT_QUEUE - 1
