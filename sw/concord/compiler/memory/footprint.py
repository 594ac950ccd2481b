"""Bits that weights and narrow tensors need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from concord.compiler.ir.layers import AnyLayer
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.program.allocator import COPIED, Allocation, CapacityError
from concord.spec.config import NpuConfig
from concord.spec.isa import COPY_UNIT
from concord.spec.memmap import RegionId
from concord.spec.operations import Op

#: Bits of a KiB.
KIB = 8192
#: A network with more weights than these, and than this many times the memory, is refused at once; others word by word.
_MANY, _FAR_TOO_MANY = 1 << 20, 8


def weight_parts(layer: AnyLayer, allocations: Mapping[str, Allocation]) -> list[Allocation]:
    """Places of the weights of a layer: in the matrix memory, in the external memory, or some in either."""
    names = (part for name in layer.weights for part in (name, name + COPIED))
    return [allocations[name] for name in names if name in allocations]


def weight_bits(layer: AnyLayer, allocations: Mapping[str, Allocation], config: NpuConfig, mant: int) -> int:
    """Bits of the weights of a layer in words of a matrix memory for mantissas of ``mant`` bits, padding included.

    Those in the external memory have as many bits as their columns there.
    """
    used = weight_parts(layer, allocations)
    words = sum(item.count for item in used if item.region is RegionId.MATRIX)
    units = sum(item.count for item in used if item.region is RegionId.DRAM)
    columns = units * COPY_UNIT * (config.sdram.width if units else 0)
    return words * config.rows * (config.lanes * mant + config.wgt_exp_width) + columns


def distinct_weights(nodes: Iterable[Node]) -> int:
    """Weights of some nodes; those of tensors with equal contents, which are stored once, count once."""
    records = ((node, operator_of(node).weights) for node in nodes)
    arrays = [array for node, held in records if held is not None for array in held.weights_of(node)]
    alone = {(array.shape, blake2b(array.tobytes()).digest()): array.size for array in arrays}
    return sum(alone.values())


def check_weights_fit(graph: Graph, config: NpuConfig) -> None:
    """Tell at once that a network does not fit which has far too many weights.

    Raises
    ------
    CapacityError
        With the words that they need at least.
    """
    weights = distinct_weights(graph.nodes)
    need, have = -(-weights // (config.rows * config.lanes)), config.matrix_depth
    if config.has(Op.COPY):
        columns, room = weights // config.native * config.row_columns, config.sdram.columns
        if columns > room:
            there = f"external memory has {room} columns"
            raise CapacityError(f"does not fit into {config.name}: {there}, but {weights} weights need {columns}")
    elif weights > _MANY and need > _FAR_TOO_MANY * have:
        there = f"matrix memory has {have} words"
        raise CapacityError(f"does not fit into {config.name}: {there}, but {weights} weights need at least {need}")
