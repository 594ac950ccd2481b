"""A node has the attributes of its operator and no others, each with a value that the operator takes."""

import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from concord.functions.segmented import TableSegment
from concord.graph.ir import Graph, Node
from concord.graph.level import problems
from concord.graph.ops import OPS
from concord.graph.ops import attributes as kinds
from concord.graph.ops.attributes import Attribute
from concord.graph.ops.windows import PoolAttributes, WindowAttributes
from concord.graph.passes import run as rewrite
from support.operator_examples import EXAMPLES, example

#: Values for attributes that no example has, by operator and attribute.
MORE = {
    "constant": np.ones(6), "beyond": 1.0, "reversed": True, "fixed": True, "product": True, "together": (1,),
    "masked": True, "domain": (-1.0, 1.0), "segment": TableSegment(0, 1, 0), "condition": np.ones(6),
    "chosen": np.ones(6), "other": np.ones(6),
    "stays": True,
}  # fmt: skip
EVERY = [(op, name) for op, record in OPS.items() for name in record.attributes]
#: By kind of values: some of another type, and some of the type that are none of them.
WRONG = {
    kinds.FLAG: [1, 0, None, "True", np.True_],
    kinds.COUNT: [0, -1, 1.0, True, None, (1,), "1"],
    kinds.AXIS: [-1, 1.0, True, None, (1,), "1"],
    kinds.INTEGER: [1.0, True, None, (1,), "1"],
    kinds.NOT_NEGATIVE: [-1, 1.0, True, None, (1,), "1"],
    kinds.AXES: [1, [1], (1, 1), (-1,), (1.0,), (True,), None, "1", np.array([1])],
    kinds.INTEGERS: [1, [1], (1.0,), (True,), None, np.array([1])],
    kinds.SIZES: [1, [1], (-1,), (1.0,), (True,), None, np.array([1])],
    kinds.COUNTS: [1, [1], (0,), (-1,), (1.0,), (True,), None, np.array([1])],
    kinds.NUMBER: [np.nan, "1", None, True, np.ones(1), (1.0,)],
    kinds.ARRAY: [1, 1.0, (1.0,), [1.0], None, np.ones(6, np.float32), np.ones(6, np.int64), "1"],
    kinds.TENSOR: ["", 1, None, ("x",)],
    kinds.FUNCTION_PAIRS: [
        (), "tanh", None, ("tanh", {}), [("tanh", {})], (("tanh",),), (("tanh", None),), (("tahn", {}),),
        (("leaky_relu", {"alhpa": 0.1}),), (("leaky_relu", {"alpha": "0.1"}),), ((["tanh"], {}),),
    ],
    kinds.INPUTS: [1.0, (1.0,), (1.0, 2.0, 3.0), ("a", "b"), None, [0.0, 1.0]],
    kinds.QUANTIZATION: [1, None, "int8", {}],
    kinds.SEGMENT: [1, None, (0, 1)],
    kinds.RECURRENT_NAMES: [("Tanh",), (("tanh",),), [("Tanh",)], None, ((1,),)],
    kinds.RECURRENT_PARAMETERS: [({},), (({"alpha": "1"},),), [({},)], None],
}  # fmt: skip


def wrong_values(values):
    """What an attribute must not be."""
    if values in WRONG:
        return WRONG[values]
    if values.holds(None):  # another kind, or None
        inner = next(kind for kind in WRONG if values.text == f"{kind.text}, or None")
        return [value for value in WRONG[inner] if value is not None]
    return ["constnat", "", None, 1, True]  # one of some words


def complete(op):
    """A node with every attribute of its operator."""
    node, shapes = example(op)
    more = {name: MORE[name] for name in OPS[op].attributes if name not in node.attrs}
    if "constant" in more:
        node = node.replace(inputs=node.inputs[:1])
    return node.with_attrs(**more), shapes


def test_nodes_with_every_attribute_are_made():
    for op in OPS:
        node, _ = complete(op)
        assert set(node.attrs) == set(OPS[op].attributes)


@pytest.mark.parametrize("op", sorted(OPS))
def test_an_attribute_that_the_operator_does_not_have(op):
    node, _ = example(op)
    for wrong in ("revesred", "maksed", "Constant", ""):
        for make in (lambda w: node.with_attrs(**{w: True}), lambda w: node.replace(attrs={**node.attrs, w: True})):
            with pytest.raises(ValueError, match=f"attributes of {op} 'node' must be of .*, not {wrong!r}"):
                make(wrong)


@pytest.mark.parametrize(("op", "name"), EVERY)
def test_a_misspelt_attribute(op, name):
    """Letters exchanged, one left out: the message names the one that is meant."""
    node, _ = complete(op)
    for wrong in (name[::-1] + "s", name[1:] + "x", name + "_"):
        attrs = {wrong if key == name else key: value for key, value in node.attrs.items()}
        with pytest.raises(ValueError, match=re.escape(f"not {wrong!r}")):
            Node(op, "node", node.inputs, node.outputs, attrs)


def test_the_attribute_that_is_meant_is_named():
    with pytest.raises(ValueError, match=r"not 'revesred' \(is 'reversed' meant\?\)"):
        Node("Sub", "n", ("x",), ("y",), {"constant": np.ones(1), "revesred": True})
    with pytest.raises(ValueError, match=r"attributes of Relu 'n' must be of none at all, not 'alpha'$"):
        Node("Relu", "n", ("x",), ("y",), {"alpha": 0.1})


@pytest.mark.parametrize(("op", "name"), EVERY)
def test_a_value_of_another_type(op, name):
    node, _ = complete(op)
    values = wrong_values(OPS[op].attributes[name].values)
    assert len(values) >= 3
    for value in values:
        with pytest.raises(ValueError, match=f"attribute '{name}' of {op} 'node' must be "):
            node.with_attrs(**{name: value})


@pytest.mark.parametrize(("op", "name"), EVERY)
def test_a_missing_attribute(op, name):
    node, _ = complete(op)
    attrs = {key: value for key, value in node.attrs.items() if key != name}
    dependent = {key for key, other in OPS[op].attributes.items() if other.beside == name}
    if OPS[op].attributes[name].required or dependent:
        with pytest.raises(ValueError, match=f"'{name}'"):
            node.replace(attrs=attrs)
    else:
        assert node.replace(attrs=attrs).attrs == attrs


@pytest.mark.parametrize("op", sorted(OPS))
def test_the_check_of_the_level_says_the_same(op):
    """Attributes are dicts: one that is changed behind the back of its node is noticed between passes."""
    node, shapes = example(op)
    graph = Graph("one", [node], list(node.inputs), [node.outputs[0]], shapes)
    assert list(problems(graph)) == []
    node.attrs["maksed"] = True
    assert any("must be of" in problem and "not 'maksed'" in problem for problem in problems(graph))
    del node.attrs["maksed"]
    for name, attribute in OPS[op].attributes.items():
        if attribute.required:
            kept = node.attrs.pop(name)
            assert any(f"attribute '{name}' of {op} 'node' must be there" in line for line in problems(graph))
            node.attrs[name] = object()
            assert any(f"attribute '{name}' of {op} 'node' must be" in line for line in problems(graph))
            node.attrs[name] = kept


def test_attributes_that_mean_nothing_alone():
    """A constant that is the first operand of a difference of two tensors would be left out without a word."""
    for name, value in (("reversed", True), ("beyond", 1.0)):
        with pytest.raises(ValueError, match=f"'{name}' of Sub 'n' must stand beside 'constant', which is missing"):
            Node("Sub", "n", ("x", "z"), ("y",), {name: value})


def test_rewrites_make_nodes_that_fit():
    """An Expand or a MatMul alone is rewritten like any other graph."""
    for op in EXAMPLES:
        node, shapes = example(op)
        graph = Graph("one", [node], list(node.inputs), [node.outputs[0]], shapes)
        rewrite(graph)
        assert list(problems(graph)) == []


@pytest.mark.parametrize("op", sorted(OPS))
def test_attributes_are_read_as_one_frozen_record(op):
    node, _ = complete(op)
    record = node.attributes(OPS[op].record)
    assert all(getattr(record, name) is value for name, value in node.attrs.items())
    with pytest.raises(FrozenInstanceError):
        record.anything = 1
    kept = {name: value for name, value in node.attrs.items() if OPS[op].attributes[name].required}
    absent = node.replace(attrs=kept).attributes(OPS[op].record)
    assert all(getattr(absent, name) in (None, False) for name in OPS[op].attributes if name not in kept)


def test_a_record_of_another_operator_is_refused():
    node, _ = complete("Conv")
    assert node.attributes(WindowAttributes).strides == node.attrs["strides"]
    with pytest.raises(TypeError, match=r"^attributes of Conv 'node' must be read as ConvAttributes, not Pool"):
        node.attributes(PoolAttributes)


def test_a_record_describes_every_attribute():
    for op, record in OPS.items():
        for name, attribute in record.attributes.items():
            assert isinstance(attribute, Attribute) and attribute.meaning, (op, name)
            assert name.isidentifier(), f"{op}: one entry per attribute, not {name!r}"
            assert not attribute.beside or attribute.beside in record.attributes
