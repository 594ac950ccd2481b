"""Measures how far a compiled network is from the quantised model that it was made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from concord.compiler.calibration.calibration import Inputs, relative_error
from concord.compiler.ir.quantised_model import QuantisedModel
from concord.compiler.lowering.input_assumptions import assumed, synthetic_samples
from concord.compiler.model import Compiled
from concord.golden import binary16
from concord.graph import execute
from concord.graph.cost import macs
from concord.graph.ir import Graph
from concord.networks.calibrated import emulate
from concord.utils.arrays import FloatArray
from concord.utils.parallel import Engine

#: Samples that are looked at, fewer of large networks: this many multiply-accumulates in all, but 8 samples.
_SAMPLES, _WORK = 64, 1 << 28


def is_quantised(graph: Graph) -> bool:
    """Whether a network was quantised by its exporter."""
    return bool(graph.quantization or graph.weight_quantization)


def with_quantised_model(
    compiled: Compiled, reference: Graph, samples: Inputs | None = None, engine: Engine | None = None
) -> Compiled:
    """The same network, with its distance from the quantised model.

    Parameters
    ----------
    compiled : Compiled
        The network.
    reference : Graph
        The model with all of its pairs (:func:`concord.frontend.reference_graph`).
    samples : mapping of str to array, optional
        Inputs ``[samples, *shape of a sample]`` by name; if left out, synthetic ones that are like what is assumed of
        the inputs.
    engine : Engine, optional
        Its workers share the runs on the emulator.

    Raises
    ------
    ValueError
        If the reference has other inputs or outputs.
    """
    graph = compiled.graph
    most = int(np.clip(_WORK // max(macs(graph), 1), 8, _SAMPLES))
    if samples is None:
        inputs = assumed(graph, compiled.package.formats.inputs)
        given: dict[str, FloatArray] = synthetic_samples(graph, inputs, most)
        source = "synthetic samples, " + ", ".join(f"{name}: {one.text}" for name, one in inputs.items())
    else:
        given = {name: _some(np.asarray(values, dtype=np.float64), most) for name, values in samples.items()}
        source = "calibration samples"
    if (reference.inputs, reference.outputs) != (graph.inputs, graph.outputs):
        raise ValueError(
            f"reference must have the inputs {graph.inputs} and outputs {graph.outputs}, "
            f"not {reference.inputs} and {reference.outputs}"
        )
    want = execute.run(reference, given)
    usable = np.logical_and.reduce([np.isfinite(value.reshape(len(value), -1)).all(axis=1) for value in want.values()])
    given = {name: values[usable] for name, values in given.items()}
    if not usable.any():
        return compiled
    found = emulate(compiled, given, engine)
    errors, equal = [], True
    for name in graph.outputs:
        value = want[name][usable]
        result = found[name].reshape(value.shape)
        errors.append(relative_error(result, value))
        equal = equal and np.array_equal(_half(result), _half(value))
    largest = max(errors)
    weights = sum(node.name in graph.weight_quantization for node in graph.nodes)
    measured = QuantisedModel(
        len(graph.quantization), weights, len(compiled.inexact), largest if np.isfinite(largest) else None, equal,
        f"{int(usable.sum())} {source}",
    )  # fmt: skip
    return replace(compiled, package=replace(compiled.package, quantised_model=measured))


def _some(values: FloatArray, most: int) -> FloatArray:
    """Samples that are evenly spread."""
    return np.asarray(values[np.linspace(0, len(values) - 1, min(len(values), most)).astype(int)])


def _half(values: FloatArray) -> FloatArray:
    """As binary16 numbers, which may be infinite; zeros have no sign."""
    return np.asarray(binary16.decode(binary16.encode(values)) + 0.0)
