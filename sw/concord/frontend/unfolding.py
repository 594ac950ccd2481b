"""Operators that stand for other nodes of ONNX: control flow, sequences, and functions that ONNX itself defines.

A branch whose condition is constant takes the place of its ``If``, and a loop that runs a known number of times becomes
that many copies of its body. A sequence is a list of names, and exists in the importer only. Every rule yields nodes
that the importer takes at once, so that constants among their results are known to the rule afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from concord.frontend.context import Context, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.limits import MOST_NODES
from concord.frontend.load import live_order
from concord.frontend.quantised_operators import OF_CODES, QUANTISED_RULES, form_of, on_codes, quantised

#: Nodes that take the place of one, some at a time.
Unfolding = Callable[[Context, OnnxNode], Iterator[list[OnnxNode]]]
#: Advice where control flow depends on values.
_OUTSIDE = "export without it, or decide outside the model"
#: Turns of a loop, each of which is a copy of its body.
_MOST_TURNS = 512
#: First version of the operators with axes as an input of Squeeze and Unsqueeze, and sizes as one of Split.
_AXES_ARE_INPUTS = 13
#: Before this version Scan has a batch.
_SCAN_WITHOUT_BATCH = 9


def conditional(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """The branch that a constant condition chooses."""
    name = node.input(0)
    if not ctx.is_constant(name):
        raise Refusal(f"condition must be constant, not computed ('{name}')", _OUTSIDE)
    body = node.attrs["then_branch" if np.all(ctx.constants[name]) else "else_branch"]
    yield spliced(ctx, node, body, {}, node.outputs)


def loop(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """Copies of the body, as many as it runs."""
    body, carried = node.attrs["body"], node.inputs[2:]
    counts = [int(ctx.constant(node.input(0), "trip count").reshape(()))] if node.input(0) else []
    goes_on = not node.input(1) or bool(ctx.constant(node.input(1), "condition").reshape(()))
    kept: list[list[str]] = [[] for _ in node.outputs[len(carried) :]]
    most, turn = min([*counts, _MOST_TURNS + 1]), 0
    while goes_on and turn < most:
        _check_turns(turn + 1, body)
        number, condition = ctx.new_constant(node, np.int64(turn)), ctx.new_constant(node, np.bool_(True))
        values = [number, condition, *carried]
        results = _read_later(ctx, node, [item.name for item in body.output])
        yield spliced(ctx, node, body, dict(zip([item.name for item in body.input], values, strict=True)), results)
        goes_on = bool(ctx.constant(results[0], "condition of the next turn").reshape(()))
        carried, rows = results[1 : len(carried) + 1], results[len(carried) + 1 :]
        for group, row in zip(kept, rows, strict=True):
            group.append(row)
        turn += 1
    yield [_identity(ctx, a, b) for a, b in zip(carried, node.outputs, strict=False) if b]
    for group, name in zip(kept, node.outputs[len(carried) :], strict=True):
        if name in ctx.used:
            yield _stacked(ctx, node, group, 0, name)


def scan(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """A copy of the body for every index of the axis that is scanned."""
    if ctx.opset < _SCAN_WITHOUT_BATCH:
        raise Refusal("must be of opset 9 or later", "convert the model with onnx.version_converter")
    body, count = node.attrs["body"], int(node.attrs["num_scan_inputs"])
    carried, rows = node.inputs[: len(node.inputs) - count], node.inputs[len(node.inputs) - count :]
    shapes = [ctx.operand_shape(name) for name in rows]
    axes = [axis % len(s) for axis, s in zip(node.attrs.get("scan_input_axes", [0] * count), shapes, strict=True)]
    backwards = node.attrs.get("scan_input_directions", [0] * count)
    turns = {shape[axis] for shape, axis in zip(shapes, axes, strict=True)}
    if len(turns) != 1:
        raise Refusal(f"must scan axes of one length, not {sorted(turns)}")
    (length,) = turns
    _check_turns(length, body)
    kept: list[list[str]] = [[] for _ in node.outputs[len(carried) :]]
    for turn in range(length):
        parts = _read_later(ctx, node, rows)
        places = [length - 1 - turn if back else turn for back in backwards]
        yield [
            ctx.new_node(node, "Gather", [name, ctx.new_constant(node, np.int64(place))], [part], axis=axis)
            for name, place, part, axis in zip(rows, places, parts, axes, strict=True)
        ]
        results = _read_later(ctx, node, [item.name for item in body.output])
        names = dict(zip([item.name for item in body.input], [*carried, *parts], strict=True))
        yield spliced(ctx, node, body, names, results)
        carried = results[: len(carried)]
        for group, row in zip(kept, results[len(carried) :], strict=True):
            group.append(row)
    yield [_identity(ctx, a, b) for a, b in zip(carried, node.outputs, strict=False) if b]
    ends = node.attrs.get("scan_output_axes", [0] * len(kept))
    reversed_ = node.attrs.get("scan_output_directions", [0] * len(kept))
    for group, name, axis, back in zip(kept, node.outputs[len(carried) :], ends, reversed_, strict=True):
        if name in ctx.used:
            yield _stacked(ctx, node, group[::-1] if back else group, axis, name)


def _check_turns(turns: int, body: Any) -> None:
    if turns > _MOST_TURNS or turns * len(body.node) > MOST_NODES:
        raise Refusal(f"must run at most {_MOST_TURNS} times, and unfold to at most {MOST_NODES} nodes", _OUTSIDE)


def defined_by_onnx(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]] | None:
    """The nodes with which ONNX defines an operator; ``None`` if it does not."""
    from onnx import defs

    try:
        schema: Any = defs.get_schema(node.op, ctx.opset, "")
    except defs.SchemaError:
        return None
    if not (schema.has_function or schema.has_context_dependent_function):
        return None
    return _of_schema(ctx, node, schema)


def _of_schema(ctx: Context, node: OnnxNode, schema: Any) -> Iterator[list[OnnxNode]]:
    from onnx import FunctionProto, helper

    if schema.has_context_dependent_function:
        version = _version(ctx, schema.context_dependent_function_opset_versions)
        types = [_type(ctx, name).SerializeToString() for name in node.inputs]
        data = schema.get_context_dependent_function_with_opset_version(version, node.proto.SerializeToString(), types)
    else:
        version = _version(ctx, schema.function_opset_versions)
        data = schema.get_function_with_opset_version(version)
    function = FunctionProto.FromString(data) if data else None
    if function is None:
        raise Refusal("operator is not supported in this form", "replace it, or compute it outside the model")
    values = {name: record.default_value for name, record in schema.attributes.items() if record.default_value.type}
    values |= {item.name: item for item in node.proto.attribute}
    body = helper.make_graph([_with_attributes(inner, values) for inner in function.node], node.name, [], [])
    body.output.extend(helper.make_empty_tensor_value_info(name) for name in function.output)
    names = {name: node.input(k) for k, name in enumerate(function.input)}
    outputs = node.outputs + [""] * (len(function.output) - len(node.outputs))
    outside, ctx.opset = ctx.opset, version
    yield spliced(ctx, node, body, names, outputs)
    ctx.opset = outside


def _version(ctx: Context, versions: Sequence[int]) -> int:
    """The last version of a definition that the model may have, or else the first one."""
    return max([version for version in versions if version <= ctx.opset], default=min(versions))


def _with_attributes(node: Any, values: Mapping[str, Any]) -> Any:
    """A node of a function, with attributes of the call in the place of references to them."""
    made = type(node)()
    made.CopyFrom(node)
    del made.attribute[:]
    for item in node.attribute:
        if not item.ref_attr_name:
            copied = made.attribute.add()
            copied.CopyFrom(item)
            if item.HasField("g"):
                inner = [_with_attributes(part, values) for part in item.g.node]
                del copied.g.node[:]
                copied.g.node.extend(inner)
        elif item.ref_attr_name in values:
            copied = made.attribute.add()
            copied.CopyFrom(values[item.ref_attr_name])
            copied.name = item.name
    return made


def _type(ctx: Context, name: str) -> Any:
    """Type and shape of an operand, as far as they are known."""
    from onnx import TensorProto, TypeProto, helper

    if not name:
        return TypeProto()
    if ctx.is_constant(name):
        value = ctx.constants[name]
        return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
    if name in ctx.sequences:
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    return helper.make_tensor_type_proto(TensorProto.FLOAT, ctx.shape(name))


def spliced(
    ctx: Context, node: OnnxNode, body: Any, names: Mapping[str, str], outputs: Sequence[str]
) -> list[OnnxNode]:
    """The nodes of a body, with names of their own.

    Parameters
    ----------
    ctx : Context
        What is known.
    node : OnnxNode
        In whose place they stand.
    body : GraphProto
        The body; what it does not compute and ``names`` does not have is that of the model around.
    names : mapping of str to str
        What inputs of the body are called in the model.
    outputs : sequence of str
        What its outputs are called in the model; empty for those that nobody reads.
    """
    from onnx import numpy_helper

    known = dict(names)
    for item in body.initializer:
        known[item.name] = ctx.new_constant(node, numpy_helper.to_array(item))
    order = [body.node[k] for k in live_order(body)]
    computed = {name for inner in order for name in inner.output if name}
    ends: list[OnnxNode] = []
    for item, outer in zip(body.output, outputs, strict=True):
        if outer and item.name in computed and item.name not in known:
            known[item.name] = outer
        elif outer:
            ends.append(_identity(ctx, known.get(item.name, item.name), outer))
    known |= {name: ctx.unique(f"{node.name}/{name}") for name in computed if name not in known}
    made = [_renamed(inner, known, node.name) for inner in order]
    for inner in made:
        inner.name = ctx.unique(inner.name)
    return [*map(OnnxNode, made), *ends]


def _renamed(node: Any, names: Mapping[str, str], prefix: str) -> Any:
    """A node with other names of tensors, also in its bodies."""
    made = type(node)()
    made.CopyFrom(node)
    made.name = f"{prefix}/{node.name or next(filter(None, node.output), node.op_type)}"
    made.input[:] = [names.get(name, name) for name in node.input]
    made.output[:] = [names.get(name, name) for name in node.output]
    for item in made.attribute:
        if item.HasField("g"):
            own = {value.name for value in (*item.g.input, *item.g.initializer)}
            own |= {name for inner in item.g.node for name in inner.output}
            outer = {name: new for name, new in names.items() if name not in own}
            inner_nodes = [_renamed(inner, outer, prefix) for inner in item.g.node]
            del item.g.node[:]
            item.g.node.extend(inner_nodes)
            for value in item.g.output:
                value.name = outer.get(value.name, value.name)
    return made


def _read_later(ctx: Context, node: OnnxNode, stems: Sequence[str]) -> list[str]:
    """Names of tensors that nodes of a later step read."""
    names = [ctx.unique(f"{node.name}/{stem}") for stem in stems]
    ctx.used.update(names)
    return names


def _identity(ctx: Context, name: str, output: str) -> OnnxNode:
    from onnx import helper

    return OnnxNode(helper.make_node("Identity", [name], [output], ctx.unique(f"{output}/Identity")))


def _with_axis(ctx: Context, node: OnnxNode, op: str, axis: int, name: str, output: str) -> OnnxNode:
    """Squeeze or Unsqueeze of an axis."""
    if ctx.opset >= _AXES_ARE_INPUTS:
        return ctx.new_node(node, op, [name, ctx.new_constant(node, np.array([axis]))], [output])
    return ctx.new_node(node, op, [name], [output], axes=[axis])


def _stacked(ctx: Context, node: OnnxNode, names: Sequence[str], axis: int, output: str) -> list[OnnxNode]:
    """Tensors side by side along a new axis."""
    if not names:
        raise Refusal("must run at least once", "remove it")
    parts = _read_later(ctx, node, ["part"] * len(names))
    rows = [_with_axis(ctx, node, "Unsqueeze", axis, a, b) for a, b in zip(names, parts, strict=True)]
    return [*rows, ctx.new_node(node, "Concat", parts, [output], axis=axis)]


def sequence(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """Operators of sequences: lists of names, with constant places."""
    result = node.outputs[0]
    if node.op in ("SequenceEmpty", "SequenceConstruct"):
        ctx.sequences[result] = [*node.inputs]
    elif node.op == "SplitToSequence":
        yield from _split(ctx, node)
    else:
        if node.input(0) not in ctx.sequences:
            raise Refusal(f"sequence '{node.input(0)}' must be made in the model", "make its tensors inputs")
        names = [*ctx.sequences[node.input(0)]]
        if node.op == "SequenceLength":
            ctx.constants[result] = np.array(len(names))
        elif node.op == "SequenceInsert":
            place = _place(ctx, node, 2, len(names), len(names) + 1)
            ctx.sequences[result] = [*names[:place], node.input(1), *names[place:]]
        elif node.op == "ConcatFromSequence":
            axis = int(node.attrs["axis"])
            if node.attrs.get("new_axis", 0):
                yield _stacked(ctx, node, names, axis, result)
            else:
                yield [ctx.new_node(node, "Concat", names, [result], axis=axis)]
        else:
            place = _place(ctx, node, 1, len(names) - 1, len(names))
            if node.op == "SequenceAt":
                yield _alias(ctx, names[place], result)
            else:
                ctx.sequences[result] = [*names[:place], *names[place + 1 :]]


def sequence_map(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """A copy of the body for every element of a sequence; others go along, or are the same for all."""
    body, names = node.attrs["body"], ctx.sequences.get(node.input(0))
    if names is None:
        raise Refusal(f"sequence '{node.input(0)}' must be made in the model", "make its tensors inputs")
    _check_turns(len(names), body)
    made: list[list[str]] = [[] for _ in node.outputs]
    for k in range(len(names)):
        values = [ctx.sequences[name][k] if name in ctx.sequences else name for name in node.inputs]
        results = _read_later(ctx, node, [item.name for item in body.output])
        yield spliced(ctx, node, body, dict(zip([item.name for item in body.input], values, strict=True)), results)
        for group, name in zip(made, results, strict=True):
            group.append(name)
    ctx.sequences.update(zip(node.outputs, made, strict=True))


def _place(ctx: Context, node: OnnxNode, index: int, default: int, count: int) -> int:
    """A place in a sequence, counted from the begin."""
    name = node.input(index)
    place = int(ctx.constant(name, "position").reshape(())) if name else default
    place += count if place < 0 and name else 0
    if not 0 <= place < count:
        raise Refusal(f"position must be one of the {count} of the sequence")
    return place


def _split(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """Parts of a tensor along an axis: of one index each unless sizes, or the size of all of them, are there."""
    x, result = node.input(0), node.outputs[0]
    shape = ctx.operand_shape(x)
    (axis,) = ctx.axes([node.attrs.get("axis", 0)], len(shape))
    if node.input(1):
        sizes = ctx.constant(node.input(1), "split")
        step, length = int(sizes.reshape(-1)[0]), shape[axis]
        each = [min(step, length - k) for k in range(0, length, step)] if sizes.ndim == 0 else sizes.tolist()
    else:
        each = [1] * shape[axis]
    names = _read_later(ctx, node, ["part"] * len(each))
    sizes_name = [ctx.new_constant(node, np.array(each))] if ctx.opset >= _AXES_ARE_INPUTS else []
    attrs = {} if sizes_name else {"split": each}
    yield [ctx.new_node(node, "Split", [x, *sizes_name], names, axis=axis, **attrs)]
    if not node.input(1) and not node.attrs.get("keepdims", 1):
        flat = _read_later(ctx, node, ["part"] * len(each))
        yield [_with_axis(ctx, node, "Squeeze", axis, a, b) for a, b in zip(names, flat, strict=True)]
        names = flat
    ctx.sequences[result] = names


def _alias(ctx: Context, name: str, result: str) -> list[OnnxNode]:
    """Identity: another name for a tensor or a sequence."""
    if name in ctx.sequences:
        ctx.sequences[result] = ctx.sequences[name]
        return []
    return [_identity(ctx, name, result)]


def optional(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """Replace an operator on an optional by the element that it has, if it has one."""
    name, result = node.input(0), node.outputs[0]
    if node.op == "OptionalHasElement":
        ctx.constants[result] = np.array(bool(name) and name not in ctx.empty)
    elif not name or name in ctx.empty:
        if node.op == "OptionalGetElement":
            raise Refusal("reads an optional without an element")
        ctx.empty.add(result)
    else:
        yield _alias(ctx, name, result)


def repeated(ctx: Context, node: OnnxNode) -> Iterator[list[OnnxNode]]:
    """An Identity of a sequence or an optional without an element is another name for it."""
    name, result = node.input(0), node.outputs[0]
    if name in ctx.empty:
        ctx.empty.add(result)
    else:
        ctx.sequences[result] = ctx.sequences[name]
    yield []


def unfolding_of(ctx: Context, node: OnnxNode) -> Unfolding | None:
    """The rule for a node; ``None`` if it stands for itself."""
    if node.op == "Identity" and (node.input(0) in ctx.sequences or node.input(0) in ctx.empty):
        return repeated
    if node.standard and node.op in OF_CODES and node.input(0) in ctx.codes:
        return on_codes
    if form_of(node) is not None:
        return quantised
    return RULES.get(node.op) if node.standard else None


RULES: dict[str, Unfolding] = {
    **QUANTISED_RULES,
    "If": conditional,
    "Loop": loop,
    "Scan": scan,
    "SequenceMap": sequence_map,
    **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), optional),
    **dict.fromkeys(
        (
            "SequenceEmpty SequenceConstruct SequenceInsert SequenceErase SequenceAt SequenceLength SplitToSequence "
            "ConcatFromSequence"
        ).split(),
        sequence,
    ),
}
