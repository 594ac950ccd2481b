"""Errors of a compiled network against double precision, of the result and of every layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from concord.compiler.calibration.calibration import Inputs, relative_error
from concord.compiler.model import Compiled
from concord.graph import execute
from concord.graph.ops import operator_of
from concord.networks.calibrated import emulate
from concord.networks.layer_results import Result, results
from concord.utils.arrays import FloatArray


@dataclass(frozen=True)
class Error:
    """Deviation from the float reference on all samples.

    Parameters
    ----------
    relative : float or None
        Root mean square error, relative to the root mean square of the reference.
    largest : float or None
        Largest absolute error.
    """

    relative: float | None
    largest: float | None


def error(computed: FloatArray, reference: FloatArray) -> Error:
    """Deviation of ``computed``."""
    with np.errstate(invalid="ignore", over="ignore"):
        return Error(
            _finite(relative_error(computed, reference)), _finite(float(np.abs(computed - reference).max(initial=0.0)))
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def own_errors(compiled: Compiled, inputs: Inputs, results: Sequence[Sequence[Result]]) -> list[Error]:
    """Error of every layer alone: the reference computes it from the tensors as the NPU has them.

    The conversion to narrow of what a layer reads counts as its own, if the tensor is there in wide, too.

    Parameters
    ----------
    results : sequence of sequences of Result
        By layer, what it computes; its error is that of the first.
    """
    graph, errors = compiled.graph, [Error(None, None)] * len(results)
    known = compiled.package.arrangement.prepared_inputs(inputs)
    values = {name: np.asarray(known.get(name, x), dtype=np.float64) for name, x in inputs.items()}
    values = {name: x.reshape(len(x), *graph.shapes[name]) for name, x in values.items()}
    computed: dict[str, list[tuple[int, int, Result]]] = {}
    for index, layer_results in enumerate(results):
        for k, result in enumerate(layer_results):
            computed.setdefault(result.tensor, []).append((index, k, result))

    def take(name: str, value: FloatArray) -> None:
        flat = value.reshape(len(value), -1).copy()
        for index, k, result in computed.get(name, ()):
            if k == 0:
                errors[index] = error(result.best, flat[:, result.computed])
            flat[:, result.computed] = result.best
        values[name] = flat.reshape(value.shape)

    for name in graph.inputs:
        take(name, values[name])
    for node in (compiled.definition or compiled.lowered.graph).nodes:
        with np.errstate(all="ignore"):
            outputs = operator_of(node).evaluate(node, [values[name] if name else None for name in node.inputs])
        for name, value in zip(node.outputs, outputs, strict=True):
            take(name, value)
    return errors


@dataclass(frozen=True)
class MeasuredErrors:
    """Errors of a network on some samples.

    Parameters
    ----------
    outputs : mapping of str to Error
        By output.
    layers : tuple of Error
        By layer, of the tensor that it computes.
    own : tuple of Error
        By layer, if the reference computes this layer alone, from the tensors as the NPU has them.
    """

    outputs: Mapping[str, Error]
    layers: tuple[Error, ...]
    own: tuple[Error, ...]

    @property
    def relative(self) -> float | None:
        """Relative error of the result; of several outputs the largest, ``None`` if one is not finite."""
        return largest_error(self.outputs.values())


def largest_error(errors: Iterable[Error]) -> float | None:
    """The largest relative error; ``None`` if one is not finite."""
    relative = [error.relative for error in errors]
    return None if None in relative else max(value for value in relative if value is not None)


def layer_errors(results: Sequence[Sequence[Result]], want: Mapping[str, FloatArray]) -> list[Error]:
    """Error of the tensor of every layer.

    Parameters
    ----------
    results : sequence of sequences of Result
        By layer, what it computes; its error is that of the first.
    want : mapping of str to array
        All tensors of the reference, samples along the first axis.
    """
    return [
        error(part.best, want[part.tensor].reshape(len(want[part.tensor]), -1)[:, part.computed])
        for part, *_ in results
    ]


def reference(compiled: Compiled, inputs: Inputs) -> dict[str, FloatArray]:
    """All tensors of a network in double precision, its inputs as the NPU reads them.

    Raises
    ------
    ValueError
        If inputs are missing, unknown or of another shape.
    """
    values = execute.run(compiled.definition or compiled.graph, inputs, keep="all")
    return values | compiled.package.arrangement.prepared_inputs(inputs)


def output_errors(
    compiled: Compiled, inputs: Inputs, want: Mapping[str, FloatArray], *, host: bool = True
) -> dict[str, Error]:
    """Error of every output on the emulator; parameters as for :func:`measured_errors`.

    Whole numbers, such as places of the greatest results, have none. If all outputs are such, the errors are those of
    what the NPU hands to the host, truth values among them if it hands over nothing else.
    """
    whole = compiled.graph.element_types
    if not host or {*compiled.graph.outputs} <= {*whole}:
        compiled = replace(compiled, package=replace(compiled.package, host_graph=None))
    outputs = emulate(compiled, inputs)
    measured = {name: values for name, values in outputs.items() if name not in whole} or outputs
    return {name: error(values.reshape(want[name].shape), want[name]) for name, values in measured.items()}


def measured_errors(
    compiled: Compiled, inputs: Inputs, want: Mapping[str, FloatArray] | None = None, *, host: bool = True
) -> MeasuredErrors:
    """Run a network on the emulator, and compare its result and all of its layers with a reference.

    Parameters
    ----------
    compiled : Compiled
        The network.
    inputs : mapping of str to array
        ``[samples, *shape of a sample]`` for every input; :func:`synthetic_samples` of
        :mod:`concord.compiler.lowering.input_assumptions` makes some.
    want : mapping of str to array, optional
        All tensors of the reference by name; if left out, those of :func:`reference`.
    host : bool
        Whether outputs are those of the host; else they are those of the NPU, such as what a softmax reads.

    Raises
    ------
    ValueError
        If inputs are missing, unknown or of another shape.
    concord.program.allocator.CapacityError
        If a network in row tiles does not fit into the largest memories in one piece.
    """
    want = reference(compiled, inputs) if want is None else want
    layer_results = [parts for parts, _ in results(compiled, inputs)]
    return MeasuredErrors(
        output_errors(compiled, inputs, want, host=host),
        tuple(layer_errors(layer_results, want)),
        tuple(own_errors(compiled, inputs, layer_results)),
    )
