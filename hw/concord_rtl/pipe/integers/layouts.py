"""Layouts of the values that the tensor registers leave for the chain that follows."""

from amaranth import signed
from amaranth.lib import data

from concord.spec.integers import SUM_BITS, WIDE_BITS
from concord.spec.isa import (
    COARSER_MAX,
    FACTOR_BITS,
    OPCODE_BITS,
    TENSOR_BITS,
    TENSOR_EXP_BITS,
    VECTOR_ADDR_BITS,
)

#: Bits of magnitudes on the way, and of those of wide integers.
MAGNITUDE_BITS, LIMIT_BITS = SUM_BITS - 1, WIDE_BITS - 1
#: Bits of the places by which integers move to the right: as many as move any of them to zero.
PLACE_BITS = MAGNITUDE_BITS.bit_length()
PLACES_MAX = (1 << PLACE_BITS) - 1

#: Bits that integers drop, and the greatest magnitude after that: all ones.
ROUNDING = data.StructLayout({"right": PLACE_BITS, "limit": LIMIT_BITS})
#: By how much source and operand of a sum move to the right, at most :data:`PLACES_MAX`; negative: to the left.
MOVES = data.StructLayout({"first": signed(8), "second": signed(8)})
#: Register and exponent of the weights, exponent of their update, from a word of weights to its accumulators, and the
#: bits by which the point of these is less than 15 below that of weights.
UPDATE = data.StructLayout(
    {
        "weights": TENSOR_BITS,
        "exp": signed(TENSOR_EXP_BITS),
        "change_exp": signed(TENSOR_EXP_BITS),
        "accumulators": VECTOR_ADDR_BITS,
        "coarser": COARSER_MAX.bit_length(),
    }
)
#: Fields of the instructions that are steps of the tensor registers; what an operation does not have is not looked at.
STEP = data.StructLayout(
    {
        "op": OPCODE_BITS,
        "z": TENSOR_BITS,
        "x": TENSOR_BITS,
        "y": TENSOR_BITS,
        "exp": signed(TENSOR_EXP_BITS),
        "bits": 6,
        "place": 1,
        "factor": FACTOR_BITS,
        "accumulators": VECTOR_ADDR_BITS,
        "coarser": COARSER_MAX.bit_length(),
    }
)
