"""Names and numbers of the instruction set: operation codes, memories, modes, traps and stages of the pipe."""

from __future__ import annotations

from enum import IntEnum


class Op(IntEnum):
    """Operation codes. Code 0 is illegal, so that empty memory traps."""

    HALT = 0x01
    NOP = 0x02
    FENCE = 0x03
    LOOP = 0x04
    END_LOOP = 0x05
    SET_ADDR = 0x06
    INC_ADDR = 0x07
    SET_SHAPE = 0x08
    SET_ITERS = 0x09
    SET_WINDOW = 0x0A
    SET_PAD = 0x0B
    SET_QUANT = 0x0C
    SET_SCALE = 0x0D
    COPY = 0x0E
    V_COPY = 0x0F
    V_RD = 0x10
    MV_MUL = 0x11
    V_MAX = 0x12
    V_REDMAX = 0x13
    VV_MUL = 0x18
    VV_ADD = 0x19
    VV_SUB = 0x1A
    VV_RSUB = 0x1B
    VV_MAX = 0x1C
    VV_MIN = 0x1D
    VV_SCALE = 0x1E
    V_RELU = 0x20
    V_TBL = 0x21
    V_WR = 0x28
    M_WR = 0x29
    T_SET = 0x30
    T_MUL = 0x31
    T_FIT = 0x32
    T_SCALE = 0x33
    T_ADD = 0x34
    T_BIAS = 0x35
    T_UPD = 0x36
    I_PLANES = 0x37
    I_SRC = 0x38
    I_MAT = 0x39
    I_TAPS = 0x3A
    I_OPD = 0x3B
    I_DST = 0x3C
    I_COL = 0x3D
    I_ROW = 0x3E
    I_RUN = 0x3F


#: Steps of tensor registers, and parts of integer chains.
TENSOR_OPS = (Op.T_SET, Op.T_MUL, Op.T_FIT, Op.T_SCALE, Op.T_ADD, Op.T_BIAS, Op.T_UPD)
INTEGER_STATE_OPS = (Op.I_PLANES, Op.I_SRC, Op.I_MAT, Op.I_TAPS, Op.I_OPD, Op.I_DST, Op.I_COL, Op.I_ROW)
INTEGER_OPS = (*TENSOR_OPS, *INTEGER_STATE_OPS, Op.I_RUN)
#: Copies from and to the external memory.
COPY_OPS = (Op.COPY, Op.V_COPY)
#: Parameters of a configuration without which it does not have operations; it has all others.
NEEDS: dict[int, str] = {
    **dict.fromkeys((Op.SET_SCALE, Op.VV_SCALE), "code_scaling"),
    Op.M_WR: "writable_matrix",
    **dict.fromkeys((Op.COPY, Op.V_COPY), "dram"),
    **dict.fromkeys(INTEGER_OPS, "integer_chains"),
}
#: Operations that may end a chain.
WRITE_OPS = (Op.V_WR, Op.M_WR)


class Mem(IntEnum):
    """Vector memories as encoded in ``v_rd`` and ``v_wr``."""

    NARROW = 0
    WIDE = 1


class IntegerSource(IntEnum):
    """Source of the integers of an integer chain, as encoded in ``i_src``."""

    NARROW = 0  #: a narrow vector
    WIDE = 1  #: two wide words, 32 bits an element
    PRODUCT = 2  #: tiles of the matrix memory times narrow vectors


class MvMode(IntEnum):
    """Modes of ``mv_mul``."""

    DENSE = 0
    DEPTHWISE = 1


class Trap(IntEnum):
    """Reason for which the core stopped. Code 0 means it did not trap."""

    NONE = 0
    BAD_OPCODE = 1  #: no such operation code, or a reserved bit is set
    BAD_FIELD = 2  #: a field has a value that is not allowed
    CHAIN_ORDER = 3  #: an instruction stands where no chain, or no longer a chain, can take it
    LOOP_STACK = 4  #: too many nested loops, or an end_loop without a loop
    PC_RANGE = 5  #: the program ran past the end of the instruction memory
    INTEGER_RANGE = 6  #: an integer, or the exponent of a tensor, left the range that integer chains have
    NO_DRAM = 7  #: a copy where the external memory does not work


class PipelineStage(IntEnum):
    """Stages of the chain pipe; within a chain they only ever increase."""

    READ = 0
    REDUCE = 1  #: mv_mul, v_max, v_redmax
    MUL0 = 2
    ADD0 = 3
    ACT0 = 4
    MUL1 = 5
    ADD1 = 6
    ACT1 = 7
    WRITE = 8


#: Operand ports of a chain in the order in which a vector meets them.
OPERANDS = ("mul0", "add0", "mul1", "add1")
#: Everything of a chain that has an address in a vector memory.
ADDRESSED = ("source", *OPERANDS, "wide", "narrow")
