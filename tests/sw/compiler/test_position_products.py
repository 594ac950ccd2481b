"""Products along an axis whose elements lie in positions, as of nodes with an adjacency."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from concord.compiler.calibration.weights import units
from concord.compiler.ir.layers import Layer, Reduction
from concord.compiler.ir.layout import LayoutError
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.lowering.position_products import folded, runs
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph.ops import OPS
from support.compiled_nets import graph_convolution
from support.expressions import ROOMY, check, exact, integers, network, tensor, whole


def mixed(weight, *shape, bias=None):
    """A product with a matrix on the left of what a product along the features has made."""
    perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    features = tensor(*shape).whole_dense(shape[-1], limit=2)
    return features.transpose(*perm).dense(weight, bias, name="mix").transpose(*perm)


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [(5, (1, 5, 3)), (7, (1, 5, 3)), (3, (1, 5, 6)), (4, (1, 4, 1)), (1, (1, 6, 4)), (6, (3, 6, 4)), (5, (2, 3, 5, 2))],
    ids=str,
)
def test_sums_over_positions_are_exact(nodes, shape):
    rng = np.random.default_rng(len(shape) + nodes)
    weight = integers(rng, (nodes, shape[-2]))
    weight[0] = 0  # a node without neighbours
    exact(mixed(weight, *shape))
    exact(mixed(weight, *shape, bias=integers(rng, nodes)))


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (2, 4), (6, 7)])
def test_outputs_of_which_some_are_read(start, stop):
    """Each output has a window of its own; those that nobody reads are not computed."""
    rng = np.random.default_rng(stop)
    mix = mixed(integers(rng, (7, 5), 1) + np.arange(7)[:, None], 1, 5, 3)
    compiled = exact(mix[:, start:stop])
    assert sum(la.reduction is Reduction.DEPTHWISE for la in compiled.lowered.layers) == stop - start


def test_a_regular_graph_is_a_window_that_moves():
    ring = sum(k * np.roll(np.eye(12), k - 2, axis=1) for k in (1, 2, 3))
    compiled = exact(mixed(ring, 1, 12, 4))
    layers = [la for la in compiled.lowered.layers if isinstance(la, Layer) and la.reduction is Reduction.DEPTHWISE]
    assert [la.out[1] for la in layers] == [1, 10, 1]


def test_products_of_either_order_are_those_of_onnx():
    """``A (X W) + b`` and ``(A X) W + b``, as exporters write graph convolutions."""
    rng = np.random.default_rng(2)
    a, w, b = integers(rng, (6, 6)), integers(rng, (3, 5)), integers(rng, 5)
    for order in (("X", "W"), ("A", "X")):
        inner = helper.make_node("MatMul", order, ["p"])
        outer = helper.make_node("MatMul", ["A", "p"] if order == ("X", "W") else ["p", "W"], ["q"])
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 6, size])
                for name, size in (("X", 3), ("Y", 5))]  # fmt: skip
        constants = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in (("A", a), ("W", w), ("B", b))]
        nodes = [inner, outer, helper.make_node("Add", ["q", "B"], ["Y"])]
        model = helper.make_model(
            helper.make_graph(nodes, "gcn", ends[:1], ends[1:], constants), opset_imports=[helper.make_opsetid("", 17)]
        )
        onnx.checker.check_model(model)
        graph = import_model(model.SerializeToString())
        check(graph, rng)
        fixed = [node.attrs["weight"] for node in graph.nodes if node.attrs.get("fixed")]
        assert len(fixed) == 1 and np.array_equal(fixed[0], a)


def test_rows_over_more_positions_than_a_window_has_are_folded():
    rng = np.random.default_rng(3)
    weight = np.zeros((3, 70))
    weight[0], weight[1, 5:69], weight[2, 3:9] = integers(rng, 70), 1, 1
    exact(mixed(weight, 1, 70, 2), ROOMY.replace(max_terms=128))


def test_windows_over_positions():
    assert folded(64, 3, 70) == (2, 32, 3)
    assert folded(64, 6, 70) == (2, 32, 6)
    assert folded(65, 2, 67) == (5, 13, 2)
    assert folded(67, 2, 68) == (2, 34, 0)
    assert folded(5, 1, 6) == (1, 5, 1)
    with pytest.raises(LayoutError, match="not over 67"):
        folded(67, 0, 67)


def test_rows_that_no_window_holds_are_refused():
    with pytest.raises(Unsupported, match=r"Dense 'mix': rows of a product along 67 positions must reach over fewer"):
        compile_graph(network(mixed(np.ones((1, 67)), 1, 67, 2)), ROOMY)
    with pytest.raises(Unsupported, match=r"along positions must reach over at most 63 of them, not 64"):
        compile_graph(network(mixed(np.ones((1, 64)), 3, 64, 2)), ROOMY)


def test_runs_are_rows_that_go_on():
    weight = np.array([[1, 2, 0, 0, 0], [0, 1, 2, 0, 0], [0, 0, 1, 2, 0], [0, 0, 0, 1, 2], [0, 0, 0, 0, 0.0]])
    found = [(r.first, r.count, r.begin, r.weight.tolist(), r.bias) for r in runs(weight, np.array([0, 0, 3, 3, 3.0]))]
    assert found == [(0, 2, 0, [1, 2], 0), (2, 2, 2, [1, 2], 3), (4, 1, 0, [0], 3)]
    other = [(r.first, r.count) for r in runs(np.array([[1, 2, 0], [0, 1, 3], [0, 1, 3.0]]), np.zeros(3))]
    assert other == [(0, 1), (1, 1), (2, 1)]


def test_calibration_chooses_weights_of_the_other_products():
    """The adjacency is several layers, whose number depends on its zeros: it keeps its own numbers."""
    graph = graph_convolution(np.eye(5) + np.roll(np.eye(5), 1, axis=1), 3, 4, 4)
    assert set(units(graph, compile_graph(graph, ROOMY))) == {"features0", "features1"}


def test_what_lies_in_lanes_is_one_product():
    """A matrix on the left of an input: the host writes its columns as positions."""
    compiled = exact(tensor(1, 6, 3).transpose(0, 2, 1).dense(whole(4, 6)).transpose(0, 2, 1))
    assert [la.reduction for la in compiled.lowered.layers] == [Reduction.DENSE]


def test_a_constant_on_the_left_is_fixed_and_one_on_the_right_is_not():
    assert "fixed" in OPS["Dense"].attributes
    graph = graph_convolution(np.eye(4), 3, 2)
    assert [node.attrs.get("fixed", False) for node in graph.nodes if node.op == "Dense"] == [False, True]


def test_several_axes_may_be_lanes():
    """Heads and features of a node lie in one position, where they are mixed without being copied."""
    heads = tensor(1, 5, 4).whole_dense(6, limit=2).reshape(1, 5, 2, 3)
    compiled = exact(heads.transpose(0, 2, 3, 1).dense(whole(3, 5)))
    assert not any(node.op == "Copy" for node in compiled.graph.nodes)
