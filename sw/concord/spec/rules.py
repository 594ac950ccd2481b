"""Rules of programs that the hardware does not check, in the words of the reference page.

The checks are in :mod:`concord.program`: each names its rule with what it finds.
"""

from __future__ import annotations

from enum import Enum

_CHAINS = "chains"
_SLIDING = "sliding products"
_ROWS = "`m_wr`"
_COPIES = "`copy`"
_VECTORS = "`v_copy`"
_INTEGERS = "integer chains"


class ProgramRule(Enum):
    """A rule that every chain of a program must keep.

    Members
    -------
    of : str
        Kind of chains that it is about.
    text : str
        A sentence for the reference page, in terms of the fields of instructions and the parameters of configurations.
    """

    of: str
    text: str

    def __init__(self, of: str, text: str):
        self.of, self.text = of, text

    ADDRESSES = _CHAINS, "Every word that is read or written lies in its memory."
    TERMS = _CHAINS, "`kh * kw * cols` of a dense product and `kh * kw` of a depthwise one are at most `max_terms`."
    SOME_TAP = _CHAINS, "Every window of `v_max` and `v_redmax` has a tap inside the image."

    WINDOW_TAPS = _SLIDING, "`kh * kw` is at most `window_taps`."
    ONE_ROW = _SLIDING, "`rows` is 1."
    NEW_COLUMNS = _SLIDING, "`cols` is at most `kw`."
    SOURCE_STEP = _SLIDING, "If `inner` is above 1, the step `inner` of the source is `cols * stride_x`, modulo 2^14."
    PAD_STEP = _SLIDING, "If `inner` is above 1 and `height` is not 0, `step_x` is `cols * dil_x`."
    OWN_WINDOWS = _SLIDING, "The chain writes no narrow word that its windows read."

    ROWS_INSIDE = _ROWS, "Every row that is written lies in the matrix memory."
    OWN_TILES = _ROWS, "The product of the chain reads no word that the chain writes."

    COPIES_INSIDE = _COPIES, "Columns that are read and words that are written lie in their memories."
    COPIED_ROWS = _COPIES, "No row that a copy writes is written by `m_wr`."
    COPIES_AHEAD = _COPIES, "While a copy goes on, no chain reads words that it writes, or writes rows by `m_wr`."

    VECTORS_INSIDE = _VECTORS, "Vectors and columns lie in their memories."
    VECTORS_APART = _VECTORS, "All copies of a program that meet a column meet the same vector there, of one memory."

    INTERVAL = _INTEGERS, "`interval` is at least the number of cycles that a vector needs."
    ONE_OPERAND = _INTEGERS, "At most one of `add`, `mask` and `update` is 1."
    NARROW_OPERAND = _INTEGERS, "With `mask` or `update` the operand is narrow."
    SCALED_PRODUCT = _INTEGERS, "With a product `scale` is 0."
    PRODUCT_OPERAND = _INTEGERS, "With a product and `add` the operand is narrow."
    UPDATE = _INTEGERS, "With `update` the source is wide, `round1` is 1, and `peak`, `relu` and `to_vector` are 0."
    UPDATE_DIGITS = _INTEGERS, "With `update` and `to_column` or `to_row`, `count` of `i_planes` is 1."
    RESULT = _INTEGERS, "At least one of `to_vector`, `to_column`, `to_row`, `update` and `peak` is 1."
    VALID = _INTEGERS, "`valid` is at most N."
    ROW_DIGITS = _INTEGERS, "With `to_row`, `count` of `i_planes` is 1."
    WIDE_DIGITS = _INTEGERS, "With `to_vector` and a wide destination, `count` of `i_planes` is 1."
    INTEGER_ADDRESSES = _INTEGERS, "Every word that is read or written lies in its memory."
    FIRST_TILE = _INTEGERS, "Numbers of columns and rows are not negative."
    INTEGER_TERMS = _INTEGERS, "`digits * kh * kw * cols` of a product is at most `max_terms`."
    OTHER_VECTORS = _INTEGERS, "A vector reads no word that another vector of its chain writes."
    COLUMNS_AND_ROWS = _INTEGERS, "No word of the matrix memory is written both by columns and by rows."
