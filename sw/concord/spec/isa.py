"""The instruction set, defined once: decoder, assembler, disassembler, emulator and reference page all read it.

A program is a sequence of 64-bit words. *Control* instructions set state or loop; *chain* instructions describe one
trip along the pipe, from ``v_rd`` to the last ``v_wr``. The last instruction of a chain carries ``last = 1``.
Programs have no branches, so every address they will ever touch is known before they run.

A chain runs these loops, in this order (names as in the instructions)::

    for o in range(outer):
        for i in range(inner):
            for r in range(rows):
                source -> [mv_mul | pooling] -> MFU 0 -> MFU 1 -> destinations     # one native vector

and every address is ``addr + areg[reg] + r*row + i*inner + o*outer`` (modulo 2**14), ``areg[0]`` being always 0. The
address registers are read when the chain is dispatched.

With ``mv_mul`` or ``v_max`` / ``v_redmax`` a window of ``kh * kw`` taps is walked for every vector, for ``ky``, for
``kx``::

    source address += ky*stride_y + kx*stride_x (+ c for the c-th of ``cols`` columns of a dense product)

A tap whose position ``(y0 + o*step_y + ky*dil_y, x0 + i*step_x + kx*dil_x)`` lies outside ``height * width`` (when
``height`` is not 0) reads as zero for ``mv_mul`` and is left out of a maximum.

Rows g*T .. g*T + T-1 of a dense product are a group: they share the source of the first of them (address
``g*T*row + ...``), which is read once, before any of them is written. Everything else is read and written vector by
vector: operands of a row have seen what the row before has written.

Matrix addresses (words of T*N rows by L columns), g = r // T::

    dense      matrix + (((g*kh + ky)*kw + kx)*cols + c) * (N/L) + slice
    depthwise  matrix + r*ceil(kh*kw / L) + tap // L, weights of a tap in lane tap % L, rows of engine 0
    sliding    matrix, weights of a tap in the lane that :mod:`concord.spec.windows` says, rows of engine 0

``vv_scale`` makes whole numbers of the accumulators of ``mv_mul`` in place of binary16 numbers of their values
(:mod:`concord.golden.scale`): it reads a vector of factors at its address and one of fractions at the next. It follows
``mv_mul`` directly, and takes the multiplication and the addition of unit 0. Configurations without ``code_scaling``
have neither it nor ``set_scale``.

``m_wr`` writes vectors into the matrix memory, each as a row of a tile: an output row of a dense product that reads the
tile is then the dot product with that vector. Vectors are converted as for the narrow memory, to the format of weights.
``reg``, ``row``, ``inner`` and ``outer`` count rows from the first one of the tile at ``matrix``::

    q = areg[reg] + r*row + i*inner + o*outer                        (areg signed; the row is modulo 2**24)
    row q % (T*N) of all N/L words of the tile at  matrix + q // (T*N) * (N/L)

A product waits for the rows that chains before it have written, and must not read words that its own chain writes.
Configurations without ``writable_matrix`` have no ``m_wr``.

``copy`` waits until every chain has been written and the copy before it is over. The next instruction starts when the
copy is over, or at once with ``ahead``: then ``fence``, ``halt``, the next copy and instructions of training wait for
it. It reads ``rows`` rows of tiles one after the other from column ``64 * (dram + register)`` of the external memory on
(modulo ``2**18`` units). A row is a column with its exponent, minus ``wgt_exp_min``, followed by its N mantissas: two a
column, the first in the low byte, where they have at most 8 bits, else one a column. Row q of them becomes
row q % (T*N) of all N/L words of the tile at  matrix + q // (T*N) * (N/L).

``v_copy`` waits as ``copy`` does, and the next instruction starts when it is over. It copies ``count`` vectors that
follow each other from the external memory to a vector memory, or back with ``out``: from vector ``addr`` on there
(modulo ``2**14``), and from column ``16 * (dram + register)`` on in the external memory (modulo ``2**20`` units, the
register signed). A vector takes as many columns as its word needs, the low bits of the word in the first of them; what
is left of the last column is zero.

Configurations without ``dram`` have no ``copy`` and no ``v_copy``; without a working memory both trap with ``NO_DRAM``.

Configurations with ``integer_chains`` have instructions ``t_`` and ``i_`` for training: :mod:`concord.spec.integers`
says what they mean.

In depthwise mode row n of the result is the sum over taps of weight[n, tap] * x[n]; ``cols`` is not used, unless
windows slide: then it is the number of columns of a window that the one before in the inner loop had not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from concord.spec.fields import Field, Layout
from concord.spec.formats import BLOCK_ROUNDINGS, SCALE_SHIFT_BITS, ExponentMode
from concord.spec.operations import IntegerSource as IntegerSource
from concord.spec.operations import Mem as Mem
from concord.spec.operations import MvMode as MvMode
from concord.spec.operations import Op as Op
from concord.spec.operations import PipelineStage as PipelineStage
from concord.spec.operations import Trap as Trap

WORD_BITS = 64
OPCODE_BITS = 6
#: Address bits of the vector memories and of the matrix memory.
VECTOR_ADDR_BITS = 14
MATRIX_ADDR_BITS = 18
ADDR_REG_BITS = 3
#: Bits of the number of a row of the matrix memory, counted tile by tile.
MATRIX_ROW_BITS = 24
#: Bits of the number of a tensor register and of its exponent, and of the number of a factor register.
TENSOR_BITS, TENSOR_EXP_BITS, FACTOR_BITS = 6, 10, 3
#: Digits of base 128 that 32 bits have.
DIGITS_MAX = 5
#: Bits by which the point of accumulators lies below that of weights, and by how many it may be less.
ACCUMULATOR_POINT, COARSER_MAX = 15, 5
#: Columns of the external memory that the address of a copy counts, and bits of its number of rows.
COPY_UNIT, COPY_ROWS_BITS = 64, 16
#: Columns that the address of a copy of vectors counts, and bits of the address.
VECTOR_UNIT, VECTOR_UNIT_BITS = 16, 20
#: Address registers; register 0 reads as zero and cannot be written.
ADDR_REGS = 1 << ADDR_REG_BITS


@dataclass(frozen=True)
class Instruction:
    """One row of the instruction table.

    Parameters
    ----------
    op : Op
        Operation code.
    fields : Layout
        Fields above the operation code. Bits above the last field are reserved and must be zero.
    doc : str
        One line for the reference page.
    stages : tuple of PipelineStage
        Pipeline stages it can occupy, for chain instructions; the ``unit`` field chooses among two.
    least : dict
        Least allowed value of a field, where it is not the field's own; below it ``BAD_FIELD``.
    most : dict
        Greatest allowed value, likewise.
    """

    op: Op
    fields: Layout
    doc: str
    stages: tuple[PipelineStage, ...] = ()
    least: tuple[tuple[str, int], ...] = ()
    most: tuple[tuple[str, int], ...] = ()

    @property
    def mnemonic(self) -> str:
        """Name in assembly text."""
        return self.op.name.lower()

    @property
    def is_chain(self) -> bool:
        """True if the instruction belongs to a chain."""
        return bool(self.stages)

    @property
    def layout(self) -> Layout:
        """The whole word: operation code, fields, reserved bits."""
        used = OPCODE_BITS + self.fields.width
        pad = (Field("reserved", WORD_BITS - used, doc="must be zero"),) if used < WORD_BITS else ()
        return Layout((Field("op", OPCODE_BITS), *self.fields.fields, *pad))


_LAST = Field("last", 1, doc="ends the chain")
_REG = Field("reg", ADDR_REG_BITS, doc="address register added to addr")
_ADDR = Field("addr", VECTOR_ADDR_BITS, doc="vector address")
_STRIDES = (
    Field("row", 12, True, doc="address step per row"),
    Field("inner", 13, True, doc="address step per inner iteration"),
    Field("outer", 14, True, doc="address step per outer iteration"),
)
_MEM = Field("mem", 1, doc="0 narrow, 1 wide")
_UNIT = Field("unit", 1, doc="multifunction unit")
_VECTOR = Layout((_LAST, _MEM, _REG, _ADDR, *_STRIDES))
_OPERAND = Layout((_LAST, _UNIT, _REG, _ADDR, *_STRIDES))
_VECTOR_PAIR = Layout((_LAST, _REG, _ADDR, *_STRIDES))
_PLAIN = Layout((_LAST,))
_RESULT = Field("z", TENSOR_BITS, doc="tensor register of the result")
_X = Field("x", TENSOR_BITS, doc="tensor register")
_Y = Field("y", TENSOR_BITS, doc="tensor register")
_EXP = Field("exp", TENSOR_EXP_BITS, True, doc="exponent")
_FACTOR = Field("factor", FACTOR_BITS, doc="factor register")
_TILED = (
    Field("first", 21, doc="number of the first column or row, counted from that of tile 0"),
    Field("row", 12, True, doc="columns or rows per row of vectors"),
    Field("inner", 12, True, doc="columns or rows per inner iteration"),
    Field("outer", 13, True, doc="columns or rows per outer iteration"),
)


def _lay(*fields: Field) -> Layout:
    return Layout(fields)


INSTRUCTIONS: tuple[Instruction, ...] = (
    Instruction(Op.HALT, _lay(), "Wait until every chain has been written, then stop: the program is done."),
    Instruction(Op.NOP, _lay(), "Do nothing."),
    Instruction(Op.FENCE, _lay(), "Wait until every chain has been written."),
    Instruction(
        Op.LOOP,
        _lay(Field("count", 16, doc="times the body runs")),
        "Start of a loop.",
        least=(("count", 1),),
    ),
    Instruction(Op.END_LOOP, _lay(), "End of the innermost loop."),
    Instruction(
        Op.SET_ADDR,
        _lay(_REG, Field("value", MATRIX_ADDR_BITS, doc="new value")),
        "Set an address register.",
        least=(("reg", 1),),
    ),
    Instruction(
        Op.INC_ADDR,
        _lay(_REG, Field("step", MATRIX_ADDR_BITS, True, doc="added, modulo 2**18")),
        "Add to an address register.",
        least=(("reg", 1),),
    ),
    Instruction(
        Op.SET_SHAPE,
        _lay(
            Field("rows", 10, doc="output vectors per position"),
            Field("cols", 10, doc="input vectors per tap (column tiles); new columns per window of a sliding product"),
        ),
        "Rows and columns, in native vectors, of the chains that follow.",
        least=(("rows", 1), ("cols", 1)),
    ),
    Instruction(
        Op.SET_ITERS,
        _lay(Field("inner", 14, doc="inner iterations"), Field("outer", 14, doc="outer iterations")),
        "Iteration counts of the chains that follow.",
        least=(("inner", 1), ("outer", 1)),
    ),
    Instruction(
        Op.SET_WINDOW,
        _lay(
            Field("kh", 6, doc="window height"),
            Field("kw", 6, doc="window width"),
            Field("stride_y", 14, True, doc="address step per window row"),
            Field("stride_x", 14, True, doc="address step per window column"),
            Field("dil_y", 5, doc="position step per window row"),
            Field("dil_x", 5, doc="position step per window column"),
        ),
        "Two-dimensional window of the products and maxima that follow.",
        least=(("kh", 1), ("kw", 1), ("dil_y", 1), ("dil_x", 1)),
    ),
    Instruction(
        Op.SET_PAD,
        _lay(
            Field("y0", 8, True, doc="position of the first window row: minus the top padding"),
            Field("x0", 8, True, doc="position of the first window column: minus the left padding"),
            Field("step_y", 5, doc="position step per outer iteration"),
            Field("step_x", 5, doc="position step per inner iteration"),
            Field("height", 12, doc="rows of the image; 0 switches the check off"),
            Field("width", 12, doc="columns of the image"),
        ),
        "Image bounds that decide which taps read as zero.",
    ),
    Instruction(
        Op.SET_QUANT,
        _lay(
            Field("mode", 1, doc="0 dynamic, 1 static exponent"),
            Field("exp", 8, True, doc="static exponent"),
            Field("rounding", 2, doc="0 nearest even, 1 nearest away, 2 stochastic"),
        ),
        "Conversion to narrow of the chains that follow.",
        most=(("rounding", max(BLOCK_ROUNDINGS)),),
    ),
    Instruction(
        Op.SET_SCALE,
        _lay(Field("shift", SCALE_SHIFT_BITS, doc="bits by which products of accumulators and factors move down")),
        "Shift of the ``vv_scale`` of the chains that follow.",
    ),
    Instruction(
        Op.COPY,
        _lay(
            Field("reg", ADDR_REG_BITS, doc="address register added to ``dram``"),
            Field("dram", MATRIX_ADDR_BITS, doc="first column in the external memory, in units of 64 columns"),
            Field("matrix", MATRIX_ADDR_BITS, doc="first word of a tile in the matrix memory, a multiple of N/L"),
            Field("rows", COPY_ROWS_BITS, doc="rows of tiles"),
            Field("ahead", 1, doc="1: the next instruction starts while the copy goes on"),
        ),
        "Wait until chains and copies are over, then copy rows of tiles from the external to the matrix memory.",
        least=(("rows", 1),),
    ),
    Instruction(
        Op.V_COPY,
        _lay(
            Field("reg", ADDR_REG_BITS, doc="address register added to ``dram``"),
            Field("dram", VECTOR_UNIT_BITS, doc="first column in the external memory, in units of 16 columns"),
            Field("addr", VECTOR_ADDR_BITS, doc="first vector in the vector memory"),
            Field("count", VECTOR_ADDR_BITS, doc="vectors"),
            Field("mem", 1, doc="0 narrow, 1 wide"),
            Field("out", 1, doc="0 from the external memory, 1 to it"),
        ),
        "Wait until chains and copies are over, then copy vectors between the external and a vector memory.",
        least=(("count", 1),),
    ),
    Instruction(Op.V_RD, _VECTOR, "Start a chain: read vectors.", (PipelineStage.READ,)),
    Instruction(
        Op.MV_MUL,
        _lay(
            _LAST,
            Field("mode", 1, doc="0 dense, 1 depthwise"),
            _REG,
            Field("matrix", MATRIX_ADDR_BITS, doc="first word in the matrix memory"),
            Field("sliding", 1, doc="windows of a depthwise product slide; not looked at in dense mode"),
        ),
        "Matrix-vector product; the source must be narrow.",
        (PipelineStage.REDUCE,),
    ),
    Instruction(Op.V_MAX, _PLAIN, "Element-wise maximum over the window.", (PipelineStage.REDUCE,)),
    Instruction(
        Op.V_REDMAX, _PLAIN, "Maximum over the window and all N elements, in every element.", (PipelineStage.REDUCE,)
    ),
    Instruction(
        Op.VV_SCALE,
        _VECTOR_PAIR,
        "Make codes of accumulators with two wide vectors that follow each other; must follow ``mv_mul``.",
        (PipelineStage.ADD0,),
    ),
    Instruction(Op.VV_MUL, _OPERAND, "Multiply by wide vectors.", (PipelineStage.MUL0, PipelineStage.MUL1)),
    Instruction(Op.VV_ADD, _OPERAND, "Add wide vectors.", (PipelineStage.ADD0, PipelineStage.ADD1)),
    Instruction(Op.VV_SUB, _OPERAND, "Subtract wide vectors.", (PipelineStage.ADD0, PipelineStage.ADD1)),
    Instruction(Op.VV_RSUB, _OPERAND, "Subtract from wide vectors.", (PipelineStage.ADD0, PipelineStage.ADD1)),
    Instruction(Op.VV_MAX, _OPERAND, "Maximum with wide vectors.", (PipelineStage.ADD0, PipelineStage.ADD1)),
    Instruction(Op.VV_MIN, _OPERAND, "Minimum with wide vectors.", (PipelineStage.ADD0, PipelineStage.ADD1)),
    Instruction(Op.V_RELU, Layout((_LAST, _UNIT)), "max(x, +0).", (PipelineStage.ACT0, PipelineStage.ACT1)),
    Instruction(
        Op.V_TBL,
        Layout((_LAST, _UNIT, Field("table", 4, doc="table slot"))),
        "Look the value up in a table.",
        (PipelineStage.ACT0, PipelineStage.ACT1),
    ),
    Instruction(
        Op.V_WR,
        _VECTOR,
        "Write vectors; a chain may have one wide and one narrow destination.",
        (PipelineStage.WRITE,),
    ),
    Instruction(
        Op.M_WR,
        _lay(
            _LAST,
            Field("reg", ADDR_REG_BITS, doc="address register added to the number of the row"),
            Field("matrix", MATRIX_ADDR_BITS, doc="first word of a tile in the matrix memory, a multiple of N/L"),
            Field("row", 12, True, doc="rows of tiles per row"),
            Field("inner", 12, True, doc="rows of tiles per inner iteration"),
            Field("outer", 12, True, doc="rows of tiles per outer iteration"),
        ),
        "Write vectors as rows of tiles of the matrix memory; it takes the place of a narrow destination.",
        (PipelineStage.WRITE,),
    ),
    Instruction(Op.T_SET, _lay(_RESULT, _EXP), "Set a tensor register: this exponent, no magnitude seen."),
    Instruction(Op.T_MUL, _lay(_RESULT, _X, _Y), "Exponent of products of two tensors; no magnitude seen."),
    Instruction(
        Op.T_FIT,
        _lay(
            _RESULT,
            _X,
            Field("bits", 6, doc="bits that the integers are to have, sign included"),
            Field("place", 1, doc="which rounding of the next chain: 0 the first, 1 the second"),
        ),
        "Exponent and greatest magnitude of a tensor rounded to so many bits, and by how much its integers move.",
        least=(("bits", 2),),
        most=(("bits", 32),),
    ),
    Instruction(
        Op.T_SCALE,
        _lay(_RESULT, _X, _FACTOR),
        "Exponent and greatest magnitude of a tensor times a factor.",
    ),
    Instruction(
        Op.T_ADD,
        _lay(_RESULT, _X, _Y),
        "Exponent of the sum of two tensors, and how their integers move to its grid; no magnitude seen.",
    ),
    Instruction(
        Op.T_BIAS,
        _lay(_RESULT, _X, _Y),
        "The same on the grid of the first one, whose magnitudes need not be known.",
    ),
    Instruction(
        Op.T_UPD,
        _lay(
            _RESULT,
            _X,
            Field("accumulators", VECTOR_ADDR_BITS, doc="from a word of weights to its accumulators"),
            Field(
                "coarser",
                COARSER_MAX.bit_length(),
                doc="bits by which the point of accumulators is less than 15 below that of weights",
            ),
        ),
        "Exponents of the weights ``z`` and of the update ``x`` for the chain that updates.",
        most=(("coarser", COARSER_MAX),),
    ),
    Instruction(
        Op.I_PLANES,
        _lay(
            Field("count", 3, doc="words of a vector: 1, the integers themselves, or 2 to 5 digits of base 128"),
            Field("dst", 14, True, doc="address step per digit of ``i_dst``"),
            Field("col", 14, True, doc="columns of tiles per digit of ``i_col``"),
            Field("reg", ADDR_REG_BITS, doc="address register added to the numbers of columns and rows, signed"),
        ),
        "How the narrow results of integer chains are written.",
        least=(("count", 1),),
        most=(("count", DIGITS_MAX),),
    ),
    Instruction(
        Op.I_SRC,
        _lay(
            Field("kind", 2, doc="0 narrow, 1 wide integers, 2 product"),
            _REG,
            _ADDR,
            *_STRIDES,
        ),
        "Source of integer chains; of a product the vectors.",
        most=(("kind", max(IntegerSource)),),
    ),
    Instruction(
        Op.I_MAT,
        _lay(
            Field("matrix", MATRIX_ADDR_BITS, doc="first word in the matrix memory"),
            Field("row", 13, True, doc="words per row"),
            Field("inner", 13, True, doc="words per inner iteration"),
            Field("outer", 14, True, doc="words per outer iteration"),
        ),
        "Tiles of the products of integer chains.",
    ),
    Instruction(
        Op.I_TAPS,
        _lay(
            Field("vector", 12, True, doc="address step per column"),
            Field("vector_digit", 12, True, doc="address step per digit, if the digits are those of the vectors"),
            Field("matrix", 13, True, doc="words per column"),
            Field("matrix_digit", 14, True, doc="words per digit, if the digits are those of the tiles"),
            Field("digits", 3, doc="digits of the operand that has some"),
            Field("of", 1, doc="0 the vectors, 1 the tiles"),
            Field("reg", ADDR_REG_BITS, doc="address register added to the words of ``i_mat``"),
        ),
        "Columns and digits of the products of integer chains.",
        least=(("digits", 1),),
        most=(("digits", DIGITS_MAX),),
    ),
    Instruction(
        Op.I_OPD,
        _lay(_MEM, _REG, _ADDR, *_STRIDES),
        "Operand of integer chains: narrow, or wide integers.",
    ),
    Instruction(
        Op.I_DST,
        _lay(_MEM, _REG, _ADDR, *_STRIDES),
        "Destination of integer chains in a vector memory: narrow, or wide integers.",
    ),
    Instruction(
        Op.I_COL,
        _lay(*_TILED),
        "Destination of integer chains in the matrix memory: each vector is a column of a tile.",
    ),
    Instruction(
        Op.I_ROW, _lay(*_TILED), "Destination of integer chains in the matrix memory: each vector is a row of a tile."
    ),
    Instruction(
        Op.I_RUN,
        _lay(
            Field("interval", 12, doc="cycles from vector to vector"),
            Field("scale", 1, doc="multiply by the factor"),
            _FACTOR,
            Field("round0", 1, doc="round as the latest ``t_fit`` of place 0 says"),
            Field("add", 1, doc="add the operand as the latest ``t_add`` or ``t_bias`` says"),
            Field("peak", 1, doc="the greatest magnitude of what there is now counts for that of ``tensor``"),
            Field("tensor", TENSOR_BITS, doc="tensor register"),
            Field("round1", 1, doc="round as the latest ``t_fit`` of place 1 says"),
            Field("relu", 1, doc="zero in the place of what is negative"),
            Field("mask", 1, doc="zero where the operand, a narrow one, is not above zero"),
            Field("valid", 7, doc="elements of the last row of vectors that are kept, others become zero; 0: all"),
            Field("update", 1, doc="the integers update the weights that the operand is, see ``t_upd``"),
            Field("to_vector", 1, doc="write to ``i_dst``"),
            Field("to_column", 1, doc="write to ``i_col``"),
            Field("to_row", 1, doc="write to ``i_row``"),
        ),
        "Execute an integer chain.",
        least=(("interval", 1),),
    ),
)

FORMS: dict[Op, Instruction] = {form.op: form for form in INSTRUCTIONS}
MNEMONICS: dict[str, Instruction] = {form.mnemonic: form for form in INSTRUCTIONS}

assert set(FORMS) == set(Op)
assert all(form.layout.width == WORD_BITS for form in INSTRUCTIONS)
assert max(ExponentMode) == 1

#: State at the start of a run, by instruction: what a program finds before it sets anything.
INITIAL: dict[Op, dict[str, int]] = {
    Op.SET_SHAPE: {"rows": 1, "cols": 1},
    Op.SET_ITERS: {"inner": 1, "outer": 1},
    Op.SET_WINDOW: {"kh": 1, "kw": 1, "stride_y": 0, "stride_x": 0, "dil_y": 1, "dil_x": 1},
    Op.SET_PAD: {"y0": 0, "x0": 0, "step_y": 1, "step_x": 1, "height": 0, "width": 0},
    Op.SET_QUANT: {"mode": 0, "exp": 0, "rounding": 0},
    Op.SET_SCALE: {"shift": 0},
    Op.I_PLANES: {"count": 1, "dst": 0, "col": 0, "reg": 0},
    Op.I_SRC: {"kind": 0, "reg": 0, "addr": 0, "row": 0, "inner": 0, "outer": 0},
    Op.I_MAT: {"matrix": 0, "row": 0, "inner": 0, "outer": 0},
    Op.I_TAPS: {"vector": 0, "vector_digit": 0, "matrix": 0, "matrix_digit": 0, "digits": 1, "of": 0, "reg": 0},
    Op.I_OPD: {"mem": 0, "reg": 0, "addr": 0, "row": 0, "inner": 0, "outer": 0},
    Op.I_DST: {"mem": 0, "reg": 0, "addr": 0, "row": 0, "inner": 0, "outer": 0},
    Op.I_COL: {"first": 0, "row": 0, "inner": 0, "outer": 0},
    Op.I_ROW: {"first": 0, "row": 0, "inner": 0, "outer": 0},
}


class IllegalInstruction(ValueError):
    """A word that traps; ``trap`` is the code the hardware reports."""

    def __init__(self, trap: Trap, message: str):
        super().__init__(message)
        self.trap = trap


def encode(op: Op, **values: int) -> int:
    """Return the word of one instruction; fields left out are zero.

    Raises
    ------
    TypeError
        If a field is unknown.
    ValueError
        If a value does not fit or is not allowed.
    """
    form = FORMS[op]
    if unknown := [name for name in values if name not in form.fields]:
        known = [field.name for field in form.fields.fields]
        raise TypeError(f"fields of {form.mnemonic} must be among {known}, not {unknown}")
    full = {field.name: 0 for field in form.layout.fields} | values | {"op": int(op)}
    word = form.layout.pack(**full)
    try:
        decode(word)
    except IllegalInstruction as error:
        raise ValueError(str(error)) from error
    return word


def decode(word: int) -> tuple[Instruction, dict[str, int]]:
    """Return the form and the fields of a word; :class:`IllegalInstruction` says how the hardware would trap."""
    form, values = _decoded(word)
    return form, dict(values)


@lru_cache(maxsize=1 << 14)
def _decoded(word: int) -> tuple[Instruction, dict[str, int]]:
    """:func:`decode`; programs are traced many times while they are made."""
    code = word & (1 << OPCODE_BITS) - 1
    if code not in FORMS:
        known = sorted(map(int, FORMS))
        raise IllegalInstruction(Trap.BAD_OPCODE, f"operation code must be one of {known}, not {code}")
    form = FORMS[Op(code)]
    values = form.layout.unpack(word)
    del values["op"]
    if values.pop("reserved", 0):
        raise IllegalInstruction(Trap.BAD_OPCODE, f"reserved bits of {form.mnemonic} must be zero, not {word:#018x}")
    for name, low in form.least:
        if values[name] < low:
            raise IllegalInstruction(Trap.BAD_FIELD, f"{name} must be at least {low}, not {values[name]}")
    for name, high in form.most:
        if values[name] > high:
            raise IllegalInstruction(Trap.BAD_FIELD, f"{name} must be at most {high}, not {values[name]}")
    return form, values
