"""States between two passes of the compiler: a frozen dataclass each, which has all values of the state before.

A class that declares a value of its base once more says that its pass has changed it. :class:`Prepared`,
:class:`LoweredState`, :class:`Planned`, :class:`Emitted` and :class:`Linked` are the ends of levels; the classes
between them hold what is there while a level is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from concord.compiler.emission.emit import Emitter
from concord.compiler.ir.arrangement import Arrangement, InputGrid
from concord.compiler.ir.quantized import Inexact
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.inputs import Unfold
from concord.compiler.lowering.lowered import Lowered, VarianceRange
from concord.compiler.memory.plan import Plan
from concord.graph.ir import Graph
from concord.graph.passes.dtypes import Types
from concord.image import Image
from concord.spec.config import NpuConfig


@dataclass(frozen=True)
class Submitted:
    """A network, what to compile it for, and samples per run."""

    graph: Graph
    config: NpuConfig
    batch: int


@dataclass(frozen=True)
class Ordered(Submitted):
    """Nodes are in the order that follows from the graph alone."""

    graph: Graph


@dataclass(frozen=True)
class Interpreted(Ordered):
    """Static exponents by tensor, and grids by input, that the scales of a quantised model mean."""

    exponents: dict[str, int]
    grids: dict[str, InputGrid]


@dataclass(frozen=True)
class Prepared(Interpreted):
    """Graph that the NPU computes, and the graph that the host computes after it, if there is one."""

    npu: Graph
    host: Graph | None


@dataclass(frozen=True)
class Requested(Prepared):
    """Formats that are asked for."""

    requested: Formats


@dataclass(frozen=True)
class Equalised(Requested):
    """Channels are divided by powers of two."""

    npu: Graph


@dataclass(frozen=True)
class Bounded(Equalised):
    """Formats of everything; bounds where there are no samples."""

    formats: Formats


@dataclass(frozen=True)
class Decomposed(Bounded):
    """Functions that one table does not hold are several nodes."""

    npu: Graph


@dataclass(frozen=True)
class Rounded(Decomposed):
    """Nodes say how codes are computed that are coarser than mantissas."""

    npu: Graph


@dataclass(frozen=True)
class Batched(Rounded):
    """The graph of all samples of a run."""

    batched: Graph


@dataclass(frozen=True)
class Decided(Batched):
    """Decisions of a strategy on layers: how much of a first window the host may unfold, and how to normalise."""

    unfold: Unfold
    variance_range: VarianceRange


@dataclass(frozen=True)
class LoweredState(Decided):
    """Layers in execution order."""

    lowered: Lowered


@dataclass(frozen=True)
class Typed(LoweredState):
    """Types of tensors: narrow or wide."""

    types: Types


@dataclass(frozen=True)
class Planned(Typed):
    """Memories that hold each tensor, and for how long; nothing has an address."""

    plan: Plan


@dataclass(frozen=True)
class Filled(Planned):
    """A program without instructions; weights, constants and tables have addresses."""

    program: Emitter


@dataclass(frozen=True)
class Placed(Filled):
    """Tensors have addresses."""

    plan: Plan
    program: Emitter


@dataclass(frozen=True)
class Emitted(Placed):
    """Instructions of all layers are written."""

    program: Emitter


@dataclass(frozen=True)
class Arranged(Emitted):
    """Arrangement of samples as ports, and of ports as results."""

    arrangement: Arrangement


@dataclass(frozen=True)
class Exact(Arranged):
    """Differences of a quantised model on the NPU from its codes."""

    lost: tuple[Inexact, ...]


@dataclass(frozen=True)
class Linked(Exact):
    """The image, in memory words."""

    image: Image


@dataclass(frozen=True)
class Fed(Linked):
    """The image says how the feeder lays out raw inputs."""

    image: Image
