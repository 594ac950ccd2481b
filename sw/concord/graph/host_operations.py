"""Operations of the host before the NPU and after it, which every backend has with the same bits.

Operations are single operations of IEEE 754 in float64, data movement, look-ups, and the functions of
:mod:`concord.golden.host_math`. So their results do not depend on how many samples are computed together, and zeros
that are results are +0, as in :func:`concord.graph.host_evaluation.run_on_host`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from concord.graph.ir import Shape
from concord.utils.arrays import FloatArray


class Action(Enum):
    """Kind of an operation; axes are those of a sample. Truth is 1, and everything else but 0."""

    RESHAPE = "reshape"  # to ``shape``
    TRANSPOSE = "transpose"  # ``numbers``: axis of the operand for every axis
    CONCAT = "concat"  # ``numbers``: the axis
    SLICE = "slice"  # ``numbers``: axis, start, stop and step; stop -1 is before the first
    SOFTMAX = "softmax"  # ``numbers``: the axis
    LOG_SOFTMAX = "log softmax"  # ``numbers``: the axis
    SUM = "sum"  # ``numbers``: the axis, which stays, and its length
    EXP = "exp"
    LOG = "log"
    ROOT = "root"
    FLOOR = "floor"
    ROUND = "round"  # to the nearest whole number, of two to the even one
    FILL = "fill"  # a tensor of any shape, and a constant that is broadcast to ``shape`` for each of its samples
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MAX = "max"
    MIN = "min"
    LESS = "less"  # 1 where the first operand is less than the second one, else 0
    EQUAL = "equal"  # 1 where they are equal, else 0
    SELECT = "select"  # the second operand where the first one is not 0, else the third; of one shape
    LOOK_UP = "look up"  # a constant table, and whole numbers: entries along its first axis, negative ones from its end
    ALONG = "along"  # a tensor, and whole numbers: elements along the axis in ``numbers``, as for LOOK_UP
    GREATEST = "greatest"  # ``numbers``: the axis, which stays; place of its greatest element, the first of equal ones
    ORDER = "order"  # ``numbers``: the axis; places of its elements in rising order, equal ones as they come


#: The actions that have two operands of one rank, which broadcast.
ARITHMETIC = tuple(map(Action, "add sub mul div max min less equal".split()))
#: A tensor by name, or a constant without an axis of samples.
Operand = str | FloatArray


@dataclass(frozen=True)
class HostOperation:
    """One operation.

    Parameters
    ----------
    action : Action
    output : str
        What it computes.
    operands : tuple
        Names of tensors, or constants.
    shape : Shape
        Of a sample of the output.
    numbers : tuple of int
        See :class:`Action`.
    """

    action: Action
    output: str
    operands: tuple[Operand, ...]
    shape: Shape
    numbers: tuple[int, ...] = ()


@dataclass
class OperationBuilder:
    """Makes operations; tensors in between have names that no tensor of the graph has.

    Parameters
    ----------
    shapes : dict
        Shape of a sample of every tensor that is known.
    operations : list of HostOperation
        As far as they are made.
    """

    shapes: dict[str, Shape]
    operations: list[HostOperation] = field(default_factory=list)

    def operation(
        self, action: Action, operands: tuple[Operand, ...], shape: Shape, numbers: tuple[int, ...] = ()
    ) -> str:
        """Add an operation, and return the name of what it computes."""
        return self.add(action, f"host:{len(self.operations)}", operands, shape, numbers)

    def add(
        self, action: Action, output: str, operands: tuple[Operand, ...], shape: Shape, numbers: tuple[int, ...] = ()
    ) -> str:
        """Add an operation whose result has a name."""
        self.operations.append(HostOperation(action, output, operands, shape, numbers))
        self.shapes[output] = shape
        return output

    def shape(self, operand: Operand) -> Shape:
        """Shape of a sample."""
        return self.shapes[operand] if isinstance(operand, str) else operand.shape

    def unary(self, action: Action, x: str) -> str:
        """An operation with one operand of the same shape."""
        return self.operation(action, (x,), self.shape(x))

    def arithmetic(self, action: Action, a: Operand, b: Operand) -> str:
        """An operation with two operands that broadcast as in NumPy."""
        rank = max(len(self.shape(a)), len(self.shape(b)))
        a, b = self._ranked(a, rank), self._ranked(b, rank)
        return self.operation(action, (a, b), tuple(np.broadcast_shapes(self.shape(a), self.shape(b))))

    def select(self, condition: Operand, chosen: Operand, other: Operand) -> str:
        """Elements of one of two operands that broadcast, by a condition; one of the three is no constant."""
        operands = [condition, chosen, other]
        shape = tuple(np.broadcast_shapes(*map(self.shape, operands)))
        like = next(operand for operand in operands if isinstance(operand, str))
        return self.operation(Action.SELECT, tuple(self._filled(x, shape, like) for x in operands), shape)

    def _filled(self, operand: Operand, shape: Shape, like: str) -> str:
        """An operand with a whole shape, and an axis of samples."""
        if isinstance(operand, str):
            return operand if self.shape(operand) == shape else self.spread(operand, shape)
        return self.filled(like, shape, operand)

    def filled(self, like: str, shape: Shape, constant: FloatArray) -> str:
        """A constant for each sample, of which there are as many as of another tensor."""
        constant = np.asarray(constant, np.float64)
        ranked = constant.reshape((1,) * (len(shape) - constant.ndim) + constant.shape)
        return self.operation(Action.FILL, (like, ranked), shape)

    def spread(self, x: str, shape: Shape) -> str:
        """A tensor that is broadcast to a shape: no sum with zeros, as that would lose the sign of a zero."""
        own = (1,) * (len(shape) - len(self.shape(x))) + self.shape(x)
        x = self.reshaped(x, own)
        for axis, (old, new) in enumerate(zip(own, shape, strict=True)):
            if old != new:
                x = self.operation(
                    Action.CONCAT, (x,) * new, (*self.shape(x)[:axis], new, *self.shape(x)[axis + 1 :]), (axis,)
                )
        return x

    def _ranked(self, operand: Operand, rank: int) -> Operand:
        shape = (*(1,) * (rank - len(self.shape(operand))), *self.shape(operand))
        return self.reshaped(operand, shape) if isinstance(operand, str) else operand.reshape(shape)

    def reshaped(self, x: str, shape: Shape) -> str:
        """Operand with another shape."""
        return x if self.shape(x) == shape else self.operation(Action.RESHAPE, (x,), shape)

    def taken(self, x: str, axis: int, taken: range) -> str:
        """These indices of an axis."""
        shape = list(self.shape(x))
        shape[axis] = len(taken)
        return self.operation(Action.SLICE, (x,), tuple(shape), (axis, taken.start, taken.stop, taken.step))

    def moved(self, x: str, old: int, new: int) -> str:
        """Operand with an axis in another place."""
        shape = self.shape(x)
        order = [axis for axis in range(len(shape)) if axis != old]
        order.insert(new, old)
        if order == sorted(order):
            return x
        return self.operation(Action.TRANSPOSE, (x,), tuple(shape[axis] for axis in order), tuple(order))
