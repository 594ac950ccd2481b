"""Control words of the fixed-latency units of the chain pipe: reduce, multifunction units, quantiser."""

from amaranth import signed
from amaranth.lib import data, enum

from concord.spec.formats import BLOCK_ROUNDINGS, ExponentMode
from concord.spec.operations import Op

#: Bits of a table slot number, as in ``v_tbl``.
SLOT_BITS = 4


class ReduceMode(enum.Enum, shape=2):
    """Operation of the reduce unit on a vector."""

    PASS = 0  #: output = input
    MAX = 1  #: element-wise running maximum over the vectors of a window
    LANES = 2  #: running maximum over all elements of the vectors of a window


class AddOp(enum.Enum, shape=3):
    """Second operation of a multifunction unit; the operand is b, the value in the chain a."""

    NONE = 0  #: a
    ADD = 1  #: a + b
    SUB = 2  #: a - b
    RSUB = 3  #: b - a
    MAX = 4  #: the greater
    MIN = 5  #: the lesser


class Act(enum.Enum, shape=2):
    """Third operation of a multifunction unit."""

    NONE = 0  #: a
    RELU = 1  #: the greater of a and +0
    TABLE = 2  #: table look-up


#: Operations that need neither an operand nor a table, by instruction.
ACTS = {Op.V_RELU: Act.RELU}


class Take(enum.Enum, shape=3):
    """Next value of the element in an element-serial configuration; those of :data:`ACTS` have the same names."""

    LOWEST = 0  #: -inf
    SUM = 1  #: the accumulator
    SOURCE = 2  #: ``other``, or the narrow element
    MUL = 3  #: its product with ``other``
    ADD = 4  #: its sum, difference, maximum or minimum with ``other``, or with the narrow element
    RELU = 5
    TABLE = 6


#: Held during all beats of a vector. ``start``: first tap, forget the maximum so far. ``skip``: the tap lies outside
#: the image and does not count. ``emit``: the maximum, this vector included, leaves the unit; in mode LANES such a
#: vector carries no data of its own.
REDUCE_CTRL = data.StructLayout({"mode": ReduceMode, "start": 1, "emit": 1, "skip": 1})

#: Held during all beats of a vector.
MFU_CTRL = data.StructLayout({"mul": 1, "add": AddOp, "act": Act, "slot": SLOT_BITS})

#: Held during all beats of a vector; the fields of ``set_quant``.
QUANT_CTRL = data.StructLayout(
    {"mode": max(ExponentMode).bit_length(), "exp": signed(8), "rounding": max(BLOCK_ROUNDINGS).bit_length()}
)
