"""Steps of a model: nodes that are computed together, and copies before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from math import prod

import numpy as np

from concord.derive import ir
from concord.derive.c.plan import (
    CPlan,
    FusedNodes,
    GroupNode,
    LayerStep,
    LayerSteps,
    LoopSteps,
    MatrixCopy,
    PreparedInput,
    ReadValue,
    SliceCopy,
    ValueCopy,
)
from concord.derive.c.products import HALF_LAYOUT, BlockView, ProductRuns, block_view, constant_codes, matrix_runs
from concord.derive.c.storage import CArray, NumberForm, Place, StoredBlocks, View, moved, whole
from concord.derive.c.views import RowAccess, reach
from concord.derive.names import Names
from concord.spec.formats import ExponentMode
from concord.utils.arrays import Ids

_SOURCES = (ir.Constant, ir.Prepare, ir.ToBinary16, ir.ToReal)
_MOVES = (ir.Gather, ir.Reshape, ir.Transpose, ir.Slice, ir.Concat, ir.MapWindows)


def plan(model: ir.Model, names: Names) -> CPlan:
    """The steps of a model; ``names`` are those of the file."""
    return _Planner(model, names).plan()


def port_names(model: ir.Model, names: Names) -> tuple[list[str], list[str]]:
    """Names of inputs and of outputs in C."""
    return [names.new(value.name) for value in model.inputs], [names.new(value.name) for value in model.outputs]


class _Planner:
    def __init__(self, model: ir.Model, names: Names):
        self.model, self.names = model, names
        self.input_names, self.output_names = port_names(model, names)
        self.views: dict[ir.Value, View] = {}
        self.copies: list[ValueCopy | SliceCopy] = []
        self._copied: dict[tuple[CArray, ...], list[tuple[View, CArray]]] = {}
        self.steps: list[LayerStep] = []
        self.inputs: list[PreparedInput] = []
        self.outputs: dict[ir.Value, tuple[str, CArray]] = {}

    def plan(self) -> CPlan:
        """All steps, with the forms that storages are read in."""
        prepared: dict[ir.Value, ir.Value] = {}
        for node in self.model.body:
            if isinstance(node, ir.Prepare):
                if node.x not in self.model.inputs or node.x in prepared:
                    raise ValueError(f"Prepare of {node.layer or node.output.name} must read an input, alone, in C")
                prepared[node.x] = node.output
        prepares = {node.x: node for node in self.model.body if isinstance(node, ir.Prepare)}
        for value, name in zip(self.model.inputs, self.input_names, strict=True):
            storage = CArray(name, value.shape, Place.INPUT)
            prepare = prepares.get(value)
            self.views[value if prepare is None else prepare.output] = whole(storage)
            self.inputs.append(PreparedInput(self.model.names[value.name], value, storage, prepare))
        layers = []
        for layer, pairs in groupby(_ordered(self.model.body.nodes), key=lambda pair: pair[0]):
            self.steps, nodes = [], tuple(node for _, node in pairs)
            for node in nodes:
                self._node(node)
            if self.steps:
                layers.append(LayerSteps(layer, nodes, self.steps))
        self._forms()
        outputs = tuple(self.outputs[value] for value in self.model.outputs)
        return CPlan(tuple(self.inputs), outputs, tuple(layers))

    def _forms(self) -> None:
        """Extends the forms of copied arrays by those of their copies."""
        changed = True
        while changed:
            changed = False
            for copy in self.copies:
                for source in copy.view.sources:
                    new = copy.target.forms - source.forms
                    changed |= bool(new)
                    source.forms |= new

    # Nodes ------------------------------------------------------------------------------------------

    def _node(self, node: ir.ModelNode) -> None:
        match node:
            case ir.Constant():
                storage = CArray(self.names.new(node.output.name), node.data.shape, Place.CONSTANT, data=node.data)
                self.views[node.output] = whole(storage)
            case ir.Prepare():
                pass
            case ir.ToBinary16():
                if node.x not in self.views:
                    raise ValueError(f"{node.layer or node.output.name} must read an input as it is prepared, in C")
                self.views[node.output] = self.views[node.x]
            case ir.Loop():
                self._loop(node)
            case ir.ProductOf() if node.groups:
                self._grouped(node)
            case ir.ProductOf():
                self._product_of(node)
            case _ if isinstance(node, _MOVES):
                if any(x not in self.views for x in node.inputs):
                    raise ValueError(f"{node.layer or node.output.name} must read inputs as they are prepared, in C")
                self.views[node.output] = moved(node, [self.views[x] for x in node.inputs])
            case ir.Products() | ir.Elementwise() | ir.Quantise() | ir.Maximum() | ir.TableLookup() | ir.ToReal():
                self._compute(node)
            case _:
                raise ValueError(f"{type(node).__name__} of {node.layer or node.output.name} has no form in C")

    def _compute(self, node: ir.ModelNode) -> None:
        """Add a node to the last group if that reaches its operands, else to a new one."""
        target, views = self._target(node), self._operand_views(node)
        group = self.steps[-1] if self.steps and isinstance(self.steps[-1], FusedNodes) else None
        operands = None
        if group is not None and _fits(node, target, group.positions):
            operands = self._operands(node, views, group)
        if group is None or operands is None:
            positions = _positions(node)
            group = FusedNodes(positions, _dims(node, views, positions))
            views = [view if _usable(view, group.dims, node) else whole(self._copy(view)) for view in views]
            operands = self._operands(node, views, group)
            assert operands is not None
            self.steps.append(group)
        group.nodes.append(GroupNode(node, target, operands))
        self.views[node.output] = whole(target)

    def _grouped(self, node: ir.ProductOf) -> None:
        """A product for each group."""
        parts = []
        for group in np.ndindex(*node.groups):
            factors = [ir.Value(value.name, value.shape[len(group) :]) for value in node.inputs]
            for own, value in zip(factors, node.inputs, strict=True):
                view = self.views[value]
                self.views[own] = View(view.sources, view.index[group], view.fill)
            output = ir.Value(node.output.name, node.output.shape[len(group) :])
            self._product_of(replace(node, output=output, x=factors[0], matrix=factors[1]))
            parts.append(output)
        index = np.arange(node.output.size).reshape(node.output.shape)
        gather = ir.Gather(output=node.output, layer=node.layer, xs=tuple(parts), index=index)
        self.views[node.output] = moved(gather, [self.views[part] for part in parts])

    def _product_of(self, node: ir.ProductOf) -> None:
        """Rows of the matrix are those of a storage; it is copied if they have blocks that begin elsewhere."""
        target, (x, matrix) = self._target(node), (self.views[value] for value in node.inputs)
        positions = _positions(node)
        dims = _dims(node, [x], positions)
        x = x if _usable(x, dims, node) else whole(self._copy(x))
        blocks, own = block_view(x), block_view(matrix)
        runs, which = matrix_runs((1,) * node.x.shape[-1] if blocks is None else blocks.sizes, own)
        storage = self._matrix(matrix, own, runs, which)
        group = FusedNodes(positions, dims)
        operands = self._operands(node, [x], group)
        assert operands is not None
        group.nodes.append(GroupNode(node, target, operands, storage, runs))
        self.steps.append(group)
        self.views[node.output] = whole(target)

    def _matrix(self, view: View, blocks: BlockView | None, runs: ProductRuns, which: Ids) -> CArray:
        """A storage of the mantissas and exponents of a matrix, these by run."""
        if blocks is not None and runs.sizes == blocks.sizes and view.identity:
            (storage,) = view.sources
            if np.array_equal(blocks.exponents.index.reshape(-1), np.arange(blocks.exponents.index.size)):
                storage.forms.add(NumberForm.CODES)
                return storage
        mant = HALF_LAYOUT.mant if blocks is None else blocks.layout.mant
        layout = StoredBlocks(mant, runs.sizes, runs.least, runs.greatest)
        storage = CArray(self.names.new("matrix"), view.index.shape, block=layout, forms={NumberForm.CODES})
        for source in view.sources:
            source.forms.add(NumberForm.HALF if blocks is None else NumberForm.CODES)
        if blocks is not None:
            exponents = replace(blocks.exponents, index=blocks.exponents.index[..., which], window=None, inner=None)
            blocks = replace(blocks, exponents=exponents, sizes=runs.sizes)
        self.steps.append(MatrixCopy(storage, view, blocks))
        return storage

    def _target(self, node: ir.ModelNode) -> CArray:
        value = node.output
        if isinstance(node, ir.ToReal):
            name = self.output_names[self.model.outputs.index(value)]
            storage = CArray(name, value.shape, Place.OUTPUT, forms={NumberForm.HALF})
            self.outputs[value] = self.model.names[value.name], storage
            return storage
        name, block = self.names.new(value.name), None
        if isinstance(node, ir.Quantise):
            block = _blocks(node)
        return CArray(name, value.shape, block=block)

    def _operand_views(self, node: ir.ModelNode) -> list[View]:
        if isinstance(node, ir.Elementwise):
            return [_broadcast(self.views[x], node.output.shape) for x in node.xs]
        (x,) = node.inputs
        view = self.views[x]
        if isinstance(node, ir.Maximum):
            axis = node.axis % len(node.x.shape)
            if axis < len(node.x.shape) - 2:
                view = replace(view, index=np.moveaxis(view.index, axis, -1), window=None, inner=None)
        return [view]

    def _operands(self, node: ir.ModelNode, views: Sequence[View], group: FusedNodes) -> tuple[ReadValue, ...] | None:
        """Operands as a group reaches them; ``None`` if it does not."""
        operands = []
        for view in views:
            own = next((source for source in view.sources if source in group.made), None)
            if own is not None:
                if len(view.sources) > 1 or not _own_rows(view, own, group.positions):
                    return None
            elif not _usable(view, group.dims, node):
                return None
            blocks = block_view(view) if isinstance(node, ir.ExactSums) else None
            operands.append(ReadValue(view, blocks, own))
        for operand in operands:
            form = NumberForm.HALF if operand.blocks is None else NumberForm.CODES
            for source in operand.view.sources:
                source.forms.add(form)
        return tuple(operands)

    def _copy(self, view: View) -> CArray:
        """A storage with the elements of a view."""
        blocks = block_view(view)
        layout = None if blocks is None else replace(blocks.layout, sizes=blocks.sizes)
        for other, storage in self._copied.setdefault(view.sources, []):
            if other.index.shape == view.index.shape and np.array_equal(other.index, view.index):
                if np.array_equal(other.fill, view.fill):
                    return storage
        storage = CArray(self.names.new("copy"), view.index.shape, block=layout)
        copy = ValueCopy(storage, view)
        self.copies.append(copy)
        self.steps.append(copy)
        self._copied[view.sources].append((view, storage))
        return storage

    # Loops ------------------------------------------------------------------------------------------

    def _loop(self, loop: ir.Loop) -> None:
        copied, self._copied = self._copied, {}
        params: dict[ir.Value, CArray] = {}
        for carried in loop.carried:
            initial = self.views[carried.initial]
            layout = _layout_of(carried.result, loop.body)
            if layout is not None and not _starts_as(initial, layout):
                layout = None
            param = params[carried.param] = CArray(
                self.names.new(carried.param.name), carried.param.shape, block=layout
            )
            self._add(ValueCopy(param, initial))
        slices = []
        for scanned in loop.scanned:
            view = self.views[scanned.source]
            if not isinstance(reach(view, (loop.count,)), RowAccess):
                view = whole(self._copy(view))
            blocks = block_view(view)
            layout = None if blocks is None or not scanned.param.shape else replace(blocks.layout, sizes=blocks.sizes)
            param = params[scanned.param] = CArray(
                self.names.new(scanned.param.name), scanned.param.shape, block=layout
            )
            slices.append(SliceCopy(param, view, loop.count, False))
        stacks = {
            part: CArray(self.names.new(part.output.name), part.output.shape, block=_layout_of(part.result, loop.body))
            for part in loop.stacked
        }
        outer, self.steps = self.steps, []
        for some in slices:
            self._add(some)
        self.views |= {value: whole(storage) for value, storage in params.items()}
        for node in loop.body:
            self._node(node)
        for part, storage in stacks.items():
            self._add(SliceCopy(storage, self.views[part.result], loop.count, True))
        news = [(params[part.param], self.views[part.result]) for part in loop.carried]
        news = [(param, view) for param, view in news if not (view.identity and view.sources == (param,))]
        own = {*params.values()}
        for k, (param, view) in enumerate(news):
            if own & {*view.sources}:
                kept = CArray(self.names.new("next"), param.shape, block=param.block)
                self._add(ValueCopy(kept, view))
                news[k] = (param, whole(kept))
        for param, view in news:
            if param.block is not None and not _starts_as(view, param.block):
                raise ValueError(f"the recurrence of {loop.layer or loop.output.name} must keep its blocks, in C")
            self._add(ValueCopy(param, view))
        body, self.steps = self.steps, outer
        self.steps.append(LoopSteps(loop.count, (*params.values(), *stacks.values()), body))
        for carried in loop.carried:
            if carried.final is not None:
                self.views[carried.final] = whole(params[carried.param])
        for part, storage in stacks.items():
            self.views[part.output] = whole(storage)
        self._copied = copied

    def _add(self, copy: ValueCopy | SliceCopy) -> None:
        self.copies.append(copy)
        self.steps.append(copy)


def _ordered(nodes: Sequence[ir.ModelNode]) -> list[tuple[str, ir.ModelNode]]:
    """Nodes with the layer whose function has them.

    What no chain does, such as the conversion of an input, belongs to the layer that reads it first, and stands in
    front of its reader. Outputs are written by the layer that computes them.
    """
    maker = {value: node for node in nodes for value in node.outputs}
    readers: dict[ir.Value, ir.ModelNode] = {}
    for node in nodes:
        for value in () if isinstance(node, ir.ToReal) else node.inputs:
            readers.setdefault(value, node)
    waiting: dict[ir.ModelNode, list[ir.ModelNode]] = {}
    after: dict[ir.ModelNode, list[ir.ModelNode]] = {}
    first: list[ir.ModelNode] = []
    for node in nodes:
        if isinstance(node, ir.ToReal) and not isinstance(maker.get(node.x, node), _SOURCES):
            after.setdefault(maker[node.x], []).append(node)
        elif isinstance(node, (*_MOVES, ir.Quantise)) and node.output in readers and not _in_chain(node):
            waiting.setdefault(readers[node.output], []).append(node)
        else:
            first.append(node)
    ordered: list[tuple[str, ir.ModelNode]] = []

    def put(node: ir.ModelNode, layer: str) -> None:
        for other in waiting.get(node, ()):
            put(other, layer)
        ordered.append((layer, node))
        for other in after.get(node, ()):
            put(other, layer)

    for node in first:
        put(node, node.layer)
    return ordered


def _in_chain(node: ir.ModelNode) -> bool:
    return any(pc >= 0 for pc in node.pcs)


def _positions(node: ir.ModelNode) -> int:
    """Rows that a node is computed in."""
    return prod(_front(node))


def _front(node: ir.ModelNode) -> ir.Shape:
    """The axes of its positions."""
    grouped = isinstance(node, ir.MatMul) and node.weight.ndim == 3
    return node.output.shape[: len(node.output.shape) - 1 - grouped]


def _fits(node: ir.ModelNode, target: CArray, positions: int) -> bool:
    """True if a node can be computed at the positions of a group, with the rest of it as a row."""
    if isinstance(node, ir.Elementwise | ir.TableLookup | ir.ToReal):
        return target.size % positions == 0
    if isinstance(node, ir.Quantise):
        return target.size % (positions * node.output.shape[-1]) == 0
    return _positions(node) == positions


def _dims(node: ir.ModelNode, views: Sequence[View], positions: int) -> tuple[int, ...]:
    """Sizes of loops with which most operands are reached."""
    windows = [view.window.output.shape[:2] for view in views if view.window is not None]
    fitting = [window for window in windows if prod(window) == positions]
    candidates = [(positions,), *fitting, tuple(size for size in _front(node) if size > 1) or (1,)]
    return max(candidates, key=lambda dims: sum(_usable(view, dims, node) for view in views))


def _blocks(node: ir.Quantise) -> StoredBlocks:
    """Blocks that a conversion makes."""
    if node.mode is ExponentMode.STATIC:
        return StoredBlocks(node.form.mant, node.blocks, node.exp, node.exp)
    greatest = max(node.form.exp_min, min(node.form.exp_max, 15 - node.form.headroom))
    return StoredBlocks(node.form.mant, node.blocks, node.form.exp_min, greatest)


def _broadcast(view: View, shape: ir.Shape) -> View:
    if view.index.shape == shape:
        return view
    return View(view.sources, np.ascontiguousarray(np.broadcast_to(view.index, shape)), view.fill)


def _usable(view: View, dims: tuple[int, ...], node: ir.ModelNode) -> bool:
    """True if a node can read a view in loops of these sizes."""
    access = reach(view, dims)
    if access is None:
        return False
    if isinstance(node, ir.Elementwise | ir.TableLookup | ir.ToReal):
        return isinstance(access, RowAccess) and access.step is not None
    if isinstance(node, ir.ExactSums):
        blocks = block_view(view)
        return blocks is None or reach(blocks.exponents, dims) is not None
    return True


def _own_rows(view: View, own: CArray, positions: int) -> bool:
    """True if rows at every position are parts, in the same way, of those that are computed there."""
    if view.index.size % positions or own.size % positions or view.index.min(initial=0) < 0:
        return False
    row = own.size // positions
    relative = view.index.reshape(positions, -1) - np.arange(positions)[:, None] * row
    return bool((relative == relative[0]).all() and relative[0].min() >= 0 and relative[0].max() < row)


def _layout_of(value: ir.Value, body: ir.Body) -> StoredBlocks | None:
    """The blocks of what a body computes, if it ends with a conversion."""
    for node in body:
        if node.output is value and isinstance(node, ir.Quantise):
            return _blocks(node)
    return None


def _starts_as(view: View, layout: StoredBlocks) -> bool:
    """True if a view has these blocks."""
    if view.identity and view.sources[0].data is not None:
        return constant_codes(view.sources[0].data, layout) is not None
    blocks = block_view(view)
    if blocks is None or blocks.sizes != layout.sizes or blocks.layout.kind != layout.kind:
        return False
    return layout.least <= blocks.layout.least and blocks.layout.greatest <= layout.greatest
