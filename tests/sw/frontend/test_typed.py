"""ONNX files with types: shared conversions are nodes where they belong, and the file computes what it did before."""

import json

import numpy as np
import onnx
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.frontend.typed import DOMAIN, FUNCTION, typed_model
from concord.graph.passes.dtype_report import graph_rows
from concord.graph.passes.dtypes import assign
from concord.spec.presets import TINY
from support.onnx_expressions import given, model_of, op
from support.onnx_models import onnxruntime_results
from support.trained import DATA, needs_data

RNG = np.random.default_rng(3)
WEIGHTS = {name: RNG.normal(0, 0.3, (8, 8)).astype(np.float32) for name in ("w", "w1", "w2", "w3")}


def shared():
    """``a`` is read by two products and, wide, by a softmax."""
    return readers_of(fc())


def product(x, weight, name):
    return op.MatMul(x, WEIGHTS[weight], name=name)


def fc():
    return product(given(1, 8), "w", "a")


def readers_of(x):
    """Two products and a softmax of a tensor."""
    outputs = {"y1": product(x, "w1", "fc1"), "y2": product(x, "w2", "fc2"), "y3": op.Softmax(x, name="third")}
    return model_of(**outputs)


def typed(proto, conversions_from=1):
    """The typed model and what it was made with; it passes the checker and computes the same bits."""
    data = proto.SerializeToString()
    graph = import_model(data)
    types = assign(graph, conversions_from=conversions_from)
    made = typed_model(data, graph, types, graph_rows(graph, TINY, types), conversions_from)
    new = onnx.load_model_from_string(made.data)
    onnx.checker.check_model(new, full_check=True)
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(graph.shapes[name]) for name in graph.inputs}
    for was, now in zip(onnxruntime_results(proto, inputs), onnxruntime_results(new, inputs), strict=True):
        assert was.tobytes() == now.tobytes() and was.shape == now.shape
    return new, made, graph


def conversions(proto):
    return [part for part in proto.graph.node if (part.domain, part.op_type) == (DOMAIN, FUNCTION)]


def readers(proto, name):
    return [part.name for part in proto.graph.node if name in part.input]


def notes(part):
    return {item.key: item.value for item in part.metadata_props}


def test_a_shared_conversion_is_a_node():
    new, made, _ = typed(shared())
    (conversion,) = conversions(new)
    assert made.conversions == ("a/narrow",) == tuple(conversion.output) and made.left_out == ()
    assert list(conversion.input) == ["a"] and notes(conversion) == {"concord:readers": "fc1, fc2"}
    assert onnx.helper.get_attribute_value(conversion.attribute[0]) == 1.0
    assert readers(new, "a/narrow") == ["fc1", "fc2"] and readers(new, "a") == ["a/narrow", "third"]
    assert [part.name for part in new.graph.node].index("a/narrow") == 1


def test_tensors_and_nodes_have_their_types():
    new, _, graph = typed(shared())
    values = {value.name: notes(value) for value in (*new.graph.input, *new.graph.value_info, *new.graph.output)}
    assert values == {
        "x": {"concord:factors": "1", "concord:type": "narrow"},
        "a": {"concord:factors": "1, 1, 0, 0", "concord:type": "wide"},
        "a/narrow": {"concord:type": "narrow"},
        "y1": {"concord:factors": "0", "concord:type": "wide"},
        "y2": {"concord:factors": "0", "concord:type": "wide"},
        "y3": {"concord:factors": "0", "concord:type": "wide"},
    }
    forms = {part.name: notes(part).get("concord:form") for part in new.graph.node}
    assert forms == {"a": "narrow to wide", "a/narrow": None, "fc1": "narrow to wide", "fc2": "narrow to wide",
                     "third": None}  # fmt: skip
    table = json.loads(notes(new)["concord:types"])
    assert [row["name"] for row in table] == [*assign(graph).tensors] and notes(new)["concord:conversions_from"] == "1"
    assert table[1]["conversions"] == [{"factor": 1.0, "readers": ["fc1", "fc2"], "shared": True}]


def test_two_readers_are_no_more_than_2():
    new, made, _ = typed(shared(), conversions_from=2)
    assert not conversions(new) and not new.functions and made.conversions == made.left_out == ()
    assert readers(new, "a") == ["fc1", "fc2", "third"] and notes(new)["concord:conversions_from"] == "2"


def test_the_typed_file_compiles_to_the_same_program():
    new, _, graph = typed(shared())
    was, now = (compile_graph(part, TINY).image for part in (graph, import_model(new)))
    assert was.program == now.program and was.segments == now.segments


def test_products_of_several_nodes_and_operators_in_parts():
    """A product with its bias is two nodes of the file; an Identity in front of it is none of the graph."""
    a = fc()
    y1 = op.Add(product(a, "w1", "fc1"), WEIGHTS["w3"][0], name="bias")
    y2 = product(op.Identity(a, name="same"), "w2", "fc2")
    y3, y4 = op.ReduceMean(a, name="mean", axes=[1]), op.LayerNormalization(a, np.ones(8), name="norm")
    new, made, _ = typed(model_of(y1=y1, y2=y2, y3=y3, y4=y4))
    assert made.left_out == () and readers(new, "a/narrow") == ["fc1", "same", "mean"]
    assert readers(new, "a") == ["a/narrow", "norm"]


def test_an_edge_for_readers_of_both_types_is_left_as_it_is():
    """Products and a softmax read ``a`` by way of one Identity, which is no node of the graph."""
    new, made, _ = typed(readers_of(op.Identity(fc(), name="same")))
    assert not conversions(new)
    assert made.left_out == (
        "the conversion of 'a' is no node of the file: a node of the file reads the tensor for readers of both types",
    )


def test_a_conversion_of_an_input():
    """Both products read the input, which is an output, too, so it is wide."""
    new, made, _ = typed(readers_of(given(1, 8)))
    assert made.conversions == ("x/narrow",) and new.graph.node[0].output[0] == "x/narrow"


def test_a_name_that_is_taken():
    proto = shared()
    proto.graph.node[3].output[0] = "a/narrow"
    proto.graph.output[2].name = "a/narrow"
    new, made, _ = typed(proto)
    assert made.conversions == ("a/narrow.1",) and readers(new, "a/narrow.1") == ["fc1", "fc2"]


def test_a_typed_file_again_is_the_same_file():
    new, made, _ = typed(shared())
    again, _, _ = typed(new)
    assert again.SerializeToString() == made.data
    assert len([item for item in again.opset_import if item.domain == DOMAIN]) == len(again.functions) == 1


def test_a_typed_file_with_another_set_number():
    """What was noted the last time is replaced, what others noted stays."""
    new, _, _ = typed(shared())
    new.metadata_props.add(key="author", value="somebody")
    again, made, _ = typed(new, conversions_from=2)
    assert made.left_out == () and not conversions(again) and not again.functions
    assert readers(again, "a") == ["fc1", "fc2", "third"]
    assert notes(again)["concord:conversions_from"] == "2" and notes(again)["author"] == "somebody"
    parts = (again, *again.graph.node, *again.graph.input, *again.graph.value_info, *again.graph.output)
    assert all(len(notes(part)) == len(part.metadata_props) for part in parts)


@needs_data
@pytest.mark.parametrize(("name", "count"), [("digits_transformer", 2), ("ic_resnet8", 2), ("kws_crnn", 0)])
def test_trained_networks(name, count):
    proto = onnx.load(DATA / "models" / f"{name}.onnx")
    new, made, _ = typed(proto)
    assert len(conversions(new)) == count and made.left_out == ()
