"""Recurrent layers: one block of chains per direction, stepping through time in a loop.

The product with the input of a step does not wait for the state: that of the next step is computed while the state of
this one drains from the pipe. All states of a sequence lie one after the other, the initial one in front of them, so
that the next layer reads them in place.
"""

from __future__ import annotations

import numpy as np

from concord.compiler.ir.cells import CELLS
from concord.compiler.ir.layers import Recurrent
from concord.compiler.ir.layout import PAD, LayoutError, spread
from concord.compiler.ir.table_specs import Functions
from concord.compiler.lowering import legality
from concord.compiler.lowering.lower import Lowering
from concord.functions import by_recurrent_name
from concord.graph.ir import Node
from concord.graph.ops import directions, operator_of
from concord.graph.ops.recurrent import RecurrentAttributes
from concord.utils.arrays import Ids


def recurrent(lowering: Lowering, node: Node) -> None:
    """LSTM, GRU and RNN, every direction for itself."""
    if node.op not in CELLS:
        raise LayoutError(f"cell must be one of {', '.join(CELLS)}, not {node.op}")
    ids = lowering.view(node.inputs[0])
    if ids.shape[1] != 1:
        raise LayoutError(f"batch must be 1, not {ids.shape[1]}")
    if node.attributes(RecurrentAttributes).clip is not None:
        raise LayoutError("clip must be left out: results are the same while what the activations read stays within it")
    views = [[] for _ in node.outputs]  # type: list[list[Ids]]
    for d, backward in enumerate(directions(node)):
        for collected, view in zip(views, _direction(lowering, node, ids, d, backward), strict=False):
            collected.append(view)
    for k, name in enumerate(node.outputs):
        if name:
            stacked = np.stack(views[k], axis=1 if k == 0 else 0)
            lowering.done.views[name] = stacked.reshape(lowering.graph.shapes[name])


def _direction(lowering: Lowering, node: Node, ids: Ids, d: int, backward: bool) -> list[Ids]:
    """Add the block of one direction; views of Y, Y_h and Y_c."""
    attributes, done = node.attributes(RecurrentAttributes), lowering.done
    steps, hidden = ids.shape[0], attributes.hidden_size
    name = lowering.fresh(f"{node.name}.{d}") if len(attributes.W) > 1 else node.name
    walk = lowering.walk(ids.reshape(1, steps, -1), "input")
    known = by_recurrent_name()
    functions: list[Functions] = [
        ((known[kind].name, tuple(sorted(parameters.items()))),)
        for kind, parameters in zip(attributes.activations[d], attributes.activation_parameters[d], strict=True)
    ]
    cell = CELLS[node.op](node, d, hidden, lambda weight: spread(weight, walk), functions)
    keep = bool(node.outputs[0]) and bool(lowering.readers[node.outputs[0]])
    target = done.storages.new(f"{name}.h", 1, steps + 1 if keep else 1, hidden)
    recurrence = operator_of(node).recurrence
    c = done.storages.new(f"{name}.c", 1, 1, hidden) if recurrence is not None and recurrence.cell else None
    initial, constants = {}, {}
    for index, (key, constant) in enumerate(zip("hc", attributes.initial, strict=False), 1):
        tensor = node.inputs[index] if len(node.inputs) > index else ""
        if tensor:
            initial[key] = lowering.walk(lowering.view(tensor)[d].reshape(1, 1, -1), f"initial {key}")
            if (initial[key].lanes != np.arange(hidden)).any():
                raise LayoutError(f"initial {key} must lie in whole vectors")
        elif constant is not None:
            constants[key] = constant[d].reshape(-1)
    legality.check_sum(max(walk.tiles, target.tiles), lowering.config)
    states = target.view(hidden)[0]
    first = 0 if backward else 1
    sequence = states[first : first + steps] if keep else np.full((steps, hidden), PAD)
    final = states[0] if backward or not keep else states[-1]
    states_of = (target, c, initial, constants)
    nodes = [node.name] if d == 0 else []
    tensors = (node.outputs[0], sequence)
    block = Recurrent(name, cell, walk, node.inputs[0], steps, backward, *states_of, *tensors, nodes)
    legality.check_reads(block)
    done.layers.append(block)
    return [sequence, final, *([c.view(hidden)[0, 0]] if c is not None else [])]
