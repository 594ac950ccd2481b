"""Shapes of all tensors of a graph on codes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from concord.integer.graph import IntegerGraph
from concord.integer.tflite.operations import FixedPointSoftmax, InterpolatedSoftmax
from concord.integer.weighted_sums import WeightedSums


def shapes_behind(graph: IntegerGraph, inputs: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors, by those of the tensors of the inputs: they are computed of codes of 0."""
    shapes = dict(inputs)
    for operation in graph.operations:
        if isinstance(operation, FixedPointSoftmax | InterpolatedSoftmax):  # the sum of equal codes may be too large
            shapes[operation.output] = shapes[operation.inputs[0]]
            continue
        own = operation.zero_point if isinstance(operation, WeightedSums) else None
        zeros = [graph.schemes[name].zero if own is None else own for name in operation.inputs]
        codes = [np.full(shapes[name], zero) for name, zero in zip(operation.inputs, zeros, strict=True)]
        shapes[operation.output] = operation.run(*codes).shape
    return shapes


def fixed_sizes(graph: IntegerGraph, name: str) -> tuple[int, ...]:
    """Sizes of an input of the model after the samples.

    Raises
    ------
    ValueError
        If one is open.
    """
    sizes = graph.shapes[name][1:]
    if None in sizes:
        shown = ["samples", *("any" if size is None else size for size in sizes)]
        raise ValueError(f"input {name!r} must have fixed sizes behind the samples, not {shown}")
    return tuple(size for size in sizes if size is not None)
