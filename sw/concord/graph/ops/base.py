"""Records of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from concord.graph.ops.attributes import Attribute, NoAttributes, Record, described, problems
from concord.utils.arrays import FloatArray

Shape = tuple[int, ...]
#: Shapes and arrays of inputs or outputs; ``None`` for those that are left out.
Shapes = Sequence[Shape | None]
Arrays = Sequence[FloatArray | None]
Input = TypeVar("Input", Shape, FloatArray)


class Operation(Protocol):
    """One operation of a graph, as :class:`concord.graph.ir.Node` is.

    Records of operators are made for it, so that a node can be compared with its record where it is made.
    """

    @property
    def op(self) -> str:
        """Name of the operator."""

    @property
    def name(self) -> str:
        """Name of the node."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of tensors; an input that is left out is the empty string."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of tensors."""

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes, constants among them."""

    def attributes(self, record: type[Record]) -> Record:
        """The attributes, as the record of the operator or a class that it is derived from."""


#: Shape of every output, from those of the inputs.
ShapeRule = Callable[[Operation, Shapes], list[Shape]]
#: Every output, from the inputs; arrays have the shape of the tensor behind an axis of samples.
Evaluation = Callable[[Operation, Arrays], list[FloatArray]]
#: Multiply-accumulates of one sample, from the shapes of the inputs and of the outputs.
Macs = Callable[[Operation, Shapes, Shapes], int]
#: True if the result always equals the first input, from the shapes of that and of the result.
Identity = Callable[[Operation, Shape | None, Shape], bool]
#: True if no result is negative, given for each input that is there whether it never is.
SignRule = Callable[[Operation, Sequence[bool]], bool]


class OperatorKind(Enum):
    """Treatment of number formats by an operator [dtype-pass]."""

    QUANTISED = "quantised"  # reads and writes wide or narrow
    MOVING = "moving"  # no arithmetic on values: input and output have one format
    PRECISE = "precise"  # wide in, wide out
    HOST = "host"  # no instruction computes it: the host does


@dataclass(frozen=True)
class OperatorWeights:
    """The constants that an operator multiplies its first input with.

    Parameters
    ----------
    names : tuple of str
        Attributes that are such weights.
    bias : str
        Attribute that is added to the products.
    inputs : int
        Axis of the first input along which the products are summed up, as an index from either end.
    outputs : int or None
        Axis of the result that has one index per row of the weight, as an index from either end: there the result is
        ``row * x + bias``, so that a factor or an offset per index can become part of both. ``None`` for other results.
    """

    names: tuple[str, ...]
    bias: str
    inputs: int
    outputs: int | None = None

    def __post_init__(self) -> None:
        if self.outputs is not None and len(self.names) != 1:
            raise ValueError(f"names must be one weight where results have an axis for its rows, not {self.names!r}")

    def weight_of(self, node: Operation) -> FloatArray:
        """The weight of a node; of several the first."""
        return self.weights_of(node)[0]

    def weights_of(self, node: Operation) -> list[FloatArray]:
        """All weights of a node."""
        attributes = node.attributes(NoAttributes)
        return [getattr(attributes, name) for name in self.names]

    def bias_of(self, node: Operation) -> FloatArray:
        """The bias of a node."""
        bias: FloatArray = getattr(node.attributes(NoAttributes), self.bias)
        return bias

    def channel(self, rank: int) -> int:
        """The axis of a result with ``rank`` axes that has one index per row; ``ValueError`` if there is none."""
        if self.outputs is None:
            raise ValueError("outputs must be an axis of the result, not None")
        return self.outputs % rank


@dataclass(frozen=True)
class Recurrence:
    """Steps of an operator through time, which is the first axis of its first input.

    Parameters
    ----------
    gates : int
        Rows of the weights per element of the state.
    functions : tuple of str
        ONNX names of the functions that a direction has by default.
    cell : bool
        Whether there is a cell beside the state h: it has an initial value and is the last result.
    """

    gates: int
    functions: tuple[str, ...]
    cell: bool = False

    @property
    def initial(self) -> tuple[str, ...]:
        """Attributes of constant initial values, in the order of the inputs after the first."""
        return ("initial_h", "initial_c") if self.cell else ("initial_h",)


def no_macs(node: Operation, inputs: Shapes, outputs: Shapes) -> int:
    """Sums, and products with zeros and ones, are no multiply-accumulates."""
    return 0


def never_identity(node: Operation, x: Shape | None, y: Shape) -> bool:
    """The result may always differ from the input."""
    return False


def any_sign(node: Operation, inputs: Sequence[bool]) -> bool:
    """Results may be negative, whatever the inputs are."""
    return False


def keeps_sign(node: Operation, inputs: Sequence[bool]) -> bool:
    """Results are not negative if no input is."""
    return all(inputs)


@dataclass(frozen=True)
class Operator:
    """One operator of the graph: every fact about it that more than one part of the software needs.

    What only one stage needs is in a table of that stage, which names an operator that it does not have. A default is
    safe for every operator: it may cost speed or exactness of a bound, but it makes no result wrong.

    Parameters
    ----------
    kind : Kind
        How the types of its edges are chosen.
    record : type
        The frozen dataclass of its attributes. A node with another one is refused where it is made.
    shape : callable
        ``shape(node, input shapes) -> output shapes``; ``ValueError`` if the shapes do not fit.
    evaluate : callable
        ``evaluate(node, inputs) -> outputs`` in double precision. Arrays are ``[samples, *shape of the tensor]``; an
        input that is left out is ``None``, an output that is left out is computed all the same.
    macs : callable or None
        ``macs(node, input shapes, output shapes) -> multiply-accumulates of one sample``. ``None`` is for operators
        without products; a quantised operator must have a rule, which may be :func:`no_macs`.
    weights : Weights or None
        The constants that it multiplies its input with.
    view : bool
        Whether every element of the result is an element of an input, or padding. The compiler then looks its elements
        up where they are, and lowers nothing. Its kind is moving.
    windowed : bool
        Whether it slides windows over the spatial axes of ``[1, channels, *spatial]``.
    recurrence : Recurrence or None
        How it goes through time; ``None`` if it has no steps that read what the ones before have computed.
    wide_inputs : frozenset of int
        Inputs of a quantised operator that element-wise operations read inside of it, and no product: they are wide.
    batchable : bool
        Whether it treats the first axis of its tensors as independent rows, and its lowering takes any number of them,
        so that samples may lie side by side along it.
    layout_sensitive : bool
        Whether it prefers a layout of its own for its input. The host writes an input of the network in the layout that
        the first such operator after it prefers.
    host_partition : bool
        Whether the host partition at the end of a network may begin with it. What follows it is then the host's, too.
    rises : bool
        Whether no element of the result falls when an element of an input rises.
    identity : callable
        ``identity(node, shape of the first input, shape of the result)``: whether that node only passes its first
        input on.
    never_negative : callable
        ``never_negative(node, for every input whether it is never negative)``: whether no result of that node is
        negative. Constants that training changes count as of any sign.

    Raises
    ------
    ValueError
        If fields contradict each other.
    """

    kind: OperatorKind
    record: type[NoAttributes]
    shape: ShapeRule
    evaluate: Evaluation
    _: KW_ONLY
    macs: Macs | None = None
    weights: OperatorWeights | None = None
    view: bool = False
    windowed: bool = False
    recurrence: Recurrence | None = None
    wide_inputs: frozenset[int] = frozenset()
    batchable: bool = False
    layout_sensitive: bool = True
    host_partition: bool = False
    rises: bool = False
    identity: Identity = never_identity
    never_negative: SignRule = any_sign

    @cached_property
    def attributes(self) -> dict[str, Attribute]:
        """Every attribute that its nodes may have, by name."""
        return described(self.record)

    @property
    def affine(self) -> OperatorWeights | None:
        """The weights, if the result is ``row * x + bias`` along an axis; else ``None``."""
        return None if self.weights is None or self.weights.outputs is None else self.weights

    def attribute_problems(self, node: Operation) -> Iterator[str]:
        """A line for every attribute of a node that this operator does not have, is of another type or missing."""
        return problems(self.attributes, node.attrs, f"{node.op} {node.name!r}")

    def __post_init__(self) -> None:
        quantised = self.kind is OperatorKind.QUANTISED
        if quantised and self.macs is None:
            raise ValueError("macs must be a rule for a quantised operator, such as no_macs, not None")
        if not quantised and self.macs is not None:
            raise ValueError(f"macs must be None for a {self.kind.value} operator, not {self.macs!r}")
        if self.view and self.kind is not OperatorKind.MOVING:
            raise ValueError(f"view must be an operator that moves elements, not a {self.kind.value} one")
        if self.weights is not None and not quantised:
            raise ValueError(f"weights must be those of a quantised operator, not of a {self.kind.value} one")
        if self.wide_inputs and not quantised:
            raise ValueError(f"wide_inputs must be inputs of a quantised operator, not of a {self.kind.value} one")
        if self.weights is not None:
            if missing := sorted({*self.weights.names, self.weights.bias} - self.attributes.keys()):
                raise ValueError(f"weights must be among the attributes, not {', '.join(missing)}")


def present(value: Input | None) -> Input:
    """An input that cannot be left out, or its shape."""
    if value is None:
        raise ValueError("input must be there")
    return value


def broadcast(*shapes: Shape) -> Shape:
    """The shape to which all of them are broadcast."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        listed = " and ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"shapes must be ones that are broadcast to each other, not {listed}") from None


def aligned(x: FloatArray, rank: int) -> FloatArray:
    """Axes of length 1 between the samples and a tensor of fewer axes, for broadcasting."""
    return x.reshape(len(x), *[1] * (rank - x.ndim + 1), *x.shape[1:])
