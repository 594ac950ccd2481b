"""Recurrent layers: a loop over time steps, all samples at once.

Gates are in the order of ONNX: i o f c (LSTM), z r h (GRU). X is ``[steps, 1, features]``; states ``[directions, 1,
hidden]``; Y ``[steps, directions, 1, hidden]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np

from concord.functions import by_recurrent_name
from concord.graph.operation import Operation, Shape
from concord.graph.ops.attributes import (
    ARRAY,
    COUNT,
    FLAG,
    NUMBER,
    RECURRENT_NAMES,
    RECURRENT_PARAMETERS,
    Attribute,
    NoAttributes,
    choice,
    optional,
)
from concord.graph.ops.base import Operator, OperatorKind, OperatorWeights, Recurrence, present, present_shape
from concord.utils.arrays import FloatArray

Activation = Callable[[FloatArray], FloatArray]
States = tuple[FloatArray, ...]
#: (x part of the gates, states) -> new states, h first.
TimeStep = Callable[[FloatArray, States], States]
#: (node, number of the direction, R, bias of R) -> what a step of that direction computes.
Begin = Callable[[Operation, int, FloatArray, FloatArray], TimeStep]


def directions(node: Operation) -> list[bool]:
    """For every direction whether it goes from the last time step to the first."""
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[node.attrs["direction"]]


def _shape(recurrence: Recurrence, node: Operation, inputs: Sequence[Shape | None]) -> list[Shape]:
    x, hidden, w = present_shape(inputs[0]), node.attrs["hidden_size"], node.attrs["W"]
    if w.ndim != 3:
        raise ValueError(f"W must have three axes, not the shape {list(w.shape)}")
    if len(x) != 3 or x[2] != w.shape[2]:
        raise ValueError(f"X must be steps by batch by {w.shape[2]} features, not {list(x)}")
    count, rows = len(directions(node)), recurrence.gates * hidden
    for name, wanted in (("W", (count, rows, w.shape[2])), ("R", (count, rows, hidden)), ("B", (count, 2 * rows))):
        if node.attrs[name].shape != wanted:
            raise ValueError(f"{name} must have the shape {list(wanted)}, not {list(node.attrs[name].shape)}")
    for name in ("activations", "activation_parameters"):
        if [len(part) for part in node.attrs[name]] != [len(recurrence.functions)] * count:
            raise ValueError(f"{name} must be {len(recurrence.functions)} for each of {count} directions")
    state = (len(w), x[1], hidden)
    if any(shape not in (None, state) for shape in inputs[1:]):
        raise ValueError(f"initial states must have the shape {list(state)}, not {inputs[1:]}")
    if any(node.attrs.get(name) is not None and node.attrs[name].shape != state for name in ("initial_h", "initial_c")):
        raise ValueError(f"constant initial states must have the shape {list(state)}")
    if node.attrs.get("P") is not None and node.attrs["P"].shape != (len(w), 3 * hidden):
        raise ValueError(f"P must have the shape {[len(w), 3 * hidden]}, not {list(node.attrs['P'].shape)}")
    return [(x[0], *state[:1], x[1], hidden)] + [state] * len(recurrence.initial)


def _activations(node: Operation, direction: int) -> list[Activation]:
    """The functions of one direction. Inputs of gates are clipped; that of h, the cell, is not, as in onnxruntime."""
    limit = np.inf if node.attrs["clip"] is None else node.attrs["clip"]
    known = by_recurrent_name()

    def activation(name: str, parameters: dict[str, float], limit: float) -> Activation:
        function = known[name]
        return lambda x: function.values(np.clip(x, -limit, limit) if limit < np.inf else x, **parameters)

    pairs = zip(node.attrs["activations"][direction], node.attrs["activation_parameters"][direction], strict=True)
    return [
        activation(name, parameters, np.inf if index == 2 else limit) for index, (name, parameters) in enumerate(pairs)
    ]


def _lstm_step(node: Operation, d: int, r: FloatArray, bias: FloatArray) -> TimeStep:
    hidden = node.attrs["hidden_size"]
    f, g, h = _activations(node, d)
    peephole = np.zeros(3 * hidden) if node.attrs["P"] is None else node.attrs["P"][d]
    p_i, p_o, p_f = np.split(peephole, 3)

    def step(x: FloatArray, states: States) -> States:
        before, cell = states
        i, o, forget, c = np.split(x + before @ r.T + bias, 4, axis=-1)
        i = f(i + p_i * cell)
        kept = 1.0 - i if node.attrs["input_forget"] else f(forget + p_f * cell)
        cell = kept * cell + i * g(c)
        return f(o + p_o * cell) * h(cell), cell

    return step


def _gru_step(node: Operation, d: int, r: FloatArray, bias: FloatArray) -> TimeStep:
    hidden = node.attrs["hidden_size"]
    f, g = _activations(node, d)
    r_zr, r_h = r[: 2 * hidden], r[2 * hidden :]
    b_zr, b_h = bias[: 2 * hidden], bias[2 * hidden :]

    def step(x: FloatArray, states: States) -> States:
        (before,) = states
        z, reset = np.split(f(x[..., : 2 * hidden] + before @ r_zr.T + b_zr), 2, axis=-1)
        if node.attrs["linear_before_reset"]:
            inner = reset * (before @ r_h.T + b_h)
        else:
            inner = (reset * before) @ r_h.T + b_h
        return ((1.0 - z) * g(x[..., 2 * hidden :] + inner) + z * before,)

    return step


def _rnn_step(node: Operation, d: int, r: FloatArray, bias: FloatArray) -> TimeStep:
    (f,) = _activations(node, d)
    return lambda x, states: (f(x + states[0] @ r.T + bias),)


def _initial(
    recurrence: Recurrence, node: Operation, inputs: Sequence[FloatArray | None], samples: int, batch: int
) -> list[FloatArray]:
    """Every state ``[directions, samples * batch, hidden]`` before the first step."""
    hidden, count = node.attrs["hidden_size"], len(node.attrs["W"])
    states = []
    for index, name in enumerate(recurrence.initial, 1):
        state = inputs[index] if index < len(inputs) else None
        if state is None:
            constant = node.attrs.get(name)
            constant = np.zeros((count, batch, hidden)) if constant is None else constant
            state = np.broadcast_to(constant, (samples, count, batch, hidden))
        states.append(state.swapaxes(0, 1).reshape(count, samples * batch, hidden))
    return states


def _evaluate(
    recurrence: Recurrence, begin: Begin, node: Operation, inputs: Sequence[FloatArray | None]
) -> list[FloatArray]:
    x = present(inputs[0])
    samples, steps, batch, _ = x.shape
    sequence = x.swapaxes(0, 1).reshape(steps, samples * batch, -1)
    initial = _initial(recurrence, node, inputs, samples, batch)
    outputs, last = [], []
    for d, backward in enumerate(directions(node)):
        input_bias, bias = np.split(node.attrs["B"][d], 2)
        step = begin(node, d, node.attrs["R"][d], bias)
        gates = sequence @ node.attrs["W"][d].T + input_bias
        states: States = tuple(state[d] for state in initial)
        values = np.empty((steps, samples * batch, node.attrs["hidden_size"]))
        for t in reversed(range(steps)) if backward else range(steps):
            states = step(gates[t], states)
            values[t] = states[0]
        outputs.append(values.reshape(steps, samples, batch, -1))
        last.append([state.reshape(samples, batch, -1) for state in states])
    y = np.stack(outputs).transpose(2, 1, 0, 3, 4)
    return [np.ascontiguousarray(y), *(np.stack(states, axis=1) for states in zip(*last, strict=True))]


_INITIAL = "constant initial state [directions, 1, hidden]; None: zero, unless there is an input"


@dataclass(frozen=True, kw_only=True)
class RecurrentAttributes(NoAttributes):
    """What all recurrent layers have."""

    W: Annotated[FloatArray, Attribute("weights of x [directions, rows, features], as in ONNX", ARRAY)]
    R: Annotated[FloatArray, Attribute("weights of h [directions, rows, hidden]", ARRAY)]
    B: Annotated[FloatArray, Attribute("biases of both one after the other [directions, 2 * rows]", ARRAY)]
    hidden_size: Annotated[int, Attribute("elements of the state", COUNT)]
    direction: Annotated[
        str, Attribute("in which order time steps come", choice("forward", "reverse", "bidirectional"))
    ]
    activations: Annotated[
        tuple[tuple[str, ...], ...],
        Attribute("for every direction the functions (LSTM f g h, GRU f g, RNN f)", RECURRENT_NAMES),
    ]
    activation_parameters: Annotated[
        tuple[tuple[Mapping[str, float], ...], ...],
        Attribute("for every direction and function its parameters", RECURRENT_PARAMETERS),
    ]
    clip: Annotated[
        float | None, Attribute("limit of the inputs of the gates' functions; None: there is none", optional(NUMBER))
    ]
    initial_h: Annotated[FloatArray | None, Attribute(_INITIAL, optional(ARRAY))]


@dataclass(frozen=True, kw_only=True)
class LstmAttributes(RecurrentAttributes):
    """Of an LSTM."""

    P: Annotated[FloatArray | None, Attribute("peephole weights as in ONNX; None: there are none", optional(ARRAY))]
    input_forget: Annotated[bool, Attribute("the forget gate is 1 - i", FLAG)]
    initial_c: Annotated[FloatArray | None, Attribute(_INITIAL, optional(ARRAY))]


@dataclass(frozen=True, kw_only=True)
class GruAttributes(RecurrentAttributes):
    """Of a GRU."""

    linear_before_reset: Annotated[bool, Attribute("the reset gate multiplies the product with R", FLAG)]


def _macs(node: Operation, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]) -> int:
    """Every step has all weights once."""
    return present_shape(inputs[0])[0] * int(node.attrs["W"].size + node.attrs["R"].size)


def _record(
    attributes: type[RecurrentAttributes],
    recurrence: Recurrence,
    begin: Begin,
    wide_inputs: frozenset[int] = frozenset(),
) -> Operator:
    return Operator(
        OperatorKind.QUANTISED,
        attributes,
        partial(_shape, recurrence),
        partial(_evaluate, recurrence, begin),
        macs=_macs,
        weights=OperatorWeights(("W", "R"), "B", inputs=-1),
        recurrence=recurrence,
        wide_inputs=wide_inputs,
    )


RECURRENT_OPS = {
    "LSTM": _record(LstmAttributes, Recurrence(4, ("Sigmoid", "Tanh", "Tanh"), cell=True), _lstm_step, frozenset({2})),
    "GRU": _record(
        GruAttributes,
        Recurrence(3, ("Sigmoid", "Tanh")),
        _gru_step,
        frozenset({1}),
    ),
    "RNN": _record(RecurrentAttributes, Recurrence(1, ("Tanh",)), _rnn_step),
}
