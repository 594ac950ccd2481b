"""Layers as the data-type pass sees them [dtype-pass]: it decides which memories hold their tensors.

A tensor of this dataflow is a storage with addresses of its own, as all parts of it lie in the same memories. The pass
then knows what a graph does not say: which nodes one chain computes, whose results lie in one storage, what a recurrent
layer keeps between its steps, and which outputs leave narrow.
"""

from __future__ import annotations

from concord.compiler.ir.layers import AnyLayer, Layer, MfuStep, Recurrent, Reduction
from concord.compiler.ir.layout import Storage
from concord.compiler.lowering.lowered import Lowered
from concord.graph.ops import OperatorKind
from concord.graph.passes.dtypes import Dataflow, DataflowNode, Dtype, Types, assign
from concord.operations import OPERATIONS

#: Factors of the pass: exponents of a tensor in narrow memory are the same for all of its readers.
_FACTORS = {Dtype.NARROW: 1.0, Dtype.WIDE: 0.0}


def kind_of(layer: AnyLayer) -> OperatorKind:
    """Treatment of number formats by a layer: products are quantised; maxima and ReLU alone compute no new values.

    A maximum over lanes reads wide: padding lanes may hold the least number there is, and a block with it nothing else.
    """
    if isinstance(layer, Recurrent) or layer.reduction in (Reduction.DENSE, Reduction.DEPTHWISE):
        return OperatorKind.QUANTISED
    moves = layer.reduction is not Reduction.LANES and all(map(_moves, layer.mfu_ops))
    return OperatorKind.MOVING if moves else OperatorKind.PRECISE


def _moves(mfu_op: MfuStep) -> bool:
    return mfu_op.operand is None and mfu_op.spec is None and not OPERATIONS[mfu_op.op].rounds


def operation(index: int, layer: AnyLayer) -> str:
    """Name of a layer in the dataflow."""
    return f"{index} {layer.name}"


def tensors(lowered: Lowered) -> dict[Storage, str]:
    """Names in the dataflow of all storages with addresses of their own."""
    names: dict[Storage, str] = {}
    for storage in lowered.storages.roots:
        taken = [name for name in names.values() if name.partition("#")[0] == storage.name]
        names[storage] = f"{storage.name}#{len(taken)}" if taken else storage.name
    return names


def dataflow(lowered: Lowered) -> Dataflow:
    """The layers as operations: what they read first is their source, after it are their operands."""
    names = tensors(lowered)
    written = [*(storage for storage, _ in lowered.inputs.values()), *lowered.constants]
    inputs = dict.fromkeys(names[storage.root] for storage in written)
    outputs = (
        (names[storage.root], _FACTORS[Dtype.NARROW if name in lowered.narrow else Dtype.WIDE])
        for name in lowered.graph.outputs
        for storage in lowered.storages.of(lowered.views[name])
    )
    operations = (_operation(index, layer, names) for index, layer in enumerate(lowered.layers))
    return Dataflow(tuple(inputs), tuple(operations), tuple(outputs))


def _operation(index: int, layer: AnyLayer, names: dict[Storage, str]) -> DataflowNode:
    if isinstance(layer, Recurrent):
        read = [layer.source.storage, *(walk.storage for walk in layer.initial.values())]
        keeps = tuple((names[storage.root], _FACTORS[kind]) for storage, kind in kept(layer))
    else:
        read, keeps = [layer.source.storage, *(storage for _, storage in layer.operands)], ()
        read += [] if layer.rows is None else [layer.rows.walk.storage]
    kind = kind_of(layer)
    states = frozenset(range(1, len(read))) if kind is OperatorKind.QUANTISED else frozenset[int]()
    if isinstance(layer, Layer) and layer.second is not None:
        read.append(layer.second.storage)
    made = dict.fromkeys([names[layer.target.root], *(name for name, _ in keeps)])
    inputs = tuple(names[storage.root] for storage in read)
    return DataflowNode(operation(index, layer), kind, inputs, tuple(made), states, keeps)


def kept(layer: Recurrent) -> list[tuple[Storage, Dtype]]:
    """States that a recurrent layer keeps: products read h narrow, element-wise operations read c, and some h, wide."""
    states = [(layer.target, Dtype.NARROW), *([(layer.target, Dtype.WIDE)] if layer.cell.wide_state else [])]
    return [*states, *([(layer.c, Dtype.WIDE)] if layer.c is not None else [])]


def data_types(lowered: Lowered) -> Types:
    """Types of the tensors that the layers read and write: narrow or wide."""
    return assign(dataflow(lowered))


def elements(lowered: Lowered) -> dict[str, int]:
    """Elements of all tensors of the dataflow as they lie in memory, with the lanes that pad their vectors."""
    return {name: storage.vectors * storage.native for storage, name in tensors(lowered).items()}
