"""An operator that is made up: what a new one needs, and that every stage refuses it by name until then."""

from dataclasses import replace
from typing import Annotated

import numpy as np
import pytest

from concord.compiler.calibration.formats import choose_formats
from concord.compiler.lowering import host_partition, rules
from concord.compiler.lowering.bounds import bounds
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.memory.footprint import check_weights_fit
from concord.compiler.model import compile_graph
from concord.graph import execute, host_rules
from concord.graph.cost import macs, node_macs
from concord.graph.ir import Node
from concord.graph.ops import OPS, Operator, OperatorKind, OperatorWeights
from concord.graph.ops.attributes import ARRAY, AXIS, Attribute, NoAttributes
from concord.graph.ops.base import present
from concord.graph.passes import dtypes
from concord.graph.passes.batch import BatchError, with_batch
from concord.graph.passes.fold_affine import run as fold_affine
from concord.graph.passes.scales import run as scale
from concord.graph.signs import never_negative
from concord.networks.calibrated import calibration_of
from concord.overflow.kinds import kind_of
from concord.overflow.layers import products
from concord.report import analyse
from concord.spec.presets import ECP5_85F, TINY
from concord.spec.training import TrainingFormats
from concord.train.export import export_onnx
from concord.train.network import CannotTrain, TrainableNetwork
from support.expressions import ROOMY, check, graph_of


def softshrink(node, inputs):
    x = present(inputs[0])
    return [x - np.clip(x, -3.0, 3.0)]


def same_shape(node, inputs):
    return [present(inputs[0])]


def shrunk(lowering, node):
    """A Softshrink3 is what is beyond -3..3."""
    middle = lowering.new_node(node, "Clip", "middle", node.inputs, min=-3.0, max=3.0)
    return [middle, Node("Sub", node.name, (*node.inputs, *middle.outputs), node.outputs)]


class FlipAttributes(NoAttributes):
    axis: Annotated[int, Attribute("the axis along which elements come in the other order", AXIS)]


class WeighedAttributes(NoAttributes):
    matrix: Annotated[np.ndarray, Attribute("[O, K]", ARRAY)]
    offset: Annotated[np.ndarray, Attribute("[O]", ARRAY)]


SOFTSHRINK = Operator(OperatorKind.PRECISE, NoAttributes, same_shape, softshrink)
FLIP = Operator(
    OperatorKind.MOVING,
    FlipAttributes,
    same_shape,
    lambda node, inputs: [np.flip(present(inputs[0]), node.attrs["axis"] + 1)],
    view=True,
)


def weighed(node, inputs):
    return [present(inputs[0]) @ node.attrs["matrix"].T + node.attrs["offset"]]


#: A Dense by another name, with other names for its weights.
WEIGHED = Operator(
    OperatorKind.QUANTISED,
    WeighedAttributes,
    lambda node, inputs: [(*present(inputs[0])[:-1], len(node.attrs["matrix"]))],
    weighed,
    macs=lambda node, inputs, outputs: int(np.prod(outputs[0])) * node.attrs["matrix"].shape[1],
    weights=OperatorWeights(("matrix",), "offset", inputs=-1, outputs=-1),
)


def by_dense(lowering, node):
    return [node.replace(op="Dense", attrs={"weight": node.attrs["matrix"], "bias": node.attrs["offset"]})]


def integers(*shape):
    return np.random.default_rng(sum(shape)).integers(-2, 3, shape).astype(float)


def dense(name, x, y, outputs, inputs):
    return Node("Dense", name, (x,), (y,), {"weight": integers(outputs, inputs), "bias": integers(outputs)})


def with_softshrink():
    return graph_of([dense("fc", "x", "a", 6, 5), Node("Softshrink3", "shrink", ("a",), ("y",))], x=(1, 5))


@pytest.fixture
def softshrink_net(monkeypatch):
    monkeypatch.setitem(OPS, "Softshrink3", SOFTSHRINK)
    return with_softshrink()


def test_a_made_up_function_has_shape_reference_types_and_cost(softshrink_net):
    graph = softshrink_net
    x = np.random.default_rng(1).normal(0, 2, (4, 5))
    product = x @ graph.nodes[0].attrs["weight"].T + graph.nodes[0].attrs["bias"]
    assert graph.shapes["y"] == (1, 6)
    assert execute.run(graph, {"x": x})["y"] == pytest.approx(product - product.clip(-3, 3))
    assert macs(graph) == 5 * 6 and node_macs(graph, graph.nodes[1]) == 0
    assert dtypes.assign(graph).tensors["a"] is dtypes.Dtype.WIDE
    assert not never_negative(graph, "y", inputs=True) and kind_of(graph) == "dense"
    assert [one.name for one in products(graph, {"x": x})] == ["fc"]


def test_a_made_up_function_is_refused_by_name_until_it_is_lowered(softshrink_net, monkeypatch):
    graph = softshrink_net
    with pytest.raises(Unsupported, match="Softshrink3 'shrink': operator is not supported on the NPU"):
        compile_graph(graph, ROOMY)
    with pytest.raises(CannotTrain, match=r"shrink \(Softshrink3\)"):
        TrainableNetwork(graph, TrainingFormats())
    with pytest.raises(ValueError, match="written to ONNX, not Softshrink3"):
        export_onnx(graph)
    with pytest.raises(BatchError, match="batch must be 1 for a network with Softshrink3, not 2"):
        with_batch(graph, 2)
    monkeypatch.setitem(OPS, "Softshrink3", replace(SOFTSHRINK, batchable=True))
    assert with_batch(graph, 2).shapes["y"] == (2, 6)


@pytest.mark.slow
def test_a_made_up_function_is_compiled_calibrated_and_reported(softshrink_net, monkeypatch):
    monkeypatch.setitem(rules.EXPANSIONS, "Softshrink3", shrunk)
    graph = softshrink_net
    check(graph, np.random.default_rng(2))
    x = np.random.default_rng(3).normal(0, 1, (16, 5))
    evidence = choose_formats(calibration_of(graph, {"x": x}), ECP5_85F)
    assert evidence.candidates[0].error < 0.05
    analysis = analyse(compile_graph(graph, ECP5_85F), {"x": x})
    assert analysis.work.macs == 5 * 6 and "shrink" in {name for layer in analysis.layers for name in layer.nodes}


def test_bounds_of_a_made_up_function(softshrink_net, monkeypatch):
    graph = softshrink_net
    assert bounds(graph, {"x": (-1.0, 1.0)})["y"].worst == (-np.inf, np.inf)
    monkeypatch.setitem(OPS, "Softshrink3", replace(SOFTSHRINK, rises=True))
    weight, bias = graph.nodes[0].attrs["weight"], graph.nodes[0].attrs["bias"]
    most = (np.abs(weight).sum(axis=1) + bias).max()
    assert bounds(graph, {"x": (-1.0, 1.0)})["y"].worst[1] == pytest.approx(max(most - 3, 0))


def test_a_made_up_function_on_the_host(softshrink_net, monkeypatch):
    softmax = Node("Softmax", "softmax", ("a",), ("p",), {"axis": 1})
    shrink = Node("Softshrink3", "shrink", ("p",), ("y",))
    graph = graph_of([dense("fc", "x", "a", 6, 5), softmax, shrink], x=(1, 5))
    mine, theirs = host_partition.split(graph)
    assert [node.op for node in mine.nodes] == ["Dense"] and [n.op for n in theirs.nodes] == ["Softmax", "Softshrink3"]
    compiled = compile_graph(graph, ROOMY)
    given = {"a": np.full((2, 6), 4.0)}
    assert compiled.package.host_outputs({}, given)["y"] == pytest.approx(np.zeros((2, 6)))
    with pytest.raises(ValueError, match=r"operator Softshrink3 \(shrink\) cannot be computed by the host"):
        host_rules.operations(theirs)
    alone, behind = host_partition.split(softshrink_net)
    assert behind is None
    monkeypatch.setitem(OPS, "Softshrink3", replace(SOFTSHRINK, host_partition=True))
    alone, behind = host_partition.split(softshrink_net)
    assert [node.op for node in alone.nodes] == ["Dense"] and [node.op for node in behind.nodes] == ["Softshrink3"]


def test_a_made_up_view_needs_its_record_only(monkeypatch):
    monkeypatch.setitem(OPS, "Flip", FLIP)
    nodes = [
        dense("fc", "x", "a", 6, 5),
        Node("Flip", "flip", ("a",), ("b",), {"axis": 1}),
        dense("last", "b", "y", 3, 6),
    ]
    graph = graph_of(nodes, x=(1, 5))
    compiled = check(graph, np.random.default_rng(4))
    assert [layer.name for layer in compiled.lowered.layers] == ["fc", "last"]
    monkeypatch.setitem(OPS, "Flip", replace(FLIP, view=False))
    with pytest.raises(Unsupported, match="Flip 'flip': operator is not supported on the NPU"):
        compile_graph(graph, ROOMY)


def weighed_net():
    attrs = {"matrix": integers(6, 5) / 4, "offset": integers(6)}
    double = Node("Mul", "double", ("a",), ("b",), {"constant": np.array(2.0)})
    return graph_of([Node("Weighed", "fc", ("x",), ("a",), attrs), double, dense("last", "b", "y", 3, 6)], x=(1, 5))


@pytest.mark.slow
def test_a_made_up_product(monkeypatch):
    monkeypatch.setitem(OPS, "Weighed", WEIGHED)
    graph, plain = weighed_net(), weighed_net()
    assert macs(graph) == 5 * 6 + 6 * 3
    types = dtypes.assign(graph)
    assert types.inputs["fc", 0] is dtypes.Dtype.NARROW and "fc" in types.forms
    fold_affine(graph)
    assert [node.op for node in graph.nodes] == ["Weighed", "Dense"]
    assert np.array_equal(graph.nodes[0].attrs["matrix"], plain.nodes[0].attrs["matrix"] * 2)
    assert np.array_equal(graph.nodes[0].attrs["offset"], plain.nodes[0].attrs["offset"] * 2)
    x = {"x": np.random.default_rng(5).normal(0, 1, (7, 5))}
    assert execute.run(graph, x)["y"] == pytest.approx(execute.run(plain, x)["y"])
    with pytest.raises(Unsupported, match="Weighed 'fc': operator is not supported on the NPU"):
        compile_graph(graph, ROOMY)
    with pytest.raises(ValueError, match=r"products must be those of Conv, .*, not of Weighed \(fc\)"):
        list(products(graph, x))
    with pytest.raises(CannotTrain, match=r"fc \(Weighed\)"):
        TrainableNetwork(graph, TrainingFormats())
    monkeypatch.setitem(rules.EXPANSIONS, "Weighed", by_dense)
    check(graph, np.random.default_rng(6))
    evidence = choose_formats(calibration_of(graph, x), ECP5_85F)
    assert evidence.candidates[0].error < 0.05
    assert analyse(compile_graph(graph, ECP5_85F), x).work.macs == macs(graph)


@pytest.mark.slow
def test_weights_of_a_made_up_product_are_scaled_and_counted(monkeypatch):
    monkeypatch.setitem(OPS, "Weighed", WEIGHED)
    graph = weighed_net()
    graph.nodes[0] = graph.nodes[0].with_attrs(matrix=graph.nodes[0].attrs["matrix"] * 2.0**12)
    want = execute.run(graph, x := {"x": np.random.default_rng(5).normal(0, 1, (7, 5))})["y"]
    scale(graph)
    assert [node.op for node in graph.nodes] == ["Weighed", "Mul", "Mul", "Dense"]
    assert np.abs(graph.nodes[0].attrs["matrix"]).max() < 120 and np.array_equal(execute.run(graph, x)["y"], want)
    huge = Node("Weighed", "fc", ("x",), ("y",), {"matrix": np.zeros((1 << 11, 1 << 11)), "offset": np.zeros(1 << 11)})
    with pytest.raises(ValueError, match="but 4194304 weights need at least"):
        check_weights_fit(graph_of([huge], x=(1, 1 << 11)), TINY)
