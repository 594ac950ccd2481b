"""Records of the operations of the multifunction units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from concord.spec.isa import FORMS, Op
from concord.utils.arrays import Bits, FloatArray

#: Lower and upper ends of intervals.
Ends = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, kw_only=True)
class ElementwiseOperation:
    """An operation on every element, of one or two vectors.

    Its implementations share no code, because they check each other.

    Parameters
    ----------
    op : Op
        Instruction.
    golden : callable
        The definition: binary16 patterns of every operand -> those of the result.
    kernel : callable
        The same in the emulator, ``kernel(*operands, out, pool)`` on float32 arrays that hold binary16 numbers; ``out``
        must not overlap the operands. Where something is not finite, ``golden`` has the last word.
    bounds : callable
        :data:`Ends` of every operand -> those of the result before it is rounded.
    rounds : bool
        The result is rounded to binary16, so finite operands may give an infinity.
    node : str or None
        Operator of the graph that the compiler makes it of.
    word : str
        What comes out of it, for names in derived software.
    primitive : str
        Function of derived software, in the modules with their texts; in ONNX with the body ``onnx_body``.
    exchanged : Op or None
        The operation that derived software has in its place, with the operands exchanged.
    """

    op: Op
    golden: Callable[..., Bits]
    kernel: Callable[..., None]
    bounds: Callable[..., Ends]
    rounds: bool
    node: str | None
    word: str
    primitive: str
    onnx_body: str
    exchanged: Op | None = None

    @property
    def combines(self) -> bool:
        """True if the operation has an operand besides the vector itself."""
        return "addr" in FORMS[self.op].fields
