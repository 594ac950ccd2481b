"""Nodes, operands, operations and memory of a layer, as the compiler has decided them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from concord.compiler.ir.layers import AnyLayer, Layer, MfuStep, Recurrent, Reduction
from concord.compiler.ir.layout import PAD, Storage
from concord.compiler.ir.table_specs import Functions
from concord.compiler.memory.copies import Copy
from concord.compiler.memory.footprint import weight_bits, weight_parts
from concord.compiler.model import Compiled
from concord.graph.cost import node_macs
from concord.graph.ir import Node
from concord.graph.ops import operator_of
from concord.graph.ops.recurrent import RecurrentAttributes
from concord.host.copied_weights import CopiedWeights
from concord.networks.layer_results import Counts, parts
from concord.report.facts import Memory
from concord.report.layer_facts import Read, Space, Work
from concord.spec.config import NpuConfig
from concord.spec.isa import COPY_UNIT, Mem, Op
from concord.spec.memmap import Reg, RegionId

#: Pipeline stages of the multifunction units in words.
_WORDS = {
    Op.VV_MUL: "times",
    Op.VV_ADD: "add",
    Op.VV_SUB: "subtract",
    Op.VV_RSUB: "subtract from",
    Op.VV_MAX: "max with",
    Op.VV_MIN: "min with",
    Op.VV_SCALE: "scale to codes by",
}
#: Units of the words of the memories.
_UNITS = {
    RegionId.PROGRAM: "instructions",
    RegionId.MATRIX: "words",
    RegionId.NARROW: "vectors",
    RegionId.WIDE: "vectors",
    RegionId.TABLE: "entries",
    RegionId.SLOTS: "tables",
}


def covered(compiled: Compiled, layer: AnyLayer) -> list[Node]:
    """Nodes of the graph that a layer covers."""
    nodes = {node.name: node for node in compiled.graph.nodes}
    if isinstance(layer, Layer):
        return [nodes[name] for name in layer.nodes]
    tensors = {part.tensor for part in parts(compiled.lowered, layer)}
    return [node for node in nodes.values() if tensors & set(node.outputs)]


def kind(compiled: Compiled, layer: AnyLayer) -> str:
    """Reduction of a chain, ``copy`` if it only copies elements, or operator of a recurrent layer."""
    if layer.name in compiled.lowered.copied:
        return "copy"
    return layer.reduction.value if isinstance(layer, Layer) else covered(compiled, layer)[0].op


def mfu_ops(layer: AnyLayer) -> tuple[str, ...]:
    """Operations of the multifunction units; of a recurrent layer the functions of its gates."""
    if isinstance(layer, Layer):
        return tuple(map(_mfu_op, layer.mfu_ops))
    return tuple(dict.fromkeys((_functions(functions) for functions, _ in layer.table_specs)))


def _mfu_op(mfu_op: MfuStep) -> str:
    if mfu_op.spec is not None:
        return _functions(mfu_op.spec[0])
    if mfu_op.operand is None:
        return mfu_op.op.name.removeprefix("V_").lower()
    return f"{_WORDS[mfu_op.op]} {'constant' if mfu_op.operand.constant is not None else mfu_op.operand.tensor}"


def _functions(functions: Functions) -> str:
    return " of ".join(name for name, _ in reversed(functions))


def reads(compiled: Compiled, index: int) -> tuple[Read, ...]:
    """Tensors that a layer reads."""
    layer, plan = compiled.lowered.layers[index], compiled.plan
    if isinstance(layer, Recurrent):
        source = _read(compiled, index, layer.source_tensor, "narrow", "source", layer.source.storage)
        states = [(f"initial {key}", walk.storage) for key, walk in layer.initial.items()]
        return (source, *(_read(compiled, index, s.name, "wide", role, s) for role, s in states))
    memory = plan.sources[index].name.lower()
    operands = [_read(compiled, index, layer.source_tensor, memory, "source", layer.source.storage)]
    for mfu_op in layer.mfu_ops:
        if mfu_op.operand is not None and mfu_op.operand.storage is not None:
            storage = mfu_op.operand.storage
            memory = "wide" if plan.copy(storage, Mem.WIDE) is not None else "narrow"
            operands.append(_read(compiled, index, mfu_op.operand.tensor, memory, "operand", storage))
    if layer.second is not None:
        storage = layer.second.storage
        writer = _writer(compiled, index, storage)
        tensor = storage.name if writer is None else compiled.lowered.layers[writer].tensor
        operands.append(_read(compiled, index, tensor, "narrow", "source", storage))
    return tuple(operands)


def _read(compiled: Compiled, index: int, tensor: str, memory: str, role: str, storage: Storage) -> Read:
    writer = _writer(compiled, index, storage)
    inputs = [name for name, (there, _) in compiled.lowered.inputs.items() if there.root is storage.root]
    return Read(tensor, memory, role, writer, inputs[0] if writer is None and inputs else None)


def leaves(compiled: Compiled, layer: AnyLayer) -> bool:
    """True if an output of the NPU is made of what a layer computes."""
    lowered = compiled.lowered
    outputs = {s.root for name in lowered.graph.outputs for s in lowered.storages.of(lowered.views[name])}
    return any(storage.root in outputs for storage in _written(layer))


def _writer(compiled: Compiled, index: int, storage: Storage) -> int | None:
    """The last layer before ``index`` that writes to a storage, or a part of the larger one that it belongs to."""
    layers = compiled.lowered.layers[:index]
    exact = [k for k, layer in enumerate(layers) if storage in _written(layer)]
    whole = [k for k, layer in enumerate(layers) if storage.root in [target.root for target in _written(layer)]]
    return max(exact or whole, default=None)


def _written(layer: AnyLayer) -> list[Storage]:
    return [layer.target, *([layer.c] if isinstance(layer, Recurrent) and layer.c is not None else [])]


def work(compiled: Compiled, layer: AnyLayer, counts: Counts, cycles: int) -> Work:
    """Multiply-accumulates, steps and cycles of a layer for one run; ``counts`` are those of this layer alone."""
    batch = compiled.package.arrangement.batch
    macs = sum(_macs(compiled, layer, node) for node in covered(compiled, layer))
    dense, depthwise, vectors = (counts[reg] for reg in (Reg.DENSE_STEPS, Reg.DEPTHWISE_STEPS, Reg.VECTORS))
    least = cycles_of_steps(compiled.image.config, dense, depthwise, vectors)
    return Work(macs * batch, dense, depthwise, vectors, least, cycles)


def _macs(compiled: Compiled, layer: AnyLayer, node: Node) -> int:
    """Multiply-accumulates of a node in a layer: of one direction, or without those of channels that are one element.

    Their weights are added up, and channels that are always zero have none.
    """
    macs = node_macs(compiled.graph, node)
    if isinstance(layer, Recurrent):
        return macs // len(node.attributes(RecurrentAttributes).W)
    if layer.reduction is not Reduction.DENSE or node.name != layer.name or operator_of(node).affine is None:
        return macs
    lanes = layer.source.lanes
    return macs * len(np.unique(lanes[lanes != PAD])) // len(lanes)


def cycles_of_steps(config: NpuConfig, dense_steps: int, depthwise_steps: int, vectors: int) -> int:
    """Fewest cycles: the tile engines make a step per cycle, and vectors leave the pipe one after the other.

    In an element-serial configuration a step takes as many cycles as its multiply-accumulates need, and nothing
    overlaps.
    """
    if not config.serial:
        return max(dense_steps + depthwise_steps, vectors * config.beats)
    per_step = config.rows * config.lanes // config.macs
    return dense_steps * per_step + -(-depthwise_steps * config.native // config.macs) + vectors * config.beats


def space(compiled: Compiled, index: int, copies: Mapping[int, CopiedWeights]) -> Space:
    """Words of the memories that belong to a layer; ``copies`` are those of a run, by the column they begin with."""
    layer, plan, allocations = compiled.lowered.layers[index], compiled.plan, compiled.allocations
    tensors: list[Copy] = [*plan.temporaries.get(index, {}).values()]
    tensors += plan.streamed[index].buffers if index in plan.streamed else ()
    if isinstance(layer, Recurrent):
        cell = layer.cell
        keys = [f"{part}_{gate}" for part in ("bias", "inner", "peephole") for gate in cell.gates]
        constants = [f"constant.{layer.name}.{key}" for key in (*keys, "initial_h", "initial_c")]
    else:
        constants = [f"constant.{layer.name}.{k}" for k in range(len(layer.mfu_ops))]
    vectors = {mem: sum(copy.vectors for copy in tensors if copy.mem is mem) for mem in Mem}
    for storage in _written(layer):
        for mem in Mem:
            copy = plan.copy(storage, mem)
            vectors[mem] += 0 if copy is None else storage.vectors if copy.size is None else copy.size
    there = weight_parts(layer, allocations)
    words = sum(item.count for item in there if item.region is RegionId.MATRIX)
    spans = [range(item.addr, item.addr + item.count) for item in there if item.region is RegionId.DRAM]
    copied = (each for column, each in copies.items() if any(column // COPY_UNIT in span for span in spans))
    held = sum(allocations[name].count for name in constants if name in allocations)
    config = compiled.image.config
    mant = compiled.package.formats.mantissa(layer, config) if layer.weights else None
    bits = weight_bits(layer, allocations, config, mant or 0)
    chosen = bool(set(layer.nodes) & set(compiled.package.formats.weights))
    copied_weights = sum(copied, CopiedWeights())
    return Space(words, held, vectors[Mem.NARROW], vectors[Mem.WIDE], mant, bits, chosen, copied_weights)


def memories(compiled: Compiled) -> tuple[Memory, ...]:
    """Use of every memory."""
    loaded, result = compiled.image.loaded(), []
    for region, unit in _UNITS.items():
        constants, depth = loaded[region]
        used = max(constants, sum(item.count for item in compiled.allocations.values() if item.region is region))
        result.append(Memory(region.name.lower(), unit, used, constants, depth))
    return tuple(result)
