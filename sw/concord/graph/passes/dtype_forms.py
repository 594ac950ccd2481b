"""The four operator forms of a quantised layer [dtype-pass], and what they compute in integers.

With the factors s_x, s_w and s_y of input, weights and output, and ``round`` to the nearest, halves to even, saturated
to -127..127 (b_q: refused beyond 32 bits), all forms share

    w_q = round(w * s_w)        b_q = round(b * s_w * s_x)        acc = w_q x_q + b_q    (int32)

and differ in where x_q comes from and what becomes of ``acc``:

===============  ======================  ==========================================
form             input                   output
===============  ======================  ==========================================
wide to wide     x_q = round(x * s_x)    y = acc / (s_w * s_x)
wide to narrow   x_q = round(x * s_x)    y_q = round(acc * s_y / (s_w * s_x))
narrow to wide   x_q is read             y = acc / (s_w * s_x)
narrow to narrow x_q is read             y_q = round(acc * s_y / (s_w * s_x))
===============  ======================  ==========================================

Each is y = w x + b, or y_q = y * s_y, but for roundings. The NPU computes the same with blocks in place of int8: there
the factor is ``2**-exponent``, of a block or of a static step, and products are added on a fixed-point grid.
"""

from __future__ import annotations

from enum import Enum


class DtypeForm(Enum):
    """Type that a quantised layer reads, and type that it writes."""

    WIDE_TO_WIDE = (False, False)
    WIDE_TO_NARROW = (False, True)
    NARROW_TO_WIDE = (True, False)
    NARROW_TO_NARROW = (True, True)

    @classmethod
    def of(cls, reads_narrow: bool, writes_narrow: bool) -> DtypeForm:
        """The form with these types."""
        return cls((reads_narrow, writes_narrow))

    @property
    def reads_narrow(self) -> bool:
        """True if the input comes in codes; else the layer converts it for itself."""
        return self.value[0]

    @property
    def writes_narrow(self) -> bool:
        """True if the output leaves in codes."""
        return self.value[1]

    @property
    def text(self) -> str:
        """Form in words, such as ``"narrow to wide"``."""
        return self.name.lower().replace("_", " ")
