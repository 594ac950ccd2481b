"""Operations of the multifunction units on binary16 patterns, by instruction; tables are :mod:`concord.golden.table`.

Whoever executes or analyses programs looks operations up by their code. So a new one is a ``KeyError`` with its name
where it is not known yet, and never taken for another one.
"""

from __future__ import annotations

from collections.abc import Callable

from numpy.typing import ArrayLike

from concord.golden import binary16
from concord.golden.binary16 import Bits
from concord.spec.isa import Op

#: Without an operand.
UNARY: dict[Op, Callable[[ArrayLike], Bits]] = {Op.V_RELU: binary16.relu}
#: With an operand, which is the second argument.
BINARY: dict[Op, Callable[[ArrayLike, ArrayLike], Bits]] = {
    Op.VV_MUL: binary16.mul,
    Op.VV_ADD: binary16.add,
    Op.VV_SUB: binary16.sub,
    Op.VV_RSUB: binary16.rsub,
    Op.VV_MAX: binary16.maximum,
    Op.VV_MIN: binary16.minimum,
}
