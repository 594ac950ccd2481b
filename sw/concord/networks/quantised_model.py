"""Measures how far a compiled network is from the quantised model that it was made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from concord.compiler.calibration.calibration import Inputs, relative_error
from concord.compiler.ir.quantised_model import QuantisedModel
from concord.compiler.ir.table_specs import Domain
from concord.compiler.model import Compiled
from concord.frontend import import_model, reference_graph
from concord.golden import binary16
from concord.graph import execute
from concord.graph.cost import macs
from concord.graph.ir import Graph
from concord.graph.ops.elementwise import codes_of
from concord.networks.calibrated import emulate
from concord.networks.samples import finite_samples, samples_to_measure
from concord.utils.arrays import FloatArray
from concord.utils.parallel import Engine

#: Samples that are looked at, fewer of large networks: this many multiply-accumulates in all, but 8 samples.
_SAMPLES, _WORK = 64, 1 << 28
#: Relative change of a tensor by its codes, from which on it is computed: mantissas alone would miss it.
_MUCH = 0.03


def is_quantised(graph: Graph) -> bool:
    """True if a network was quantised by its exporter."""
    return bool(graph.quantization or graph.weight_quantization)


@dataclass(frozen=True)
class Reference:
    """A quantised model as it is written, to compare with.

    Parameters
    ----------
    graph : Graph
        The model with all of its pairs (:func:`concord.frontend.reference_graph`).
    stay : tuple of str
        Names of those pairs that change their tensors much, which the compiled network computes for that reason.
    """

    graph: Graph
    stay: tuple[str, ...] = ()


def with_pairs(
    model: bytes, graph: Graph, samples: Inputs | None = None, ranges: Mapping[str, Domain] | None = None
) -> tuple[Graph, Reference | None]:
    """A network in which pairs are computed that change their tensors much, and the model to compare it with.

    Parameters
    ----------
    model : bytes
        The file.
    graph : Graph
        What was imported of it.
    samples : mapping of str to array, optional
        Inputs ``[samples, *shape of a sample]`` by name; if left out, synthetic ones.
    ranges : mapping of str to pair of floats, optional
        Ranges of inputs where there are no samples.

    Returns
    -------
    Graph, Reference or None
        The same graph and ``None`` if the model is not quantised.
    """
    if not is_quantised(graph):
        return graph, None
    reference = reference_graph(model)
    inputs, _ = samples_to_measure(graph, samples, ranges, _most(graph))
    stay = tuple(_changing(reference, inputs))
    return import_model(model, stay=stay) if stay else graph, Reference(reference, stay)


def _changing(reference: Graph, inputs: Inputs) -> Iterator[str]:
    """Names of pairs that change their tensors much, but for what a Relu does and what the host rounds."""
    pairs = [node for node in reference.nodes if node.op == "FakeQuantize"]
    values = execute.run(reference, inputs, keep={node.inputs[0] for node in pairs})
    for node in pairs:
        codes = codes_of(node)
        source = node.inputs[0]
        if source in reference.inputs and codes.axis is None and codes.exponents is not None:
            continue
        x = values[source].reshape(-1, *reference.shapes[source])
        low, _ = codes.span
        x = x if low.any() or source in reference.inputs else np.maximum(x, 0.0)
        if relative_error(codes.rounded(x), x) > _MUCH:
            yield node.name


def with_quantised_model(
    compiled: Compiled, reference: Reference, samples: Inputs | None = None, engine: Engine | None = None
) -> Compiled:
    """Add the distance of a network from the quantised model.

    Parameters
    ----------
    compiled : Compiled
        The network.
    reference : Reference
        The model.
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
    graph, model = compiled.graph, reference.graph
    if (model.inputs, model.outputs) != (graph.inputs, graph.outputs):
        raise ValueError(
            f"reference must have the inputs {graph.inputs} and outputs {graph.outputs}, "
            f"not {model.inputs} and {model.outputs}"
        )
    inputs, source = samples_to_measure(graph, samples, compiled.package.formats.inputs, _most(graph))
    want = execute.run(model, inputs)
    usable = finite_samples(want.values())
    if not usable.any():
        return compiled
    outputs = emulate(compiled, {name: values[usable] for name, values in inputs.items()}, engine)
    errors, equal = [], True
    for name in graph.outputs:
        value = want[name][usable]
        result = outputs[name].reshape(value.shape)
        errors.append(relative_error(result, value))
        equal = equal and np.array_equal(_half(result), _half(value))
    largest = max(errors)
    weights = sum(node.name in graph.weight_quantization for node in graph.nodes)
    measured = QuantisedModel(
        len(graph.quantization),
        weights,
        len(compiled.inexact),
        largest if np.isfinite(largest) else None,
        equal,
        f"{int(usable.sum())} {source}",
        reference.stay,
    )
    return replace(compiled, package=replace(compiled.package, quantised_model=measured))


def _most(graph: Graph) -> int:
    """Number of samples that are looked at."""
    return int(np.clip(_WORK // max(macs(graph), 1), 8, _SAMPLES))


def _half(values: FloatArray) -> FloatArray:
    """Values as binary16 numbers, which may be infinite; zeros have no sign."""
    return np.asarray(binary16.decode(binary16.encode(values)) + 0.0)
