"""LSTM, GRU and RNN."""

from __future__ import annotations

from typing import Any

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.functions import by_recurrent_name
from concord.graph.ops import OPS, Recurrence
from concord.graph.ops.recurrent import RECURRENT_OPS
from concord.utils.arrays import FloatArray


def _recurrence(node: OnnxNode) -> Recurrence:
    """Recurrence of the operator of the graph with the same name."""
    recurrence = OPS[node.op].recurrence
    assert recurrence is not None
    return recurrence


def recurrent(ctx: Context, node: OnnxNode) -> list[str]:
    """A recurrent layer over constant weights; ``layout`` 1 becomes transpositions."""
    batch_first = bool(node.attrs.get("layout", 0))
    states = _recurrence(node).initial
    attrs = _weights(ctx, node) | _activations(node)
    inputs = [ctx.tensor(node.input(0))]
    for index, name in enumerate(states, 5):
        tensor, attrs[name] = _state(ctx, node.input(index), name)
        inputs.append(tensor)
    if batch_first:
        inputs = [ctx.emit(node, "Transpose", [name], perm=(1, 0, 2)) if name else "" for name in inputs]
        attrs |= {name: None if attrs[name] is None else attrs[name].swapaxes(0, 1) for name in states}
    if ctx.graph.shapes[inputs[0]][1] != 1:
        raise Refusal("must have a batch of 1", "give the shape of one sample")
    if not node.input(4):
        outputs = ctx.emit_all(node, node.op, inputs, 1 + len(states), **attrs)
    elif ctx.is_constant(node.input(4)):
        outputs = _of_length(ctx, node, inputs, attrs)
    else:
        outputs = _of_computed_length(ctx, node, inputs, attrs)
    if not batch_first:
        return outputs
    perms = [(2, 0, 1, 3), *[(1, 0, 2)] * len(states)]
    pairs = zip(outputs, perms, node.outputs, strict=False)
    return [ctx.emit(node, "Transpose", [y], perm=perm) if name in ctx.used else "" for y, perm, name in pairs]


def _of_length(ctx: Context, node: OnnxNode, inputs: list[str], attrs: dict[str, Any]) -> list[str]:
    """The layer over the first steps, followed by zeros; the states at the end are those of the last of them."""
    steps, outputs = ctx.graph.shapes[inputs[0]][0], 1 + len(_recurrence(node).initial)
    (length,) = (int(value) for value in ctx.constant(node.input(4), "sequence_lens").reshape(-1))
    if not 1 <= length <= steps:
        raise Refusal(f"sequence_lens must be from 1 to the {steps} steps of the input, not {length}")
    if length == steps:
        return ctx.emit_all(node, node.op, inputs, outputs, **attrs)
    first = ctx.emit(node, "Slice", inputs[:1], axes=(0,), starts=(0,), stops=(length,), steps=(1,))
    y, *states = ctx.emit_all(node, node.op, [first, *inputs[1:]], outputs, **attrs)
    pads = (0, 0, 0, 0, steps - length, 0, 0, 0)
    return [ctx.emit(node, "Pad", [y], pads=pads, mode="constant", value=0.0), *states]


def _of_computed_length(ctx: Context, node: OnnxNode, inputs: list[str], attrs: dict[str, Any]) -> list[str]:
    """The layer over all steps: what the host makes of the length hides the results after the end.

    A direction from the end to the begin gets its steps in turned order, by a product with zeros and ones.
    """
    if len(node.outputs) > 2 and node.outputs[2] and node.outputs[2] in ctx.used:
        raise Refusal(
            "Y_c must not be read where sequence_lens is computed, as the cell goes on behind the end",
            "read Y and Y_h, or make sequence_lens constant",
        )
    x, length = inputs[0], ctx.tensor(node.input(4))
    steps, _, features = ctx.graph.shapes[x]
    hidden, places = attrs["hidden_size"], np.arange(steps, dtype=np.float64)
    if ctx.shape(length) != (1,):
        raise Refusal(f"sequence_lens must have one element, not the shape {list(ctx.shape(length))}")

    def compared(op: str, numbers: FloatArray, **more: Any) -> str:
        """Comparison of the length with numbers, in the shape of these, on the host."""
        column = ctx.emit(node, "Reshape", [length], shape=(1,) * numbers.ndim)
        return ctx.emit(node, op, [column], constant=numbers, **more)

    def of_steps(numbers: FloatArray) -> FloatArray:
        """A number for every step, at every element of its result."""
        return np.broadcast_to(numbers.reshape(-1, 1, 1, 1), (steps, 1, 1, hidden)).copy()

    inside = compared("Less", of_steps(places), reversed=True)
    last = compared("Equal", of_steps(places + 1))
    turn = compared("Equal", places[:, np.newaxis] + places + 1) if attrs["direction"] != "forward" else ""
    sequences, states = [], []
    for d, backward in enumerate(
        {"bidirectional": (False, True), "reverse": (True,)}.get(attrs["direction"], (False,))
    ):
        own = attrs | {
            name: None if attrs.get(name) is None else attrs[name][d : d + 1]
            for name in ("W", "R", "B", "P", "activations", "activation_parameters", "initial_h", "initial_c")
            if name in attrs
        }
        own["direction"] = "forward"
        initial = [_direction_of(ctx, node, name, d) for name in inputs[1:]]
        source = x if not backward else _turned(ctx, node, turn, x, features)
        y = ctx.emit_all(node, node.op, [source, *initial], 1 + len(initial), **own)[0]
        state = ctx.emit(node, "Mul", [y, last])
        states.append(ctx.emit(node, "ReduceSum", [state], axes=(0,), keepdims=False))
        sequences.append(_turned(ctx, node, turn, y, hidden) if backward else ctx.emit(node, "Mul", [y, inside]))
    if len(states) == 1:
        return [sequences[0], states[0]]
    return [ctx.emit(node, "Concat", sequences, axis=1), ctx.emit(node, "Concat", states, axis=0)]


def _direction_of(ctx: Context, node: OnnxNode, state: str, d: int) -> str:
    """The part of an initial state that one direction has."""
    if not state or ctx.graph.shapes[state][0] == 1:
        return state
    return ctx.emit(node, "Slice", [state], axes=(0,), starts=(d,), stops=(d + 1,), steps=(1,))


def _turned(ctx: Context, node: OnnxNode, turn: str, x: str, elements: int) -> str:
    """Steps up to the end in turned order, followed by zeros."""
    shape = ctx.graph.shapes[x]
    lines = ctx.emit(node, "Reshape", [x], shape=(shape[0], elements))
    return ctx.emit(node, "Reshape", [ctx.emit(node, "MatMul", [turn, lines])], shape=shape)


def _weights(ctx: Context, node: OnnxNode) -> dict[str, Any]:
    w, r = ctx.floats(node.input(1), "W"), ctx.floats(node.input(2), "R")
    rows = _recurrence(node).gates * r.shape[-1]
    if w.ndim != 3 or r.shape != (len(w), rows, r.shape[-1]) or w.shape[1] != rows:
        raise Refusal(f"W {list(w.shape)} and R {list(r.shape)} must go together")
    hidden = r.shape[2]
    direction = node.attrs.get("direction", "forward")
    bias = ctx.floats(node.input(3), "B") if node.input(3) else np.zeros((len(w), 2 * rows))
    if len(w) != (2 if direction == "bidirectional" else 1) or bias.shape != (len(w), 2 * rows):
        raise Refusal(f"W {list(w.shape)} and B {list(bias.shape)} must go with {direction}")
    attrs = {"W": w, "R": r, "B": bias, "hidden_size": hidden, "direction": direction, "clip": node.attrs.get("clip")}
    if node.op == "LSTM":
        attrs["P"] = ctx.floats(node.input(7), "P") if node.input(7) else None
        attrs["input_forget"] = bool(node.attrs.get("input_forget", 0))
    if node.op == "GRU":
        attrs["linear_before_reset"] = bool(node.attrs.get("linear_before_reset", 0))
    return attrs


def _activations(node: OnnxNode) -> dict[str, Any]:
    """Functions per direction; alpha and beta go one after the other to those that have them."""
    count = 2 if node.attrs.get("direction") == "bidirectional" else 1
    defaults = _recurrence(node).functions
    names = node.attrs.get("activations") or [*defaults] * count
    remaining = {key: list(node.attrs.get(f"activation_{key}", [])) for key in ("alpha", "beta")}
    known = {name.lower(): record for name, record in by_recurrent_name().items()}
    if len(names) != count * len(defaults) or any(name.lower() not in known for name in names):
        raise Refusal(f"activations must be of {sorted(by_recurrent_name())}, not {names}", "use another one")
    records = [known[name.lower()] for name in names]
    names = [record.recurrent for record in records]
    parameters = [
        {key: remaining[key].pop(0) if remaining[key] else value for key, value in record.parameters.items()}
        for record in records
    ]
    part = len(names) // count
    return {
        "activations": tuple(tuple(names[k : k + part]) for k in range(0, len(names), part)),
        "activation_parameters": tuple(tuple(parameters[k : k + part]) for k in range(0, len(names), part)),
    }


def _state(ctx: Context, name: str, what: str) -> tuple[str, Any]:
    """An initial state as tensor or as constant; a constant of zeros is neither."""
    if not name:
        return "", None
    if not ctx.is_constant(name):
        return ctx.tensor(name), None
    value = ctx.floats(name, what)
    return "", value if value.any() else None


HANDLERS: dict[str, Handler] = dict.fromkeys(RECURRENT_OPS, recurrent)
