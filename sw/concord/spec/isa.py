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

In depthwise mode row n of the result is the sum over taps of weight[n, tap] * x[n]; ``cols`` is not used, unless
windows slide: then it is the number of columns of a window that the one before in the inner loop had not.
"""

from __future__ import annotations

from dataclasses import dataclass

from concord.spec.fields import Field, Layout
from concord.spec.formats import SCALE_SHIFT_BITS, ExponentMode, Rounding
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
        """Whether it belongs to a chain."""
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
        most=(("rounding", max(Rounding)),),
    ),
    Instruction(
        Op.SET_SCALE,
        _lay(Field("shift", SCALE_SHIFT_BITS, doc="bits by which products of accumulators and factors move down")),
        "Shift of the ``vv_scale`` of the chains that follow.",
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
