"""Samples for a network: arrays by input, and labels; and those that errors are measured on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.compiler.calibration.calibration import Inputs
from concord.compiler.ir.table_specs import Domain
from concord.compiler.lowering.input_assumptions import assumed, other_samples, synthetic_samples
from concord.graph.ir import Graph
from concord.graph.states import with_state_inputs
from concord.utils.arrays import Bools, FloatArray, Ints


def as_arrays(data: Any) -> Any:
    """Data with arrays of NumPy in the place of tensors of PyTorch, which may be on a device or part of a gradient."""
    if isinstance(data, Mapping):
        return {name: as_arrays(values) for name, values in data.items()}
    return data.detach().cpu().numpy() if hasattr(data, "detach") and hasattr(data, "cpu") else data


def inputs_of(names: Sequence[str], data: Mapping[str, Any] | npt.ArrayLike) -> dict[str, Any]:
    """Arrays by input, ``[samples, *shape]``.

    Parameters
    ----------
    names : sequence of str
        The inputs.
    data : mapping of str to array, or array
        Arrays by name, others among them; a single input may be called ``x``, or be the array itself.

    Raises
    ------
    ValueError
        If one is missing, or has no axis of samples.
    """
    arrays = arrays_by_name(names, data)
    for name, values in arrays.items():
        if not np.ndim(values):
            raise ValueError(f"array {name!r} must have samples along its first axis, not be {values!r}")
    return arrays


def samples_of(graph: Graph, data: Mapping[str, Any] | npt.ArrayLike) -> dict[str, Any]:
    """Arrays by input as :func:`inputs_of` has them; states that are not there are those of a sequence."""
    known = set(data) if isinstance(data, Mapping) else set()
    names = [name for name in graph.inputs if name not in graph.states or name in known]
    return with_state_inputs(graph, inputs_of(names, data))


def arrays_by_name(names: Sequence[str], data: Mapping[str, Any] | npt.ArrayLike) -> dict[str, Any]:
    """Arrays by input as :func:`inputs_of` has them, of any shape; ``ValueError`` if one is missing."""
    if not isinstance(data, Mapping):
        if len(names) != 1:
            raise ValueError(f"data must be a mapping with the arrays {list(names)}, not {type(data).__name__}")
        data = {names[0]: np.asarray(data)}
    if len(names) == 1 and names[0] not in data and "x" in data:
        data = {names[0]: data["x"]}
    if any(name not in data for name in names):
        raise ValueError(f"data must have the arrays {list(names)}, not {list(data)}")
    return {name: data[name] for name in names}


def labels_of(arrays: Mapping[str, Any], names: Sequence[str], samples: int) -> Ints | None:
    """The array ``y`` of calibration data, if it is no input and has a class for every sample."""
    labels = arrays.get("y")
    if labels is None or "y" in names or labels.dtype.kind not in "iu" or labels.shape != (samples,):
        return None
    return np.asarray(labels, dtype=np.int64)


def samples_to_measure(
    graph: Graph, samples: Inputs | None, ranges: Mapping[str, Domain] | None, most: int, synthetic: int | None = None
) -> tuple[dict[str, FloatArray], str]:
    """Samples to measure errors on, and which they are, in words.

    Parameters
    ----------
    graph : Graph
        The network.
    samples : mapping of str to array, optional
        Inputs ``[samples, *shape of a sample]`` by name, some of which are taken, evenly spread.
    ranges : mapping of str to pair of floats, optional
        Ranges of inputs where there are no samples: synthetic ones are like what is assumed of the inputs then.
    most, synthetic : int
        How many samples there are at most; and how many synthetic ones, if it is another number.
    """
    if samples is None:
        records = assumed(graph, ranges)
        words = "synthetic samples, " + ", ".join(f"{name}: {record.text}" for name, record in records.items())
        return synthetic_samples(graph, records, most if synthetic is None else synthetic), words
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in samples.items()}
    spread = {name: np.linspace(0, len(x) - 1, min(len(x), most)).astype(int) for name, x in arrays.items()}
    return {name: x[spread[name]] for name, x in arrays.items()}, "calibration samples"


def other_samples_to_measure(
    graph: Graph, ranges: Mapping[str, Domain] | None, most: int
) -> list[tuple[dict[str, FloatArray], str]]:
    """Synthetic samples, and which they are in words, on which errors are measured beside mixed ones.

    Parameters
    ----------
    graph, ranges, most
        As for :func:`samples_to_measure`.
    """
    records = assumed(graph, ranges)
    kinds = other_samples(graph, records, most)
    return [(inputs, f"synthetic samples with {kind}") for kind, inputs in kinds.items()]


def finite_samples(outputs: Iterable[FloatArray]) -> Bools:
    """Samples whose results are finite in double precision: of others there is no error."""
    finite = [np.isfinite(values.reshape(len(values), -1)).all(axis=1) for values in outputs]
    return np.asarray(np.logical_and.reduce(finite))
