"""Recurrent layers: a loop over time steps, all samples at once.

Gates are in the order of ONNX: i o f c (LSTM), z r h (GRU). X is ``[steps, 1, features]``; states ``[directions, 1,
hidden]``; Y ``[steps, directions, 1, hidden]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

import numpy as np

from concord.functions import by_recurrent_name
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
from concord.graph.ops.base import (
    Arrays,
    Operation,
    Operator,
    OperatorKind,
    OperatorWeights,
    Recurrence,
    Shape,
    Shapes,
    present,
)
from concord.utils.arrays import FloatArray

Activation = Callable[[FloatArray], FloatArray]
States = tuple[FloatArray, ...]
#: (x part of the gates, states) -> new states, h first.
TimeStep = Callable[[FloatArray, States], States]
#: (node, number of the direction, R, bias of R) -> what a step of that direction computes.
Begin = Callable[[Operation, int, FloatArray, FloatArray], TimeStep]


def directions(node: Operation) -> list[bool]:
    """Directions of a node: True for one that goes from the last time step to the first."""
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
        node.attributes(RecurrentAttributes).direction
    ]


def _shape(recurrence: Recurrence, node: Operation, inputs: Shapes) -> list[Shape]:
    x, attributes = present(inputs[0]), node.attributes(RecurrentAttributes)
    hidden, w = attributes.hidden_size, attributes.W
    if w.ndim != 3:
        raise ValueError(f"W must have three axes, not the shape {list(w.shape)}")
    if len(x) != 3 or x[2] != w.shape[2]:
        raise ValueError(f"X must be steps by batch by {w.shape[2]} features, not {list(x)}")
    count, rows = len(directions(node)), recurrence.gates * hidden
    for name, values, wanted in (
        ("W", w, (count, rows, w.shape[2])),
        ("R", attributes.R, (count, rows, hidden)),
        ("B", attributes.B, (count, 2 * rows)),
    ):
        if values.shape != wanted:
            raise ValueError(f"{name} must have the shape {list(wanted)}, not {list(values.shape)}")
    for name, parts in (
        ("activations", attributes.activations),
        ("activation_parameters", attributes.activation_parameters),
    ):
        if [len(part) for part in parts] != [len(recurrence.functions)] * count:
            raise ValueError(f"{name} must be {len(recurrence.functions)} for each of {count} directions")
    state = (len(w), x[1], hidden)
    if any(shape not in (None, state) for shape in inputs[1:]):
        raise ValueError(f"initial states must have the shape {list(state)}, not {inputs[1:]}")
    if any(constant is not None and constant.shape != state for constant in attributes.initial):
        raise ValueError(f"constant initial states must have the shape {list(state)}")
    peephole = attributes.P if isinstance(attributes, LstmAttributes) else None
    if peephole is not None and peephole.shape != (len(w), 3 * hidden):
        raise ValueError(f"P must have the shape {[len(w), 3 * hidden]}, not {list(peephole.shape)}")
    return [(x[0], *state[:1], x[1], hidden)] + [state] * len(recurrence.initial)


def _activations(node: Operation, direction: int) -> list[Activation]:
    """The functions of one direction. Inputs of gates are clipped; that of h, the cell, is not, as in onnxruntime."""
    attributes, known = node.attributes(RecurrentAttributes), by_recurrent_name()
    limit = np.inf if attributes.clip is None else attributes.clip

    def activation(name: str, parameters: Mapping[str, float], limit: float) -> Activation:
        function = known[name]
        return lambda x: function.values(np.clip(x, -limit, limit) if limit < np.inf else x, **parameters)

    pairs = zip(attributes.activations[direction], attributes.activation_parameters[direction], strict=True)
    return [
        activation(name, parameters, np.inf if index == 2 else limit) for index, (name, parameters) in enumerate(pairs)
    ]


def _lstm_step(node: Operation, d: int, r: FloatArray, bias: FloatArray) -> TimeStep:
    attributes = node.attributes(LstmAttributes)
    f, g, h = _activations(node, d)
    peephole = np.zeros(3 * attributes.hidden_size) if attributes.P is None else attributes.P[d]
    p_i, p_o, p_f = np.split(peephole, 3)

    def step(x: FloatArray, states: States) -> States:
        before, cell = states
        i, o, forget, c = np.split(x + before @ r.T + bias, 4, axis=-1)
        i = f(i + p_i * cell)
        kept = 1.0 - i if attributes.input_forget else f(forget + p_f * cell)
        cell = kept * cell + i * g(c)
        return f(o + p_o * cell) * h(cell), cell

    return step


def _gru_step(node: Operation, d: int, r: FloatArray, bias: FloatArray) -> TimeStep:
    attributes = node.attributes(GruAttributes)
    hidden = attributes.hidden_size
    f, g = _activations(node, d)
    r_zr, r_h = r[: 2 * hidden], r[2 * hidden :]
    b_zr, b_h = bias[: 2 * hidden], bias[2 * hidden :]

    def step(x: FloatArray, states: States) -> States:
        (before,) = states
        z, reset = np.split(f(x[..., : 2 * hidden] + before @ r_zr.T + b_zr), 2, axis=-1)
        if attributes.linear_before_reset:
            inner = reset * (before @ r_h.T + b_h)
        else:
            inner = (reset * before) @ r_h.T + b_h
        return ((1.0 - z) * g(x[..., 2 * hidden :] + inner) + z * before,)

    return step


def _rnn_step(node: Operation, d: int, r: FloatArray, bias: FloatArray) -> TimeStep:
    (f,) = _activations(node, d)
    return lambda x, states: (f(x + states[0] @ r.T + bias),)


def _initial(attributes: RecurrentAttributes, inputs: Arrays, samples: int, batch: int) -> list[FloatArray]:
    """Every state ``[directions, samples * batch, hidden]`` before the first step."""
    hidden, count = attributes.hidden_size, len(attributes.W)
    states = []
    for index, constant in enumerate(attributes.initial, 1):
        state = inputs[index] if index < len(inputs) else None
        if state is None:
            constant = np.zeros((count, batch, hidden)) if constant is None else constant
            state = np.broadcast_to(constant, (samples, count, batch, hidden))
        states.append(state.swapaxes(0, 1).reshape(count, samples * batch, hidden))
    return states


def _evaluate(begin: Begin, node: Operation, inputs: Arrays) -> list[FloatArray]:
    x, attributes = present(inputs[0]), node.attributes(RecurrentAttributes)
    samples, steps, batch, _ = x.shape
    sequence = x.swapaxes(0, 1).reshape(steps, samples * batch, -1)
    initial = _initial(attributes, inputs, samples, batch)
    outputs, last = [], []
    for d, backward in enumerate(directions(node)):
        input_bias, bias = np.split(attributes.B[d], 2)
        step = begin(node, d, attributes.R[d], bias)
        gates = sequence @ attributes.W[d].T + input_bias
        states: States = tuple(state[d] for state in initial)
        values = np.empty((steps, samples * batch, attributes.hidden_size))
        for t in reversed(range(steps)) if backward else range(steps):
            states = step(gates[t], states)
            values[t] = states[0]
        outputs.append(values.reshape(steps, samples, batch, -1))
        last.append([state.reshape(samples, batch, -1) for state in states])
    y = np.stack(outputs).transpose(2, 1, 0, 3, 4)
    return [np.ascontiguousarray(y), *(np.stack(states, axis=1) for states in zip(*last, strict=True))]


_INITIAL = "constant initial state [directions, 1, hidden]; None: zero, unless there is an input"


class RecurrentAttributes(NoAttributes):
    """Attributes of all recurrent layers."""

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

    @property
    def initial(self) -> tuple[FloatArray | None, ...]:
        """Constant initial states, in the order of the inputs after the first."""
        return (self.initial_h,)


class LstmAttributes(RecurrentAttributes):
    """Attributes of an LSTM."""

    P: Annotated[FloatArray | None, Attribute("peephole weights as in ONNX; None: there are none", optional(ARRAY))]
    input_forget: Annotated[bool, Attribute("the forget gate is 1 - i", FLAG)]
    initial_c: Annotated[FloatArray | None, Attribute(_INITIAL, optional(ARRAY))]

    @property
    def initial(self) -> tuple[FloatArray | None, ...]:
        """Initial values of h and of the cell."""
        return self.initial_h, self.initial_c


class GruAttributes(RecurrentAttributes):
    """Attributes of a GRU."""

    linear_before_reset: Annotated[bool, Attribute("the reset gate multiplies the product with R", FLAG)]


def _macs(node: Operation, inputs: Shapes, outputs: Shapes) -> int:
    """Every step has all weights once."""
    attributes = node.attributes(RecurrentAttributes)
    return present(inputs[0])[0] * int(attributes.W.size + attributes.R.size)


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
        partial(_evaluate, begin),
        macs=_macs,
        weights=OperatorWeights(("W", "R"), "B", inputs=-1),
        recurrence=recurrence,
        wide_inputs=wide_inputs,
    )


RECURRENT_OPS = {
    "LSTM": _record(LstmAttributes, Recurrence(4, ("Sigmoid", "Tanh", "Tanh"), cell=True), _lstm_step, frozenset({2})),
    "GRU": _record(GruAttributes, Recurrence(3, ("Sigmoid", "Tanh")), _gru_step, frozenset({1})),
    "RNN": _record(RecurrentAttributes, Recurrence(1, ("Tanh",)), _rnn_step),
}
