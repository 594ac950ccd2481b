"""Layers, each for one group of chains: source, reduction, operations of the multifunction units, destinations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from concord.compiler.ir.cells import Cell
from concord.compiler.ir.layout import Loops, Storage, Walk
from concord.compiler.ir.table_specs import TableSpec
from concord.graph.ir import Shape
from concord.graph.ops.windows import WindowAttributes
from concord.program import Pad, Span, Window
from concord.spec.config import NpuConfig
from concord.spec.isa import FORMS, Op, PipelineStage
from concord.spec.memmap import RegionId
from concord.utils.arrays import Bits, FloatArray, Ids


def pair(values: Sequence[int], missing: int = 1) -> tuple[int, int]:
    """Numbers along two axes; that along the first one is ``missing`` if there is one axis, the second one."""
    return (int(values[0]), int(values[1])) if len(values) == 2 else (missing, int(values[0]))


class Reduction(Enum):
    """Operation on the vectors of a window."""

    NONE = "none"
    DENSE = "dense"
    DEPTHWISE = "depthwise"
    MAX = "max"
    LANES = "maximum of all lanes"


@dataclass(frozen=True)
class LayerWindow:
    """A two-dimensional window: sizes, strides and padding in positions, always as (vertical, horizontal).

    ``size`` is that of the image that is padded.
    """

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    begin: tuple[int, int] = (0, 0)
    size: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, attributes: WindowAttributes, kernel: Shape, size: tuple[int, int]) -> LayerWindow:
        """Window of a node over one or two axes of an image of a size; over one axis it lies along the second one."""
        begin = pair(attributes.pads[: len(kernel)], 0)
        return cls(pair(kernel), pair(attributes.strides), pair(attributes.dilations), begin, size)

    @property
    def taps(self) -> int:
        """Positions of the kernel."""
        return self.kernel[0] * self.kernel[1]

    def place(self, tap: int) -> tuple[int, int]:
        """Row and column of a tap of the first window, in the image without padding."""
        y, x = divmod(tap, self.kernel[1])
        return y * self.dilation[0] - self.begin[0], x * self.dilation[1] - self.begin[1]

    def tap(self, number: int) -> LayerWindow:
        """Windows of one tap: elements that this tap of every window meets."""
        y, x = self.place(number)
        return replace(self, kernel=(1, 1), dilation=(0, 0), begin=(-y, -x))

    def exchanged(self, out: tuple[int, int]) -> LayerWindow:
        """Windows of what a tap of so many windows meets, one for every tap."""
        return replace(self, kernel=out, stride=self.dilation, dilation=self.stride)

    def reversed(self, size: tuple[int, int]) -> LayerWindow:
        """Windows of all that has met an element, over an image of a size with the windows as its positions.

        Their taps are those of the windows in the opposite order.
        """
        (kh, kw), (down, right), (top, left) = self.kernel, self.dilation, self.begin
        begin = (kh - 1) * down - top, (kw - 1) * right - left
        return replace(self, stride=(1, 1), begin=begin, size=size)

    def end(self, out: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of the image up to the last ones that so many windows meet."""
        (y, x), (below, right) = self.place(self.taps - 1), self.stride
        return y + (out[0] - 1) * below + 1, x + (out[1] - 1) * right + 1

    def padded(self, out: tuple[int, int]) -> bool:
        """True if so many windows cover positions outside of the image."""
        beyond = any(end > size for end, size in zip(self.end(out), self.size, strict=True))
        return self.size != (0, 0) and (max(self.begin) > 0 or beyond)

    def over(self, line: int, column: int) -> Window:
        """Window of a chain over an image whose rows are ``line`` and whose columns are ``column`` words apart."""
        return Window.over(self.kernel, self.dilation, line, column)

    def pad(self, out: tuple[int, int]) -> Pad:
        """Bounds of a chain whose outer and inner loops are over rows and columns of windows."""
        return Pad(*self.place(0), *self.stride, *self.size) if self.padded(out) else Pad()


@dataclass(frozen=True)
class Operand:
    """Wide vectors that an operation reads, with strides per row, position and map row: a tensor or a constant.

    ``constant`` are the values, ``[vectors, native]``, or their patterns in uint16; otherwise they lie in ``storage``
    from ``start`` on.
    """

    storage: Storage | None = None
    constant: FloatArray | Bits | None = None
    start: int = 0
    row: int = 0
    inner: int = 0
    outer: int = 0
    tensor: str = ""

    def loops(self, out: tuple[int, int, int]) -> Loops:
        """Turns and strides of the loops in which a layer with results ``out`` reads it."""
        return tuple(zip(out, (self.outer, self.inner, self.row), strict=True))


@dataclass(frozen=True)
class MfuStep:
    """One operation of a multifunction unit, with its operand or its table; ``shift`` is that of ``vv_scale``."""

    op: Op
    operand: Operand | None = None
    spec: TableSpec | None = None
    shift: int | None = None

    @property
    def stages(self) -> tuple[PipelineStage, ...]:
        """Pipeline stages where it can take place."""
        return FORMS[self.op].stages


@dataclass(frozen=True)
class MatrixRows:
    """Vectors of a tensor that are written as rows of a matrix, in front of the product that reads it.

    Parameters
    ----------
    walk : Walk
        Positions are outputs of the product, and the vectors of a position lie as those of its source do.
    tensor : str
        Its name.
    used : FloatArray or None
        ``[vectors, native]``: ones in lanes that count, zeros in others; nothing if all of them do.
    """

    walk: Walk
    tensor: str
    used: FloatArray | None = None

    @property
    def count(self) -> int:
        """Rows of the matrix that are used."""
        return self.walk.height * self.walk.width

    @property
    def key(self) -> Hashable:
        """Equal for the same matrix."""
        walk = self.walk
        return walk.storage, walk.start, walk.loops, None if self.used is None else self.used.tobytes()

    def zeros(self, config: NpuConfig) -> Span | None:
        """Rows of the last tiles that the matrix does not fill; nothing if it fills them."""
        whole, rest = divmod(self.count, config.rows)
        words = self.walk.tiles * config.steps
        return Span(RegionId.MATRIX, whole * words, words, rest) if rest else None


@dataclass(frozen=True)
class Border:
    """Positions around those of a layer, in the storage that its own is part of; a chain for each side fills them.

    Parameters
    ----------
    constant : Storage or None
        The narrow vector that they hold; nothing if they are room that no one reads.
    frame : Storage
        The storage that is filled.
    top, left : int
        Rows and columns of the frame in front of the positions of the layer.
    height, width : int
        Rows and columns of these.
    """

    constant: Storage | None
    frame: Storage
    top: int
    left: int
    height: int
    width: int

    def written(self, rows: int) -> int:
        """Rows of the frame that are complete as soon as so many rows of the layer are."""
        return self.frame.height if rows == self.height else self.top + rows if rows else 0

    def computed(self, written: int) -> int:
        """Inverse of :meth:`written`."""
        return min(max(written - self.top, 0), self.height)

    def boxes(self, y: int, rows: int) -> list[tuple[range, range]]:
        """Rows and columns of the parts of the frame around some rows of the layer."""
        first, last, wide = y == 0, y + rows == self.height, range(self.frame.width)
        above = range(self.top if first else 0)
        below = range(self.top + self.height, self.frame.height) if last else range(0)
        beside = range(self.left), range(self.left + self.width, self.frame.width)
        inside = range(self.top + y, self.top + y + rows)
        boxes = [*((rows, wide) for rows in _together(above, below)), *((inside, part) for part in _together(*beside))]
        return [box for box in boxes if all(box)]


def _together(first: range, second: range) -> list[range]:
    """Two ranges, as one if they have an element each."""
    return [range(first[0], second[0] + 1, second[0] - first[0])] if len(first) == len(second) == 1 else [first, second]


@dataclass
class Layer:
    """One chain, after the chains that write the matrix of a product of two tensors.

    Parameters
    ----------
    name : str
        Of the node it began with.
    source : Walk
        Vectors that are read: positions of the input for a window, else those that are worked on.
    reduction : Reduction
        What the window does.
    weight : FloatArray or None
        Dense: ``[output, ky, kx, elements of a position]``; depthwise: ``[elements of a position, ky, kx]``.
    window : Window
        Only with a reduction.
    out : tuple of int
        Rows of positions, positions, and native vectors of a position of the result.
    tensor : str
        Name of the tensor it computes, with everything that has been fused.
    target : Storage
        Where it lies.
    ids : Ids
        View of the tensor.
    mfu_ops : list of MfuStep
        What the multifunction units do, in order.
    source_tensor : str
        Name of the tensor that is read.
    nodes : list of str
        Nodes of the graph that it covers.
    rows : MatrixRows or None
        Of a dense product without constant weights: the vectors that it multiplies those of ``source`` with.
    stack : int
        Products of matrices beside each other: each has as many vectors of a position of ``source``.
    border : Border or None
        What is written around the result, for windows that reach beyond it.
    second : Walk or None
        As many vectors of another tensor, at the same distances as those of ``source``. The window has two rows, one
        of ``source`` and one of this tensor.
    """

    name: str
    source: Walk
    reduction: Reduction
    weight: FloatArray | None
    window: LayerWindow
    out: tuple[int, int, int]
    tensor: str
    target: Storage
    ids: Ids
    source_tensor: str
    mfu_ops: list[MfuStep] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    rows: MatrixRows | None = None
    stack: int = 1
    border: Border | None = None
    second: Walk | None = None

    @classmethod
    def copied(cls, source: Walk, target: Storage, ids: Ids, source_tensor: str, tensor: str) -> Layer:
        """Layer that writes the vectors of ``source`` as they are, for a tensor whose view is ``ids``."""
        out = (source.height, source.width, source.tiles)
        work = (Reduction.NONE, None, LayerWindow())
        return cls(target.name, source, *work, out, tensor, target, ids, source_tensor)

    def fits(self, more: list[MfuStep]) -> bool:
        """True if the multifunction units can do ``more`` after the operations that they have."""
        stage = PipelineStage.REDUCE
        for mfu_op in [*self.mfu_ops, *more]:
            following = next((s for s in mfu_op.stages if s > stage), None)
            if following is None:
                return False
            stage = following
        return True

    def append(self, more: list[MfuStep]) -> None:
        """Appends ``more`` to the operations of the layer."""
        self.mfu_ops += more
        operands = [mfu_op.operand.storage for mfu_op in more if mfu_op.operand is not None]
        self.target.uniform &= all(storage is None or storage.uniform for storage in operands)

    @property
    def operands(self) -> list[tuple[Operand, Storage]]:
        """Operands that are tensors, each with its storage, in the order of the operations."""
        operands = [mfu_op.operand for mfu_op in self.mfu_ops if mfu_op.operand is not None]
        return [(operand, operand.storage) for operand in operands if operand.storage is not None]

    @property
    def reads(self) -> list[tuple[Storage, int, Loops]]:
        """Storages that it reads, each with the first vector and the loops."""
        operands = [(storage, operand.start, operand.loops(self.out)) for operand, storage in self.operands]
        walks = [self.source, *([self.second] if self.second else []), *([self.rows.walk] if self.rows else [])]
        first, *others = [(walk.storage, walk.start, walk.loops) for walk in walks]
        return [first, *operands, *others]

    def written(self, rows: int) -> int:
        """Rows of the storage that are complete as soon as so many rows of the layer are."""
        return rows if self.border is None else self.border.written(rows)

    def computed(self, written: int) -> int:
        """Inverse of :meth:`written`."""
        return written if self.border is None else self.border.computed(written)

    @property
    def cols(self) -> int:
        """Native vectors that a dense product adds up."""
        return self.source.tiles // self.stack

    @property
    def product(self) -> bool:
        """True if tile engines compute the layer."""
        return self.weight is not None or self.rows is not None

    @property
    def table_specs(self) -> list[TableSpec]:
        """Specifications of the tables."""
        return [mfu_op.spec for mfu_op in self.mfu_ops if mfu_op.spec is not None]

    @property
    def weights(self) -> list[str]:
        """Names of its weights in the matrix memory."""
        return [] if self.weight is None else [f"weight.{self.name}"]

    @property
    def macs(self) -> int:
        """Slots for multiply-accumulates, padding included, without rows of other engines."""
        if self.rows is not None:
            return self.out[0] * self.out[1] * self.out[2] * self.cols * self.target.native**2
        return 0 if self.weight is None else int(self.out[0] * self.out[1] * self.weight.size)


@dataclass
class Recurrent:
    """One direction of a recurrent layer.

    Parameters
    ----------
    name : str
        Of the node, with the number of the direction.
    cell : Cell
        Gates, weights and functions.
    source : Walk
        One position per step.
    time_steps : int
        Number of time steps.
    backward : bool
        From the last step to the first.
    target : Storage
        States h: those of all steps, or one that every step replaces.
    c : Storage or None
        The cell state of an LSTM.
    initial : dict
        Views of the initial states ``h`` and ``c`` that are no constants.
    constants : dict
        Initial states that are constants and not zero.
    """

    name: str
    cell: Cell
    source: Walk
    source_tensor: str
    time_steps: int
    backward: bool
    target: Storage
    c: Storage | None
    initial: dict[str, Walk]
    constants: dict[str, FloatArray]
    tensor: str
    ids: Ids
    nodes: list[str] = field(default_factory=list)

    @property
    def sequence(self) -> bool:
        """True if the states of all steps are kept."""
        return self.target.width > 1

    @property
    def tiles(self) -> int:
        """Native vectors of a state."""
        return self.target.tiles

    @property
    def reads(self) -> list[tuple[Storage, int, Loops]]:
        """Storages that it reads, its own states apart, each with the first vector and the loops."""
        return [(walk.storage, walk.start, walk.loops) for walk in (self.source, *self.initial.values())]

    @property
    def table_specs(self) -> list[TableSpec]:
        """Specifications of the tables."""
        return [(functions, None) for functions in self.cell.functions]

    @property
    def weights(self) -> list[str]:
        """Names of its weights in the matrix memory."""
        return [f"weight.{self.name}.{part}_{gate}" for gate in self.cell.gates for part in "wr"]

    @property
    def out(self) -> tuple[int, int, int]:
        """Rows, positions and vectors of the result."""
        return 1, self.time_steps, self.tiles

    @property
    def macs(self) -> int:
        """Slots for multiply-accumulates of all steps, padding included."""
        native = self.target.native
        per_gate = self.tiles * native * (self.source.tiles + self.tiles) * native
        return self.time_steps * len(self.cell.gates) * per_gate

    @property
    def before(self) -> tuple[int, int]:
        """Position of the initial state, and from a position to that of the next step."""
        if not self.sequence:
            return 0, 0
        return (self.time_steps, -1) if self.backward else (0, 1)


#: Everything that is emitted as a unit.
AnyLayer = Layer | Recurrent
