"""LSTM, GRU and RNN."""

from __future__ import annotations

from typing import Any

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.functions import by_recurrent_name
from concord.graph.ops import OPS, Recurrence
from concord.graph.ops.recurrent import RECURRENT_OPS


def _recurrence(node: OnnxNode) -> Recurrence:
    """That of the operator of the graph with the same name."""
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
    steps = ctx.graph.shapes[inputs[0]][0]
    if node.input(4) and np.any(ctx.constant(node.input(4), "sequence_lens") != steps):
        raise Refusal(f"sequence_lens must all be {steps}, the length of the input", "pad outside the model")
    if ctx.graph.shapes[inputs[0]][1] != 1:
        raise Refusal("must have a batch of 1", "give the shape of one sample")
    outputs = ctx.emit_all(node, node.op, inputs, 1 + len(states), **attrs)
    if not batch_first:
        return outputs
    perms = [(2, 0, 1, 3), *[(1, 0, 2)] * len(states)]
    pairs = zip(outputs, perms, node.outputs, strict=False)
    return [ctx.emit(node, "Transpose", [y], perm=perm) if name in ctx.used else "" for y, perm, name in pairs]


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
