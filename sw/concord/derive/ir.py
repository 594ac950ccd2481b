"""The model that is derived from a program: what every backend of ``concord derive`` reads.

Values
    A :class:`Value` has the shape of one sample. At run time it has one more axis in front, the batch, unless it is the
    output of a :class:`Constant`. The types are ``REAL`` (float64: what the host gives and gets) and ``BINARY16`` (a
    binary16 number). There is no type for block floating point: every number of a block ``q * 2**e`` is a binary16
    number, so :class:`Quantise` maps binary16 to binary16, and products need nothing else.

Nodes
    A node has inputs and one output (:class:`Loop`: several). The nodes of a :class:`Body` are in an order in which
    every value is computed before it is used. Nodes of one layer carry its name; they follow each other wherever the
    program has them so. ``pcs`` are the addresses of the ``v_rd`` of the chains a node stands for.

Numbers
    Every operation on ``BINARY16`` is that of the machine, see docs/numbers.md and docs/architecture.md: one operation,
    one rounding to binary16, to nearest even, subnormal numbers included. A NaN that an operation gives is the
    canonical one, ``0x7E00``; :class:`Gather` and other data movement keep every pattern, and so does a
    :class:`TableLookup` with its entries. No number depends on the pattern of a NaN.

:mod:`concord.derive.evaluate` executes a model by the golden model and is the definition of all nodes;
:mod:`concord.derive.checks` says whether a model is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from concord.graph.ir import Graph
from concord.operations import ElementwiseOperation
from concord.spec.formats import BlockFormat, ExponentMode, Flag, Rounding
from concord.utils.arrays import FloatArray, Ids

Shape = tuple[int, ...]
Bits = npt.NDArray[np.uint16]
#: Exponent e, least and greatest code of numbers ``code * 2**e``.
InputGrid = tuple[int, int, int]

#: Patterns that fill what lies outside: of a sum +0, of a maximum -inf.
ZERO, LOWEST = 0x0000, 0xFC00


class Type(Enum):
    """Type of the elements of a value."""

    REAL = "float64"
    BINARY16 = "binary16"


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor.

    Parameters
    ----------
    name : str
        An identifier of Python that no other value of the model has.
    shape : tuple of int
        Shape of one sample.
    type : Type
        Of the elements.
    batched : bool
        Whether there is an axis of samples in front at run time; not of constants.
    """

    name: str
    shape: Shape
    type: Type = Type.BINARY16
    batched: bool = True

    @property
    def size(self) -> int:
        """Elements of one sample."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelNode:
    """An operation.

    Parameters
    ----------
    output : Value
        What it computes.
    layer : str
        Name of the layer of the network, or of the part of the program, that it belongs to.
    pcs : tuple of int
        Addresses of the ``v_rd`` of the chains it stands for.
    may : tuple of Flag
        Sticky flags that it raises for some inputs; empty in a model without flags.
    where : str
        What they belong to: the layer, or the ``v_rd`` as text in a program that has no layers.
    """

    output: Value
    layer: str = ""
    pcs: tuple[int, ...] = ()
    may: tuple[Flag, ...] = ()
    where: str = ""

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values that it reads."""
        return ()

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Values that it computes."""
        return (self.output,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Unary(ModelNode):
    """An operation that reads one value, ``x``."""

    x: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


# Sources, and the way in and out -------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(ModelNode):
    """``BINARY16`` without a batch: binary16 patterns ``data`` of the shape of the output."""

    data: Bits


@dataclass(frozen=True, eq=False, kw_only=True)
class Prepare(Unary):
    """Preparation of an input by the host, ``REAL`` to ``REAL`` in float64.

    ``clip(rint(x * 2**-e), least, greatest) * 2**e`` if there is a ``grid = (e, least, greatest)``, then ``- middles``
    and ``* factors`` if there are such arrays, which are broadcast to the elements of a sample, then ``- offset``.
    """

    grid: InputGrid | None = None
    offset: float = 0.0
    middles: FloatArray | None = None
    factors: FloatArray | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ToBinary16(Unary):
    """``REAL`` to ``BINARY16``: rounded once, to nearest even; beyond 65504 after rounding an infinity."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ToReal(Unary):
    """``BINARY16`` to ``REAL``, exact."""


# Data movement: ``BINARY16``, or ``REAL`` in front of ToBinary16; no arithmetic, patterns are kept ----------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(ModelNode):
    """Elements from anywhere: where no simpler data movement fits.

    Parameters
    ----------
    xs : tuple of Value
        Sources of one type. Their elements are numbered one source after the other, each in C order of a sample.
    index : integer array of the shape of the output
        The element that comes here; ``-1 - k`` for the constant ``fill[k]``.
    fill : array
        binary16 patterns.
    """

    xs: tuple[Value, ...]
    index: Ids
    fill: Bits = field(default_factory=lambda: np.zeros(0, np.uint16))

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.xs


@dataclass(frozen=True, eq=False, kw_only=True)
class Reshape(Unary):
    """Elements in another shape, in C order."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Transpose(Unary):
    """``output.shape[k] = x.shape[perm[k]]``; axes are those of a sample."""

    perm: tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Slice(Unary):
    """``x[starts[0]::steps[0], ...]``, as many along every axis as the output has; steps are not 0, may be negative."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Concat(ModelNode):
    """Sources side by side along an axis of a sample."""

    xs: tuple[Value, ...]
    axis: int = 0

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.xs


@dataclass(frozen=True, eq=False, kw_only=True)
class MapWindows(Unary):
    """Windows of a map: ``x[H, W, *rest]`` to ``[height, width, kh, kw, *rest]``.

    Element ``[i, j, u, v]`` is ``x[origin[0] + i*stride[0] + u*dilation[0], origin[1] + j*stride[1] + v*dilation[1]]``,
    or the pattern ``fill`` where that is outside of the map.

    Parameters
    ----------
    kernel, stride, dilation : tuple of int
        Vertical and horizontal; ``height`` and ``width`` are the first axes of the output.
    origin : tuple of int
        Position of the first tap of the first window: minus the padding.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    origin: tuple[int, int]
    dilation: tuple[int, int] = (1, 1)
    fill: int = ZERO


# Arithmetic ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Quantise(Unary):
    """binary16 to the nearest number of a block, which is a binary16 number again.

    The last axis is divided into blocks, each for itself. An infinity counts as ±65504 and a NaN as +0. With a dynamic
    exponent ``e = max(exp_min, floor(log2(max|x|)) - (m - 2))``, taken before rounding and at most ``exp_max``, of all
    zeros ``exp_min``; then ``q = round(x * 2**-e)`` limited to ``±(2**(m-1) - 1)``; the result is ``q * 2**e``, +0 for
    q = 0.

    Parameters
    ----------
    x : Value
    form : BlockFormat
        Its ``mant`` (m), ``exp_min`` and ``exp_max``; ``block`` is the native dimension and does not matter here.
    blocks : tuple of int
        Elements of each block along the last axis; they add up to it. Blocks of the machine may have more elements than
        there are here: copies of others, which do not matter, and constants, which are in ``peaks``.
    peaks : tuple of float
        For every block the greatest magnitude of its constants that are not here: they count for the exponent. 0.0 if
        there are none. A finite binary16 number.
    mode, exp
        ``STATIC``: the exponent is ``exp``, whatever the elements.
    rounding
        Of the magnitude: nearest even, nearest away, or ``(floor(|x| * 2**(16 - e)) + noise) >> 16``.
    noise : array of uint16 or None
        Of a stochastic rounding, in the shape of a sample.
    """

    form: BlockFormat
    blocks: tuple[int, ...]
    peaks: tuple[float, ...]
    mode: ExponentMode = ExponentMode.DYNAMIC
    exp: int = 0
    rounding: Rounding = Rounding.NEAREST_EVEN
    noise: Bits | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactSums(ModelNode):
    """Exact sums of products, saturated, and rounded once to binary16.

    The sum is that of the real numbers. It is a multiple of ``2**-frac`` (F of the grid), is limited to
    ``-2**(width-1-frac) .. (2**(width-1) - 1) * 2**-frac`` and rounded to nearest even once, directly to binary16: +0
    for a sum of zero, -0 for a negative one that rounds to zero, an infinity beyond 65504 after rounding. Factors that
    are values hold numbers of blocks, from a :class:`Quantise` or a :class:`Constant`: they are finite, and a zero is
    +0.

    Parameters
    ----------
    width, frac : int
        W and F of the accumulator.
    unit : int
        Every product and the offset are multiples of ``2**unit``, at least ``-frac``.
    bound : float
        Any partial sum, in whatever order, is at most this in magnitude, whatever the inputs are: with ``bound <=
        2**(53 + unit)`` sums in float64 are exact, with ``2**(24 + unit)`` those in float32; with ``bound <
        2**(width - 1 - frac)`` nothing saturates.
    """

    width: int
    frac: int
    unit: int
    bound: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Products(ExactSums, Unary):
    """Sums of products of a value with weights.

    Parameters
    ----------
    weight : float64 array
        Exact: mantissas times powers of two.
    offset : float64 array or None
        What elements of the source that are always the same add: exact, too.
    register : int
        Bits of the register that adds up, 0 if no sum leaves it. The products of a step are a term. A term, or the sum
        after one, that does not fit into so many bits, in units of ``2**-frac``, ends the sum: it counts as beyond the
        register on the side of that term. Only without an offset, and with a weight of two axes.
    steps : tuple of int
        With a register, the number of the step of every product; they rise, and steps follow one another like that.
    """

    weight: FloatArray
    offset: FloatArray | None = None
    register: int = 0
    steps: tuple[int, ...] = ()

    @property
    def starts(self) -> tuple[int, ...]:
        """Numbers of the products with which the steps begin."""
        return tuple(k for k, step in enumerate(self.steps) if not k or step != self.steps[k - 1])


@dataclass(frozen=True, eq=False, kw_only=True)
class MatMul(Products):
    """``y[..., m]`` from ``offset[m] + sum over k of weight[m, k] * x[..., k]`` for a weight of two axes.

    With three, ``y[..., g, m]`` from ``weight[g, m, k]`` and ``x[..., g, k]``, and ``offset[g, m]``.
    """


@dataclass(frozen=True, eq=False, kw_only=True)
class Depthwise(Products):
    """``y[..., c]`` from ``offset[c] + sum over t of weight[t, c] * x[..., t, c]`` with ``weight[T, C]``."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ProductOf(ExactSums):
    """Products of two values: ``y[*g, ..., m]`` from ``sum over k of x[*g, ..., k] * matrix[*g, m, k]``.

    What the program does with rows of the matrix memory that it writes. All sums of a group ``g`` have one matrix.

    Parameters
    ----------
    x, matrix : Value
    limits : two pairs
        Of x and of the matrix the greatest magnitude, and the k for which all elements are multiples of ``2**k``.
    """

    x: Value
    matrix: Value
    limits: tuple[tuple[float, int], tuple[float, int]]

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.x, self.matrix

    @property
    def groups(self) -> Shape:
        """Axes of the groups."""
        return self.matrix.shape[:-2]

    @property
    def positions(self) -> Shape:
        """Axes of the sums of a group."""
        return self.x.shape[len(self.groups) : -1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Elementwise(ModelNode):
    """An operation of the multifunction units on values that broadcast as in NumPy, rounded once.

    Maximum and minimum order -0 below +0 and give NaN if either is; ReLU is the maximum with +0.
    """

    operation: ElementwiseOperation
    xs: tuple[Value, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.xs


@dataclass(frozen=True, eq=False, kw_only=True)
class Maximum(Unary):
    """The greatest element along one axis of a sample, which goes away: -0 is below +0, NaN if one is.

    With a fill of -inf (``LOWEST``) in front of it, taps outside of a map do not count.
    """

    axis: int


@dataclass(frozen=True, eq=False, kw_only=True)
class TableLookup(Unary):
    """``entries[clamp(rint(x * 2**scale), low, high) - low]``, halves to even.

    An infinity counts as ±65504 and a NaN as 0. Entries are binary16 patterns, whatever they are.
    """

    entries: Bits
    low: int
    high: int
    scale: int
    name: str = "table"
    constant_ends: tuple[bool, bool] = (True, True)


# Loops and the whole -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Body:
    """Nodes in order; of a model, or of one iteration of a loop."""

    nodes: tuple[ModelNode, ...]

    def __iter__(self) -> Iterator[ModelNode]:
        return iter(self.nodes)


@dataclass(frozen=True, eq=False)
class Carried:
    """A value that every iteration gives to the next one.

    ``initial`` is what the first iteration reads as ``param`` (it may be a constant, without a batch), ``result`` what
    an iteration computes for the next one, ``final`` the last result, if anything reads that. All have one shape.
    ``result`` may also be a ``param`` or a value from outside.
    """

    initial: Value
    param: Value
    result: Value
    final: Value | None = None


@dataclass(frozen=True, eq=False)
class Scanned:
    """A source ``[count, *shape]``, maybe a constant: iteration t reads entry t as ``param``, which has a batch."""

    source: Value
    param: Value


@dataclass(frozen=True, eq=False)
class Stacked:
    """The values ``result`` of all iterations, ``output[count, *shape]``."""

    result: Value
    output: Value


@dataclass(frozen=True, eq=False, kw_only=True)
class Loop(ModelNode):
    """``count`` iterations of a body, one after the other: a recurrent layer.

    Nodes of the body may read values from outside of it, constants for instance, besides the parameters. ``output`` is
    the first of the outputs.
    """

    count: int
    body: Body
    carried: tuple[Carried, ...] = ()
    scanned: tuple[Scanned, ...] = ()
    stacked: tuple[Stacked, ...] = ()

    @property
    def params(self) -> tuple[Value, ...]:
        """Values that an iteration is given."""
        return (*(part.param for part in self.carried), *(part.param for part in self.scanned))

    @property
    def inputs(self) -> tuple[Value, ...]:
        inside = {value for node in self.body for value in node.outputs}
        inside.update(self.params)
        read = [value for node in self.body for value in node.inputs]
        read += [part.result for part in self.carried] + [part.result for part in self.stacked]
        sources = [part.initial for part in self.carried] + [part.source for part in self.scanned]
        return tuple(dict.fromkeys([*sources, *(value for value in read if value not in inside)]))

    @property
    def outputs(self) -> tuple[Value, ...]:
        finals = [part.final for part in self.carried if part.final is not None]
        return tuple(finals + [part.output for part in self.stacked])


@dataclass(frozen=True)
class Flags:
    """Sticky flags of a model, as ``concord run`` shows them.

    A flag word has the bits of :class:`concord.spec.formats.Flag`. :mod:`concord.derive.flags` defines what raises
    them.

    Parameters
    ----------
    places : tuple of str
        Values of ``where`` of the nodes, in the order of the program, without places that never raise any.
    always : dict of int
        Flag words that are raised in every run, by place: those of operations on constants.
    """

    places: tuple[str, ...]
    always: dict[str, int]


@dataclass(frozen=True, eq=False)
class Model:
    """Model of the results of a program.

    Parameters
    ----------
    name : str
        For people.
    inputs : tuple of Value
        ``REAL``, with the names that the driver uses in ``names``.
    body : Body
        All nodes.
    outputs : tuple of Value
        ``REAL``.
    names : dict
        The name that the driver uses for every input and output, by name of the value.
    group : int
        Samples that one run of the program computes at a time. If it is not 1, inputs and outputs have an axis of that
        many samples first, inside of the batch; a batch is filled up to a multiple of it with its last sample.
    host_partition : Graph or None
        What the host computes from the outputs in float64, each sample by itself: the graph reads outputs by the name
        the driver uses, and inputs of the model as they are given.
    grids : dict
        By the driver's name, what inputs are rounded to before anything reads them, the host partition included. In the
        body :class:`Prepare` does that.
    front : Graph or None
        What the host computes in float64 from the inputs that are given: its results are inputs of the model, by the
        names that the driver uses.
    flags : Flags or None
        If the model has the sticky flags of the program: then nodes whose output nobody reads are there for them.
    output_types : dict
        Types of outputs of the network, by the driver's name; ``REAL`` for those that are not there. As in
        :func:`concord.graph.element_types.of_type`, floats are rounded once, and of whole numbers NaN becomes 0.
    origin : str
        SHA-256 of the file that it was made of, in hexadecimal; empty if that is not known.
    """

    name: str
    inputs: tuple[Value, ...]
    body: Body
    outputs: tuple[Value, ...]
    names: dict[str, str]
    group: int = 1
    host_partition: Graph | None = None
    grids: dict[str, InputGrid] = field(default_factory=dict)
    front: Graph | None = None
    flags: Flags | None = None
    output_types: dict[str, str] = field(default_factory=dict)
    origin: str = ""

    @property
    def npu_part(self) -> Model:
        """The model without what the host computes: inputs and outputs are those of the NPU."""
        return replace(self, host_partition=None, front=None, output_types={})

    @property
    def sources(self) -> dict[str, Shape]:
        """Shape of a sample of every input that is given, by the name that the driver uses."""
        cut = 1 if self.group > 1 else 0
        own = {self.names[value.name]: value.shape[cut:] for value in self.inputs}
        if self.front is None:
            return own
        first = {name: tuple(self.front.sample_shape(name)) for name in self.front.inputs}
        return first | {name: shape for name, shape in own.items() if name not in self.front.outputs}
