"""Integer chains: what the NPU trains with. Instructions ``t_`` and ``i_`` of configurations with ``integer_chains``.

A tensor of training is integers and one exponent [lazy-update]. Its integers lie in the memories as plain numbers, its
exponent and its greatest magnitude in a *tensor register*.

narrow integers
    Mantissas of narrow words, whose exponent is written as zero and not looked at. Of more than 8 bits as *digits*:
    ``value = sum of digit[p] * 128**p`` with digits in -64..63, digit p in a word of its own.
wide integers
    32 bits an element, of two neighbouring wide words, the address being that of the first: the low bits come first,
    elements 0 .. N/2 - 1 are in the first word.
tiles
    Integers or digits in the matrix memory, with the least exponent ``wgt_exp_min`` in each row.

Every ``t_`` and ``i_`` word waits until everything before it has been written, and what follows waits for it. An
integer chain runs the loops of other chains over ``outer``, ``inner`` and ``rows`` (:mod:`concord.spec.isa`), with
addresses ``addr + areg[reg] + r*row + i*inner + o*outer``; address registers are read when the word that names them
executes. A vector goes these steps, those that ``i_run`` asks for::

    source      narrow vector | wide integers | product
    scale       * mantissa of the factor register, 17 bits (not with a product)
    round0      as the latest t_fit of place 0 says: move right, halves away from zero, limit to its bits
    add         + operand; source and operand are moved as the latest t_add or t_bias says
    peak        the greatest magnitude, if it is greater than that of the tensor register, goes there
    round1      as the latest t_fit of place 1 says
    relu, mask  zero where negative, or where the narrow operand is not above zero
    valid       zero in elements from ``valid`` on of vectors with r = rows - 1
    update      of the weights that the narrow operand is, and of their accumulators; they are written where they were
    to_vector, to_column, to_row

product
    The sum over digits p, taps (ky, kx) of the window, columns c < ``cols`` and elements of ``128**p * tile . vector``.
    At the addresses of (r, i, o) each, the vector is ``ky*stride_y + kx*stride_x + c*vector`` further, and the tile
    ``((ky*kw + kx)*cols + c) * matrix`` words; the digit moves either of them (``of``) by ``p*vector_digit`` or
    ``p*matrix_digit``. Taps outside the image count as zero, as in other chains. Exact.
column q, row q
    q counts columns or rows of tiles, ``first + r*row + i*inner + o*outer``, columns ``p*col`` more for digit p: column
    q is lane ``q % L`` of word ``q // L``, element n going to row n; row q is row ``q % N`` of tile ``q // N``, which
    has N/L words. A row gets the least exponent. Bit k of the stored exponents lies beside lane k, and a column that is
    written there clears it.
update
    :func:`concord.golden.lazy_update.lazy_update` with weights of 8 and accumulators of 16 bits, halves away from zero,
    both in their symmetric ranges. The point of accumulators lies ``15 - coarser`` bits below that of weights.
    Accumulators are 16 bits an element of the wide word ``accumulators`` after the address of the weights. If the
    exponent has to grow, the chain goes over all vectors once more. The register of the weights that ``t_upd`` has
    named gets the new exponent and the greatest magnitude of the new weights. ``to_column`` and ``to_row`` write the
    weights, too.

tensor steps
    :class:`concord.golden.tensor_registers.TensorRegisters` defines them. A chain with a peak raises the greatest
    magnitude of its register and leaves the exponent that a step has set.

Everything is exact within :data:`SUM_BITS`. The trap ``INTEGER_RANGE`` ends the run where integers leave that, where
results have more than 32 bits or more than they are written with, and where exponents are none of training: -127 to 127
of a tensor that ``t_fit`` rounds, -128 to 127 of an update. What the chain has written and counted by then is not
defined.
"""

from __future__ import annotations

from concord.spec.fields import Field, Layout
from concord.spec.isa import DIGITS_MAX, FACTOR_BITS, TENSOR_BITS, TENSOR_EXP_BITS

#: Bits of everything between source and destination of an integer chain, sign included, and of greatest magnitudes.
SUM_BITS = 48
#: Bits that an operand of a sum may have on its grid.
GRID_BITS = 46
#: Bits of a digit; it is from ``-DIGIT_HALF`` to ``DIGIT_HALF - 1``.
DIGIT_BITS = 7
DIGIT_HALF = 1 << DIGIT_BITS - 1
#: Bits of wide integers.
WIDE_BITS = 32
#: Cycles of an interval in which a word of the wide memory can be read.
WIDE_READS = 4
#: Tensor registers and factor registers.
TENSORS, FACTORS = 1 << TENSOR_BITS, 1 << FACTOR_BITS
#: Bits of the mantissa of a factor, sign included.
FACTOR_MANT_BITS = 17

TENSOR_WORD = Layout(
    (
        Field("top", SUM_BITS, doc="greatest magnitude of the integers"),
        Field("exp", TENSOR_EXP_BITS, True, doc="exponent"),
    )
)
FACTOR_WORD = Layout(
    (
        Field("mant", FACTOR_MANT_BITS, True, doc="mantissa"),
        Field("exp", TENSOR_EXP_BITS, True, doc="exponent"),
    )
)
#: Counters of updates, in the order of their words.
UPDATE_COUNTERS = ("refused", "vanished", "grown")


def digit_span(count: int) -> tuple[int, int]:
    """Least and greatest number of so many digits; one word alone holds 8 bits of the symmetric range."""
    if count == 1:
        return -127, 127
    low = -DIGIT_HALF * sum(1 << DIGIT_BITS * p for p in range(count))
    return low, low + (1 << DIGIT_BITS * count) - 1


def digits_of(top: int) -> int:
    """The least count of digits that hold every number up to a magnitude."""
    return next(count for count in range(1, DIGITS_MAX + 1) if min(map(abs, digit_span(count))) >= top)


def interval(*, beats: int, narrow_reads: int, narrow_writes: int = 0, matrix_writes: int = 0) -> int:
    """Cycles from vector to vector of an integer chain: the busiest port decides.

    Parameters
    ----------
    beats : int
        N/P.
    narrow_reads, narrow_writes : int
        Words of the narrow memory: one for each step of a product, or for a narrow source, and one for an operand.
    matrix_writes : int
        Words of the matrix memory: one for a column, N/L for a row.

    Four cycles are enough for all words of the wide memory: two of a source, and two of an operand or one of
    accumulators.
    """
    return max(WIDE_READS, beats, narrow_reads, narrow_writes, matrix_writes)
