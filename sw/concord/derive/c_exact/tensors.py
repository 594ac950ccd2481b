"""Places of the codes of tensors: the order of their elements, and tensors that share a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from concord.derive.c.memory import Buffer
from concord.derive.c.storage import Place
from concord.derive.names import Names
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerGraph, IntegerOperation
from concord.integer.moves import NoMove
from concord.integer.operations import (
    CodeConstant,
    CodeFloats,
    CodeMean,
    CodeMovement,
    CodePairTable,
    CodeSoftmax,
    CodeSum,
    CodeTable,
    CodeWindows,
    IntegerProduct,
)
from concord.integer.shapes import fixed_sizes, shapes_behind
from concord.integer.softmaxes import NumberSoftmax
from concord.integer.tflite.operations import FixedPointSum
from concord.integer.weighted_sums import IntegerConvolution
from concord.integer.wide import CodesOfNumbers, NumbersOfCodes, TabledNumbers, WideDifference, WideProduct, WideSum
from concord.integer.wide_numbers import WideNumbers
from concord.transfer import Codes

#: Operations that compute each element from those at its place.
POINTWISE = (
    CodeTable,
    CodePairTable,
    CodeSum,
    CodeFloats,
    IntegerProduct,
    FixedPointSum,
    NumbersOfCodes,
    CodesOfNumbers,
    TabledNumbers,
    WideSum,
    WideDifference,
    WideProduct,
)


@dataclass(eq=False)
class CodeArray:
    """An array of codes.

    Parameters
    ----------
    name : str
        In C: of the member, or of the constant.
    kind : str
        Type of a code without ``_t``.
    size : int
    place : Place
    data : array or None
        Of a constant.
    buffer : Buffer or None
        Of what is in the arena.
    """

    name: str
    kind: str
    size: int
    place: Place
    data: Integers | None = None
    buffer: Buffer | None = None


@dataclass(eq=False)
class CodeTensor:
    """A tensor of codes.

    Parameters
    ----------
    shape : tuple of int
    order : tuple of int
        Axes from the outermost to the innermost one in memory.
    scheme : Codes or WideNumbers
    array : CodeArray
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    scheme: Codes | WideNumbers
    array: CodeArray

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def stored(self) -> tuple[int, ...]:
        """Sizes in the order of memory."""
        return tuple(self.shape[axis] for axis in self.order)

    @property
    def places(self) -> Integers:
        """Place of every element in its array, in the shape of the tensor."""
        return np.transpose(np.arange(self.size).reshape(self.stored), np.argsort(self.order))

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each axis."""
        steps = [0] * len(self.shape)
        for k, axis in enumerate(self.order):
            steps[axis] = prod(self.stored[k + 1 :])
        return tuple(steps)


@dataclass(eq=False)
class ExactPlan:
    """A graph with places for all tensors.

    Parameters
    ----------
    graph : IntegerGraph
        Each output is a tensor of its own, which no input or constant is.
    tensors : dict of str to CodeTensor
    steps : list of IntegerOperation
        Those that become functions.
    inputs, outputs : dict of str to CodeTensor
        By the names in the model.
    buffers : list of Buffer
        Of tensors, with the steps in which they are needed.
    """

    graph: IntegerGraph
    tensors: dict[str, CodeTensor]
    steps: list[IntegerOperation]
    inputs: dict[str, CodeTensor]
    outputs: dict[str, CodeTensor]
    buffers: list[Buffer]


def kind_of(scheme: Codes | WideNumbers) -> str:
    """The type of codes, or of wide numbers, without ``_t``."""
    return f"{'u' * (scheme.low >= 0)}int{next(size for size in (8, 16, 32) if scheme.bits <= size)}"


def plan(graph: IntegerGraph, names: Names) -> ExactPlan:
    """Places for the tensors of a graph, for one sample a run.

    Raises
    ------
    ValueError
        If a size is open that is not the number of samples.
    """
    graph = _with_own_outputs(graph)
    shapes = _shapes(graph)
    outputs = {tensor: name for name, tensor in graph.outputs.items()}
    inputs = {tensor: name for name, tensor in graph.inputs.items()}
    constants = {operation.output: operation for operation in graph.operations if isinstance(operation, CodeConstant)}
    last = _channels_last(graph, shapes)
    tensors = {}
    for name, shape in shapes.items():
        scheme, rank = graph.schemes[name], len(shape)
        place, word, order = Place.ARENA, name, tuple(range(rank))
        if name in inputs:
            place, word = Place.INPUT, inputs[name]
        elif name in outputs:
            place, word = Place.OUTPUT, outputs[name]
        elif name in last:
            order = (0, *range(2, rank), 1)
        word = names.new(word) if place is not Place.ARENA else word
        array = CodeArray(word, kind_of(scheme), prod(shape), place)
        tensors[name] = CodeTensor(shape, order, scheme, array)
        if name in constants:
            array.place, array.data = Place.CONSTANT, constants[name].value.transpose(order).reshape(-1)
    steps = [operation for operation in graph.operations if not isinstance(operation, CodeConstant)]
    steps = [operation for operation in steps if not _is_shared(operation, tensors)]
    return ExactPlan(
        graph,
        tensors,
        steps,
        {name: tensors[tensor] for name, tensor in graph.inputs.items()},
        {name: tensors[tensor] for name, tensor in graph.outputs.items()},
        _buffers(steps, tensors),
    )


def _with_own_outputs(graph: IntegerGraph) -> IntegerGraph:
    """Copies after outputs that an input, a constant or another output is, too."""
    made = {operation.output for operation in graph.operations if not isinstance(operation, CodeConstant)}
    operations, schemes, outputs = list(graph.operations), dict(graph.schemes), dict[str, str]()
    for name, tensor in graph.outputs.items():
        outputs[name] = tensor
        if tensor not in made or tensor in list(outputs.values())[:-1]:
            scheme = schemes[tensor]
            outputs[name] = f"{name}/output"
            while outputs[name] in schemes:
                outputs[name] += "_"
            schemes[outputs[name]] = scheme
            operations.append(CodeMovement.of(name, (tensor,), outputs[name], NoMove(), scheme))
    return replace(graph, operations=operations, schemes=schemes, outputs=outputs)


def _shapes(graph: IntegerGraph) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors for one run: of one sample, or of as many as the model has."""
    inputs = {}
    for name, tensor in graph.inputs.items():
        samples = [1 if size is None else size for size in graph.shapes[name][:1]]
        inputs[tensor] = (*samples, *fixed_sizes(graph, name))
    return shapes_behind(graph, inputs)


def _channels_last(graph: IntegerGraph, shapes: dict[str, tuple[int, ...]]) -> set[str]:
    """Tensors whose channels are best beside each other: those of windows, and what is computed of them by place."""
    last: set[str] = set()
    for operation in graph.operations:
        of_windows = isinstance(operation, IntegerConvolution | CodeWindows) and not operation.last
        if of_windows or isinstance(operation, CodeMean):  # they read all channels at a place together
            last |= {*operation.inputs, operation.output}
    while True:
        more = set(last)
        for operation in graph.operations:
            if isinstance(operation, POINTWISE):
                alike = [
                    name
                    for name in (*operation.inputs, operation.output)
                    if len(shapes[name]) == len(shapes[operation.output])
                ]
                if last.intersection(alike):
                    more |= {*alike}
        if more == last:
            break
        last = more
    for operation in graph.operations:
        if (
            isinstance(operation, CodeSoftmax | NumberSoftmax) and operation.flattened
        ):  # axes as one follow each other in memory
            last -= {*operation.inputs, operation.output}
    return last


def move_places(operation: CodeMovement, tensors: dict[str, CodeTensor]) -> tuple[Integers, Integers]:
    """Places from which the elements of a movement come.

    Returns
    -------
    places : array of int64
        For every element of the result, in the order of memory, its number among those of all sources;
        ``-1 - k`` for a constant.
    constants : array of int64
        Codes that are in no source.
    """
    numbered, total = [], 0
    for name in operation.inputs:
        numbered.append(tensors[name].places + total)
        total += tensors[name].size
    order = tensors[operation.output].order
    places = np.asarray(operation.move.apply(*numbered)).transpose(order)
    moved = np.asarray(operation.move.apply(*(places + total for places in numbered))).transpose(order)
    fixed = places == moved
    constants, which = np.unique(places[fixed], return_inverse=True)
    places = places.copy()
    places[fixed] = -1 - which.reshape(-1)
    return places, np.clip(constants, operation.low, operation.high)


def limits_codes(operation: CodeMovement, tensors: dict[str, CodeTensor]) -> bool:
    """True if codes may be beyond the ends of a movement."""
    schemes = [tensors[name].scheme for name in operation.inputs]
    return any(scheme.low < operation.low or scheme.high > operation.high for scheme in schemes)


def _is_shared(operation: IntegerOperation, tensors: dict[str, CodeTensor]) -> bool:
    """True if the result of a movement is the array of its source as it is; the result gets its place then."""
    if not isinstance(operation, CodeMovement) or len(operation.inputs) != 1 or limits_codes(operation, tensors):
        return False
    source, result = tensors[operation.inputs[0]], tensors[operation.output]
    moved = move_places(operation, tensors)[0].reshape(-1)
    if source.array.kind != result.array.kind or not np.array_equal(moved, np.arange(source.size)):
        return False
    if result.array.place is Place.OUTPUT:
        if source.array.place is not Place.ARENA:
            return False
        source.array.place, source.array.name = Place.OUTPUT, result.array.name
    result.array = source.array
    return True


def _buffers(steps: Sequence[IntegerOperation], tensors: dict[str, CodeTensor]) -> list[Buffer]:
    """Pieces of the arena; what is computed by place may take the place of what it is computed of."""
    buffers: list[Buffer] = []
    last = {tensors[name].array: k for k, operation in enumerate(steps) for name in operation.inputs}
    for k, operation in enumerate(steps):
        result = tensors[operation.output]
        sources = [tensors[name] for name in operation.inputs]
        if result.array.place is Place.ARENA and result.array.buffer is None:
            ending = [
                source.array for source in sources if last[source.array] == k and _replaces(result, source, sources)
            ]
            if isinstance(operation, POINTWISE) and ending:
                result.array.buffer = ending[0].buffer
            else:
                result.array.buffer = Buffer(result.array.name, result.array.kind, result.size)
                buffers.append(result.array.buffer)
        for tensor in (result, *sources):
            if tensor.array.buffer is not None:
                tensor.array.buffer.use(k, k)
    return buffers


def _replaces(result: CodeTensor, source: CodeTensor, sources: Sequence[CodeTensor]) -> bool:
    """True if a result may be written over one of its sources."""
    if (
        source.array.place is not Place.ARENA
        or np.dtype(source.array.kind).itemsize != np.dtype(result.array.kind).itemsize
    ):
        return False
    alike = [other for other in sources if other.array is source.array]
    return all((other.shape, other.order) == (result.shape, result.order) for other in alike)
