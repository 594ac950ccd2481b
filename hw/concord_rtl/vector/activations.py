"""Operations of the multifunction units that need neither an operand nor a table, as logic on a binary16 number."""

from __future__ import annotations

from collections.abc import Callable

from amaranth import *

from concord.spec.formats import BINARY16_NAN
from concord_rtl.arith.binary16_fields import is_nan
from concord_rtl.parts.control import Act


def relu(x: Value) -> Value:
    """The greater of a number and +0."""
    return Mux(is_nan(x), BINARY16_NAN, Mux(x[-1], 0, x))


#: By control code; those of :data:`concord_rtl.parts.control.ACTS`.
ACTIVATIONS: dict[Act, Callable[[Value], Value]] = {Act.RELU: relu}
