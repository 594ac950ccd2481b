"""Moments of the inputs of normalisations, which the compiler would know."""

from __future__ import annotations

import numpy as np

from concord.graph.ir import Graph, Node
from concord.graph.ops.elementwise import NormaliseAttributes
from concord.utils.arrays import FloatArray


def moments(graph: Graph, node: Node, values: FloatArray) -> dict[str, FloatArray]:
    """Means of the input of a normalisation, and its variances or means of squares."""
    x = values.reshape(-1, *graph.shapes[node.inputs[0]])
    axes = tuple(axis + 1 for axis in node.attributes(NormaliseAttributes).axes)
    mean = x.mean(axis=axes, keepdims=True)
    left = x - mean if node.attributes(NormaliseAttributes).centred else x
    return {"mean": mean, "variance": np.asarray((left * left).mean(axis=axes))}
