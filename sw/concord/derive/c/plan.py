"""A model as steps in C: what each of them reads, computes and copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from concord.derive import ir
from concord.derive.c.products import BlockView, ProductRuns
from concord.derive.c.storage import CArray, Place, View


@dataclass(frozen=True, eq=False)
class ReadValue:
    """Operand of a node, which is read row by row.

    Parameters
    ----------
    view : View
        Halves, or mantissas.
    blocks : BlockView or None
        Of mantissas.
    own : CArray or None
        If it is computed by the same group: then rows are read at their own position.
    """

    view: View
    blocks: BlockView | None = None
    own: CArray | None = None


@dataclass(frozen=True, eq=False)
class GroupNode:
    """A node of a group, where its rows go, and what they are made of.

    A product of two values reads the whole of ``matrix``, whose blocks are ``runs`` of products.
    """

    node: ir.ModelNode
    target: CArray
    operands: tuple[ReadValue, ...]
    matrix: CArray | None = None
    runs: ProductRuns | None = None


@dataclass(eq=False)
class FusedNodes:
    """Nodes that are computed position by position.

    Parameters
    ----------
    positions : int
    dims : tuple of int
        Sizes of the loops over positions.
    nodes : list of GroupNode
    """

    positions: int
    dims: tuple[int, ...]
    nodes: list[GroupNode] = field(default_factory=list)

    @property
    def made(self) -> set[CArray]:
        """Arrays that the group computes."""
        return {some.target for some in self.nodes}


@dataclass(frozen=True, eq=False)
class ValueCopy:
    """A view that becomes a storage."""

    target: CArray
    view: View


@dataclass(frozen=True, eq=False)
class SliceCopy:
    """Entry t of one that becomes, or comes from, the whole of the other: of a loop over ``count`` entries."""

    target: CArray
    view: View
    count: int
    into: bool


@dataclass(frozen=True, eq=False)
class MatrixCopy:
    """A view that becomes the matrix of a product; exponents of ``blocks`` are those of the target.

    Without blocks it is halves, which become mantissas with an exponent for every one.
    """

    target: CArray
    view: View
    blocks: BlockView | None


@dataclass(eq=False)
class LoopSteps:
    """Iterations of steps.

    Parameters
    ----------
    count : int
    kept : tuple of CArray
        What is kept from one iteration to the next, or grows with them.
    body : list of steps
    """

    count: int
    kept: tuple[CArray, ...]
    body: list[LayerStep]


LayerStep = FusedNodes | ValueCopy | SliceCopy | MatrixCopy | LoopSteps


@dataclass(frozen=True, eq=False)
class LayerSteps:
    """Steps of a layer."""

    layer: str
    nodes: tuple[ir.ModelNode, ...]
    steps: list[LayerStep]


@dataclass(frozen=True, eq=False)
class PreparedInput:
    """An input: its storage, and what the host does to it."""

    name: str
    value: ir.Value
    storage: CArray
    prepare: ir.Prepare | None


@dataclass(frozen=True, eq=False)
class CPlan:
    """A model as steps."""

    inputs: tuple[PreparedInput, ...]
    outputs: tuple[tuple[str, CArray], ...]
    layers: tuple[LayerSteps, ...]


def local_values(made: CPlan) -> set[CArray]:
    """Values that nobody reads outside of the group that computes them."""
    groups, readers = list[FusedNodes](), dict[CArray, set[int]]()

    def visit(steps: Sequence[LayerStep]) -> None:
        for step in steps:
            match step:
                case LoopSteps():
                    visit(step.body)
                case FusedNodes():
                    groups.append(step)
                    for operand in (operand for some in step.nodes for operand in some.operands):
                        for source in operand.view.sources:
                            readers.setdefault(source, set()).add(id(step))
                    for matrix in (some.matrix for some in step.nodes if some.matrix is not None):
                        readers.setdefault(matrix, set()).add(id(step))
                case ValueCopy() | SliceCopy() | MatrixCopy():
                    for source in step.view.sources:
                        readers.setdefault(source, set()).add(id(step))

    for layer in made.layers:
        visit(layer.steps)
    return {
        storage
        for group in groups
        for storage in group.made
        if storage.place is Place.ARENA and not readers.get(storage, set()) - {id(group)}
    }
