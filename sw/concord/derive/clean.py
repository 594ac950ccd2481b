"""Models without what nobody reads, and with constants where everything is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from concord.derive import ir
from concord.derive.constant_factors import with_weights
from concord.derive.evaluate import compute, evaluate, flag_recorder
from concord.derive.flags import Words, every
from concord.derive.names import Names


def cleaned(model: ir.Model) -> tuple[ir.Model, dict[str, int]]:
    """Reduces a model to fewer nodes that have equal outputs and flags.

    Returns
    -------
    model : Model
    always : dict of int
        Flag words of the nodes that have become constants, by place.
    """
    renamed: dict[ir.Value, ir.Value] = {}
    words = {node.where: np.zeros(1, np.uint8) for node in every(model.body)}
    taken = {value.name for node in every(model.body) for value in (*node.inputs, *node.outputs)}
    nodes = _folded(model.body.nodes, {}, renamed, words, Names(taken))
    outputs = tuple(renamed.get(value, value) for value in model.outputs)
    always = {place: int(word[0]) for place, word in words.items() if word.any()}
    return replace(model, body=ir.Body(_used(nodes, set(outputs))), outputs=outputs), always


def _folded(
    nodes: Iterable[ir.ModelNode],
    known: dict[ir.Value, ir.Constant],
    renamed: dict[ir.Value, ir.Value],
    words: Words,
    names: Names,
) -> tuple[ir.ModelNode, ...]:
    """Compute what depends on constants alone; flags that it raises go to ``words``."""
    folded: list[ir.ModelNode] = []
    for node in nodes:
        if isinstance(node, ir.Loop):
            new: ir.ModelNode = _renamed_loop(node, known, renamed, words, names)
        else:
            new = _renamed(node, renamed)
        some: list[ir.ModelNode] = [new]
        if not isinstance(new, ir.Constant) and all(x in known for x in new.inputs):
            some = _constants(new, known, renamed, words)
        elif isinstance(new, ir.ProductOf):
            x, matrix = (known[value].data if value in known else None for value in new.inputs)
            some = with_weights(new, x, matrix, partial(names.new, new.layer))
        known.update((part.output, part) for part in some if isinstance(part, ir.Constant))
        folded += some
    return tuple(folded)


def _constants(
    node: ir.ModelNode, known: dict[ir.Value, ir.Constant], renamed: dict[ir.Value, ir.Value], words: Words
) -> list[ir.ModelNode]:
    """Constants in the place of a node of which all is known, unless it gives numbers of the host."""
    if node.output.type is not ir.Type.BINARY16:
        renamed[node.output] = replace(node.output, batched=False)
        return [replace(node, output=renamed[node.output])]
    values = {x: known[x].data for x in node.inputs}
    with np.errstate(all="ignore"):
        if isinstance(node, ir.Loop):
            evaluate(ir.Body((node,)), values, words)
        else:
            values[node.output] = compute(node, [values[x][None] for x in node.inputs], flag_recorder(node, words))
    constants: list[ir.ModelNode] = []
    for output in node.outputs:
        renamed[output] = replace(output, batched=False)
        data = np.ascontiguousarray(values[output][0])
        constants.append(ir.Constant(output=renamed[output], layer=node.layer, data=data))
    return constants


def _renamed_loop(
    loop: ir.Loop,
    known: dict[ir.Value, ir.Constant],
    renamed: dict[ir.Value, ir.Value],
    words: Words,
    names: Names,
) -> ir.Loop:
    def new(value: ir.Value) -> ir.Value:
        return renamed.get(value, value)

    body = ir.Body(_folded(loop.body, dict(known), renamed, words, names))
    return replace(
        loop,
        body=body,
        carried=tuple(
            replace(carried, initial=new(carried.initial), result=new(carried.result)) for carried in loop.carried
        ),
        scanned=tuple(replace(scan, source=new(scan.source)) for scan in loop.scanned),
        stacked=tuple(replace(stack, result=new(stack.result)) for stack in loop.stacked),
    )


def _renamed(node: ir.ModelNode, renamed: dict[ir.Value, ir.Value]) -> ir.ModelNode:
    """The node with values that have become constants."""
    if not any(x in renamed for x in node.inputs):
        return node
    changes: dict[str, object] = {}
    if hasattr(node, "x"):
        changes["x"] = renamed.get(node.x, node.x)
    if isinstance(node, ir.ProductOf):
        changes["matrix"] = renamed.get(node.matrix, node.matrix)
    if hasattr(node, "xs"):
        changes["xs"] = tuple(renamed.get(x, x) for x in node.xs)
    new = replace(node, **changes)  # type: ignore[arg-type]
    return _as_gather(new) if isinstance(new, ir.Concat) and len({x.batched for x in new.xs}) > 1 else new


def _as_gather(node: ir.Concat) -> ir.Gather:
    """Sources side by side of which some have become constants."""
    first, parts = 0, []
    for x in node.xs:
        parts.append((first + np.arange(x.size)).reshape(x.shape))
        first += x.size
    return ir.Gather(output=node.output, layer=node.layer, xs=node.xs, index=np.concatenate(parts, axis=node.axis))


def _used(nodes: tuple[ir.ModelNode, ...], needed: set[ir.Value]) -> tuple[ir.ModelNode, ...]:
    """Nodes that something needs, or that may raise flags, from the last one to the first."""
    kept: list[ir.ModelNode] = []
    for node in reversed(nodes):
        if isinstance(node, ir.Loop):
            smaller = _used_loop(node, needed)
            if smaller is None:
                continue
            node = smaller
        elif node.output not in needed and not node.may:
            continue
        kept.append(node)
        needed.update(node.inputs)
    return tuple(reversed(kept))


def _used_loop(loop: ir.Loop, needed: set[ir.Value]) -> ir.Loop | None:
    """A loop with those parameters and outputs that are needed."""
    stacked = tuple(stack for stack in loop.stacked if stack.output in needed)
    finals = {carried for carried in loop.carried if carried.final is not None and carried.final in needed}
    if not stacked and not finals and not any(node.may for node in every(loop.body)):
        return None
    carried = finals
    while True:
        wanted = {part.result for part in stacked} | {part.result for part in carried}
        body = _used(loop.body.nodes, set(wanted))
        read = {x for node in body for x in node.inputs} | wanted
        more = {part for part in loop.carried if part.param in read} | finals
        if more == carried:
            break
        carried = more
    return replace(
        loop,
        output=stacked[0].output if stacked else loop.output,
        body=ir.Body(body),
        carried=tuple(part for part in loop.carried if part in carried),
        scanned=tuple(part for part in loop.scanned if part.param in read),
        stacked=stacked,
    )
