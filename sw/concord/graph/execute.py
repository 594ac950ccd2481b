"""Run a graph in double precision: the float reference of everything that comes after."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from concord.graph.ir import Graph
from concord.graph.ops import operator_of
from concord.utils.arrays import FloatArray


def run(
    graph: Graph, inputs: Mapping[str, npt.ArrayLike], keep: Collection[str] | Literal["all"] | None = None
) -> dict[str, FloatArray]:
    """Return tensors by name for a batch.

    Parameters
    ----------
    graph : Graph
        The network.
    inputs : mapping of str to array
        ``[samples, *graph.sample_shape(name)]`` for every input.
    keep : collection of str, "all" or None
        Tensors to return beside the outputs of the network.

    Returns
    -------
    dict
        Arrays ``[samples, *graph.sample_shape(name)]``: outputs in the order of the graph, then what is kept.

    Raises
    ------
    ValueError
        If an input is missing, unknown or has another shape, or if a tensor to keep is none of the graph.
    """
    values = _inputs(graph, inputs)
    wanted = set(graph.shapes) if keep == "all" else set(graph.outputs) | set(keep or ())
    if unknown := sorted(wanted - set(graph.shapes)):
        raise ValueError(f"tensors to keep must be of the graph, not {unknown}")
    last_use = {name: index for index, node in enumerate(graph.nodes) for name in node.inputs}
    for index, node in enumerate(graph.nodes):
        with np.errstate(all="ignore"):  # infinities and NaN are told where results are shown
            results = operator_of(node).evaluate(node, [values[name] if name else None for name in node.inputs])
        values.update((name, value) for name, value in zip(node.outputs, results, strict=True) if name)
        for name in {*node.inputs, *node.outputs} - wanted - {""}:
            if last_use.get(name, index) == index:
                del values[name]
    order = dict.fromkeys([*graph.outputs, *(name for name in values if name in wanted)])
    return {name: values[name].reshape(len(values[name]), *graph.sample_shape(name)) for name in order}


def _inputs(graph: Graph, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
    """Every input with the shape of its tensor behind the axis of samples."""
    if set(inputs) != set(graph.inputs):
        raise ValueError(f"inputs of {graph.name} must be {graph.inputs}, not {list(inputs)}")
    values = {}
    for name in graph.inputs:
        value = np.asarray(inputs[name], dtype=np.float64)
        shape = graph.sample_shape(name)
        if value.ndim != len(shape) + 1 or value.shape[1:] != shape:
            want = ", ".join(map(str, ("samples", *shape)))
            raise ValueError(f"input {name!r} must have the shape ({want}), not {value.shape}")
        values[name] = value.reshape(len(value), *graph.shapes[name])
    counts = {name: len(value) for name, value in values.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"inputs must have the same number of samples, not {counts}")
    return values
