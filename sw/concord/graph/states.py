"""Networks with states: inputs of a run that are outputs of the one before it, such as keys and values of a decoder.

The host may carry them, and then they are inputs and outputs like others. Or the NPU keeps them: they are zero in the
first run, and later what the run before has left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from concord.graph import execute
from concord.graph.ir import Graph
from concord.utils.arrays import FloatArray


def states_of(sources: Mapping[str, str] | Sequence[str] | None) -> dict[str, str]:
    """States by input, or from texts like ``past=present``; ``ValueError`` for anything else."""
    if isinstance(sources, Mapping):
        return dict(sources)
    states: dict[str, str] = {}
    for text in sources or ():
        name, _, result = text.partition("=")
        if not name or not result or name in states:
            raise ValueError(f"state must be INPUT=OUTPUT, each input once, not {text!r}")
        states[name] = result
    return states


def with_states(graph: Graph, states: Mapping[str, str]) -> Graph:
    """The network with states, output by input; ``ValueError`` if it cannot have them (:func:`check_states`)."""
    made = replace(graph, states=dict(states))
    check_states(made)
    return made


def check_states(graph: Graph) -> None:
    """Raise ``ValueError`` unless states are inputs of a graph, and become outputs of their own with their shapes."""
    states, shapes = graph.states, graph.shapes
    for name, result in states.items():
        if name not in graph.inputs:
            raise ValueError(f"a state must be an input of the NPU, {', '.join(graph.inputs)}, not {name}")
        if result not in graph.outputs:
            raise ValueError(f"state {name} must become an output of the NPU, {', '.join(graph.outputs)}, not {result}")
        for tensor in (name, result):
            if kind := graph.element_types.get(tensor):
                raise ValueError(f"state {name} must be of floats, not {tensor} of {kind}")
        if shapes[name] != shapes[result]:
            raise ValueError(
                f"state {name} must become an output with its shape {shapes[name]}, not {result} with {shapes[result]}"
            )
    results = [*states.values()]
    if twice := [result for result in results if results.count(result) > 1]:
        raise ValueError(f"states must become outputs of their own, not two of them {twice[0]}")
    if states and not set(graph.outputs) - set(results):
        raise ValueError("a network with states must have another output, not states alone")


def with_state_inputs(graph: Graph, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, npt.ArrayLike]:
    """Samples with the states that they meet if they follow each other, as the network has them in double precision.

    Parameters
    ----------
    graph : Graph
        The network.
    inputs : mapping of str to array
        ``[samples, *shape of a sample]`` by input. If there are all states, the samples stay as they are.

    Raises
    ------
    ValueError
        If there are some of the states, but not all.
    """
    known = set(inputs) & set(graph.states)
    if known == set(graph.states):
        return dict(inputs)
    if known:
        raise ValueError(f"inputs must have all states or none, not {', '.join(sorted(known))} alone")
    arrays = {name: np.asarray(values) for name, values in inputs.items()}
    state = {name: np.zeros((1, *graph.sample_shape(name))) for name in graph.states}
    met: dict[str, list[FloatArray]] = {name: [] for name in graph.states}
    for k in range(len(next(iter(arrays.values())))):
        for name, values in state.items():
            met[name].append(values)
        results = execute.run(graph, {name: values[k : k + 1] for name, values in arrays.items()} | state)
        state = {name: np.asarray(results[result]) for name, result in graph.states.items()}
    return dict(inputs) | {name: np.concatenate(values) for name, values in met.items()}
