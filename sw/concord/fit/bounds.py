"""Cycles that no program for a network can be below, whatever its order and its memories are."""

from __future__ import annotations

from math import prod

from concord.graph.cost import node_macs
from concord.graph.ir import Graph, Node
from concord.graph.ops.linear import ConvAttributes
from concord.spec.config import NpuConfig


def least_cycles(graph: Graph, config: NpuConfig) -> float:
    """The steps of the tile engines if no lane ever waits, or the beats of the results of convolutions if that is more.

    A depthwise product takes a step per tap and vector, or a step per vector where windows slide.
    """
    steps = sum(_steps(graph, node, config) for node in graph.nodes)
    convolved = sum(_elements(graph, node) for node in graph.nodes if node.op == "Conv")
    return max(steps, convolved / config.mfu_lanes)


def is_depthwise(node: Node) -> bool:
    """True if every channel of a convolution is convolved with a window of its own."""
    if node.op != "Conv":
        return False
    attributes = node.attributes(ConvAttributes)
    return attributes.group == len(attributes.weight) > 1


def _steps(graph: Graph, node: Node, config: NpuConfig) -> float:
    if not is_depthwise(node) or config.serial:
        return node_macs(graph, node) / config.macs
    taps = prod(node.attributes(ConvAttributes).weight.shape[2:])
    return _elements(graph, node) / config.rows * (1 if taps <= config.window_taps else taps)


def _elements(graph: Graph, node: Node) -> int:
    return prod(graph.sample_shape(node.outputs[0]))
