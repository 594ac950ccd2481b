"""Single layers on small integers, which every format holds exactly: the program must compute what ONNX says."""

import math

import numpy as np
import pytest

from concord.graph.ir import Node
from support import compiled_nets
from support.compiled_nets import ROOMY, check, graph_of, integers

SAME = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}


def conv(
    rng, channels, outputs, kernel, *, strides=None, pads=None, dilations=None, group=1, x="x", y="y", name="conv"
):
    rank = len(kernel)
    attrs = {
        "weight": integers(rng, (outputs, channels // group, *kernel), 1),
        "bias": integers(rng, outputs, 3),
        "strides": strides or (1,) * rank,
        "pads": pads or (0,) * 2 * rank,
        "dilations": dilations or (1,) * rank,
        "group": group,
    }
    return Node("Conv", name, (x,), (y,), attrs)


@pytest.mark.parametrize("seed", range(24))
def test_convolutions(seed):
    rng = np.random.default_rng(seed)
    kernel = tuple(int(k) for k in rng.integers(1, 4, 2))
    group = int(rng.choice([1, 1, 2, 3]))
    channels, outputs = group * int(rng.integers(1, 4)), group * int(rng.integers(1, 4))
    node = conv(
        rng, channels, outputs, kernel, strides=tuple(int(s) for s in rng.integers(1, 4, 2)),
        pads=tuple(int(p) for p in rng.integers(0, 3, 4)), dilations=tuple(int(d) for d in rng.integers(1, 3, 2)),
        group=group,
    )  # fmt: skip
    before = [Node("Relu", "relu", ("x",), ("a",))] if seed % 2 else []  # computed: the host cannot unfold it
    if before:
        node = node.replace(inputs=("a",))
    check(graph_of([*before, node], x=(1, channels, int(rng.integers(5, 9)), int(rng.integers(5, 9)))), rng)


@pytest.mark.parametrize("channels", [3, 4, 9])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convolutions(channels, stride):
    rng = np.random.default_rng(channels)
    node = conv(rng, channels, channels, (3, 3), strides=(stride, stride), pads=(1, 1, 1, 1), group=channels)
    compiled = check(graph_of([node], x=(1, channels, 6, 7)), rng)
    assert compiled.lowered.layers[0].reduction.value == "depthwise"


@pytest.mark.parametrize("kernel, stride, dilation, group", [(3, 1, 1, 1), (5, 2, 1, 1), (2, 1, 3, 1), (3, 2, 1, 6)])
def test_one_dimensional_convolutions(kernel, stride, dilation, group):
    rng = np.random.default_rng(kernel)
    node = conv(rng, 6, 6, (kernel,), strides=(stride,), pads=(1, 2), dilations=(dilation,), group=group)
    check(graph_of([node], x=(1, 6, 13)), rng)


@pytest.mark.parametrize("lead", [(1,), (1, 3), (2, 3)])
@pytest.mark.parametrize("width", [3, 4, 11])
def test_matrix_products(lead, width):
    rng = np.random.default_rng(width)
    attrs = {"weight": integers(rng, (5, width), 1), "bias": integers(rng, 5)}
    check(graph_of([Node("Dense", "dense", ("x",), ("y",), attrs)], x=(*lead, width)), rng)


def test_a_product_reads_a_flattened_image():
    rng = np.random.default_rng(1)
    nodes = [
        conv(rng, 3, 5, (3, 3), y="a"),
        Node("Reshape", "flatten", ("a",), ("b",), {"shape": (1, 5 * 16)}),
        Node("Dense", "dense", ("b",), ("y",), {"weight": integers(rng, (7, 80), 1), "bias": integers(rng, 7)}),
    ]
    nodes[0].attrs["weight"] *= rng.random(nodes[0].attrs["weight"].shape) < 0.2
    compiled = check(graph_of(nodes, x=(1, 3, 6, 6)), rng, limit=1)
    assert len(compiled.lowered.layers) == 2


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 2, 1), (0, 1, 3, 2)])
def test_transposed_inputs_and_results_cost_nothing(order):
    rng = np.random.default_rng(2)
    shape = (1, 3, 5, 6)
    stored = tuple(shape[axis] for axis in order)
    back = tuple(int(axis) for axis in np.argsort(order))
    nodes = [
        Node("Transpose", "in", ("x",), ("a",), {"perm": back}),
        conv(rng, 3, 5, (2, 2), x="a", y="b"),
        Node("Transpose", "out", ("b",), ("y",), {"perm": order}),
    ]
    assert len(check(graph_of(nodes, x=stored), rng).lowered.layers) == 1


@pytest.mark.parametrize("kernel, stride, pad", [(2, 2, 0), (3, 2, 1), (3, 1, 1)])
def test_maxima_of_windows(kernel, stride, pad):
    rng = np.random.default_rng(kernel)
    attrs = {"kernel": (kernel,) * 2, "strides": (stride,) * 2, "pads": (pad,) * 4, "dilations": (1, 1)}
    check(graph_of([Node("MaxPool", "pool", ("x",), ("y",), attrs)], x=(1, 6, 7, 8)), rng)


@pytest.mark.parametrize("counted", [(0, 0, 0, 0), (1, 1, 1, 1)])
def test_averages_of_windows(counted):
    rng = np.random.default_rng(7)
    attrs = {"kernel": (2, 2), "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "counted": counted}
    check(graph_of([Node("AveragePool", "pool", ("x",), ("y",), attrs)], x=(1, 6, 5, 4)), rng)


@pytest.mark.parametrize("axes, keep", [((2, 3), True), ((2, 3), False), ((3,), True), ((1,), True), ((1, 2), False)])
def test_means(axes, keep):
    rng = np.random.default_rng(3)
    nodes = [
        Node("Relu", "relu", ("x",), ("a",)),
        Node("ReduceMean", "mean", ("a",), ("y",), {"axes": axes, "keepdims": keep}),
    ]
    check(graph_of(nodes, x=(1, 4, 4, 8)), rng)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min"])
@pytest.mark.parametrize("constant", [(), (5, 1, 1), (1, 6), (1, 5, 4, 6)])
@pytest.mark.parametrize("behind", [False, True])
def test_operations_with_constants(op, constant, behind):
    rng = np.random.default_rng(11)
    attrs = {"constant": integers(rng, constant, 3)}
    if op == "Sub" and behind:
        attrs["reversed"] = True
    nodes = [Node(op, "op", ("a" if behind else "x",), ("y",), attrs)]
    if behind:
        nodes = [conv(rng, 5, 5, (1, 1), y="a"), *nodes]
    compiled = check(graph_of(nodes, x=(1, 5, 4, 6)), rng)
    assert len(compiled.lowered.layers) == 1


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min"])
@pytest.mark.parametrize("swapped", [False, True])
def test_operations_of_two_tensors_are_fused_with_the_later_one(op, swapped):
    rng = np.random.default_rng(12)
    operands = ("b", "a") if swapped else ("a", "b")
    nodes = [
        conv(rng, 3, 5, (1, 1), y="a"),
        conv(rng, 3, 5, (1, 1), y="b", name="other"),
        Node(op, "op", operands, ("y",)),
    ]
    compiled = check(graph_of(nodes, x=(1, 3, 4, 6)), rng)
    first, second = ("other", "conv") if swapped else ("conv", "other")  # operands are computed in their order
    assert [layer.nodes for layer in compiled.lowered.layers] == [[first], [second, "op"]]


def test_channels_are_scaled_by_a_tensor():
    rng = np.random.default_rng(13)
    nodes = [
        conv(rng, 4, 6, (1, 1), y="a"),
        Node("ReduceMean", "mean", ("a",), ("b",), {"axes": (2, 3), "keepdims": True}),
        Node("Relu", "relu", ("b",), ("c",)),
        Node("Mul", "scale", ("a", "c"), ("y",)),
    ]
    nodes[0].attrs["weight"] *= 4
    nodes[0].attrs["bias"] *= 0
    check(graph_of(nodes, x=(1, 4, 2, 2)), rng, limit=1)


@pytest.mark.parametrize("bounds", [(0.0, 2.0), (-1.0, 1.0), (-math.inf, 1.0), (-1.0, math.inf)])
def test_limits(bounds):
    rng = np.random.default_rng(14)
    nodes = [conv(rng, 4, 6, (1, 1), y="a"), Node("Clip", "clip", ("a",), ("y",), {"min": bounds[0], "max": bounds[1]})]
    stages = 1 + np.isfinite(bounds).sum() - (bounds[0] == 0)  # sums, maxima and minima, two per chain
    assert len(check(graph_of(nodes, x=(1, 4, 3, 3)), rng).lowered.layers) == -(-stages // 2)


@pytest.mark.parametrize("axis", [1, 2])
def test_concatenated_tensors_are_written_side_by_side(axis):
    rng = np.random.default_rng(15)
    nodes = [
        conv(rng, 4, 6, (1, 1), y="a"),
        conv(rng, 4, 6, (1, 1), y="b", name="other"),
        Node("Concat", "concat", ("a", "b"), ("c",), {"axis": axis}),
        conv(rng, 12 if axis == 1 else 6, 3, (1, 1), x="c", y="y", name="last"),
    ]
    compiled = check(graph_of(nodes, x=(1, 4, 3, 5)), rng, limit=1)
    assert len(compiled.lowered.layers) == 3


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_inputs_are_copied_to_lie_side_by_side(axis):
    """What the host writes stays where it is."""
    rng = np.random.default_rng(18)
    nodes = [Node("Concat", "concat", ("x", "z"), ("y",), {"axis": axis})]
    check(graph_of(nodes, x=(1, 4, 3, 5), z=(1, 4, 3, 5)), rng)


@pytest.mark.parametrize("source", ["x", "a"])
@pytest.mark.parametrize("last", ["depthwise", "grouped", "dense", "average", "sum", "same constant"])
def test_a_tensor_beside_itself(source, last):
    """Channels that are the same element have kernels of their own all the same."""
    rng = np.random.default_rng(22)
    pool = {"kernel": (2, 2), "strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1)}
    ends = {
        "depthwise": conv(rng, 8, 8, (3, 3), x="b", y="y", name="last", group=8),
        "grouped": conv(rng, 8, 8, (3, 3), x="b", y="y", name="last", group=2),
        "dense": conv(rng, 8, 5, (3, 3), x="b", y="y", name="last"),
        "average": Node("AveragePool", "last", ("b",), ("y",), {**pool, "counted": (0,) * 4}),
        "sum": Node("ReduceSum", "last", ("b",), ("y",), {"axes": (2, 3), "keepdims": True}),
        "same constant": Node("Add", "last", ("b",), ("y",), {"constant": np.asarray(2.0)}),
    }
    first = [conv(rng, 4, 4, (1, 1), y="a", name="first")] if source == "a" else []
    twice = Node("Concat", "twice", (source, source), ("b",), {"axis": 1})
    check(graph_of([*first, twice, ends[last]], x=(1, 4, 4, 4)), rng, limit=1)


@pytest.mark.parametrize("op", ["Add", "Mul", "Max"])
def test_elements_that_are_there_twice_meet_constants_of_their_own(op):
    rng = np.random.default_rng(23)
    twice = Node("Concat", "twice", ("x", "x"), ("b",), {"axis": 1})
    last = Node(op, "last", ("b",), ("y",), {"constant": rng.permutation(8.0 - np.arange(8)).reshape(1, 8, 1, 1)})
    check(graph_of([twice, last], x=(1, 4, 4, 4)), rng)


def test_a_tensor_that_is_concatenated_twice_is_copied():
    rng = np.random.default_rng(19)
    nodes = [
        conv(rng, 4, 4, (1, 1), y="a"),
        conv(rng, 4, 4, (1, 1), y="b", name="other"),
        Node("Concat", "one", ("a", "b"), ("c",), {"axis": 1}),
        Node("Concat", "two", ("b", "a"), ("d",), {"axis": 1}),
        conv(rng, 8, 4, (1, 1), x="c", y="e", name="third"),
        conv(rng, 8, 4, (1, 1), x="d", y="f", name="fourth"),
        Node("Add", "add", ("e", "f"), ("y",)),
    ]
    check(graph_of(nodes, x=(1, 4, 3, 5)), rng, limit=1)


@pytest.mark.parametrize("op", ["Conv", "Dense"])
def test_parts_of_a_product_meet_element_by_element(op):
    rng = np.random.default_rng(20)
    dense = Node("Dense", "dense", ("x",), ("a",), {"weight": integers(rng, (14, 6), 1), "bias": integers(rng, 14)})
    first = conv(rng, 6, 14, (1, 1), y="a") if op == "Conv" else dense
    axis = 1 if op == "Conv" else 2
    parts = [
        Node(
            "Slice", name, ("a",), (name,), {"axes": (axis,), "starts": (7 * k,), "stops": (7 * k + 7,), "steps": (1,)}
        )
        for k, name in enumerate(("b", "c"))
    ]
    graph = graph_of(
        [first, *parts, Node("Mul", "mul", ("b", "c"), ("y",))], x=(1, 6, 3, 2) if op == "Conv" else (1, 3, 6)
    )
    check(graph, rng)


@pytest.mark.parametrize("mode", ["reflect", "edge", "constant"])
def test_a_first_convolution_over_padded_samples(mode):
    """What the host pads is unfolded as well."""
    rng = np.random.default_rng(21)
    nodes = [
        Node("Pad", "pad", ("x",), ("a",), {"pads": (0, 3, 0, 5), "mode": mode, "value": 0.0}),
        Node("Reshape", "reshape", ("a",), ("b",), {"shape": (1, 1, 28)}),
        conv(rng, 1, 6, (8,), strides=(4,), x="b"),
    ]
    assert check(graph_of(nodes, x=(1, 20)), rng).lowered.layers[0].window.taps == 1


def test_parts_of_a_tensor_are_read_in_place():
    rng = np.random.default_rng(16)
    cut = {"axes": (1, 3), "starts": (1, 4), "stops": (4, -1), "steps": (1, -2)}
    nodes = [
        conv(rng, 4, 6, (1, 1), y="a"),
        Node("Slice", "slice", ("a",), ("b",), cut),
        conv(rng, 3, 3, (2, 2), x="b", y="y", name="last"),
    ]
    assert len(check(graph_of(nodes, x=(1, 4, 3, 5)), rng, limit=1).lowered.layers) == 2


@pytest.mark.slow
@pytest.mark.parametrize("between", [False, True])
def test_a_residual_sum_is_streamed_where_wide_memory_is_short(between, monkeypatch):
    """In place, unless the product reads what is added. Row tiles, which keep it as it is, take fewer cycles."""
    rng = np.random.default_rng(17)
    nodes = [
        conv(rng, 4, 4, (1, 1), y="a"),
        *([Node("MaxPool", "pool", ("a",), ("p",), SAME)] if between else []),
        conv(rng, 4, 4, (3, 3), pads=(1, 1, 1, 1), x="p" if between else "a", y="b", name="second"),
        Node("Add", "add", ("b", "a"), ("c",)),
        conv(rng, 4, 2, (5, 5), strides=(5, 5), x="c", y="y", name="last"),
    ]
    nodes[-1].attrs["weight"] *= rng.random(nodes[-1].attrs["weight"].shape) < 0.1
    graph = graph_of(nodes, x=(1, 4, 20, 20))
    short = ROOMY.replace(wide_depth=400, narrow_depth=800)
    assert not check(graph, rng, short, limit=1).streamed_residuals
    monkeypatch.setattr("concord.compiler.emission.row_tiled.prefixes", lambda lowered: iter(()))
    assert check(graph, rng, short, limit=1).streamed_residuals == ("second",)
    assert not check(graph, rng, limit=1).streamed_residuals


@pytest.mark.parametrize("shape", [(1, 9, 4, 5), (1, 9, 7)])
def test_an_input_that_products_and_others_read(shape):
    """The host writes it wide, and the program makes it narrow before its first layer."""
    rng = np.random.default_rng(len(shape))
    kernel = (1,) * (len(shape) - 2)
    nodes = [
        conv(rng, 9, 9, kernel, y="a", name="first"),
        Node("Add", "sum", ("a", "x"), ("b",)),
        conv(rng, 9, 3, kernel, x="x", y="c", name="second"),
        Node("Concat", "both", ("b", "c"), ("y",), {"axis": 1}),
    ]
    compiled = check(graph_of(nodes, x=shape), rng)
    assert [port.region.name for port in compiled.image.inputs] == ["WIDE"]


def sliced(x, y, axis, start, stop):
    return Node(
        "Slice", f"{y}/slice", (x,), (y,), {"axes": (axis,), "starts": (start,), "stops": (stop,), "steps": (1,)}
    )


@pytest.mark.parametrize("axis", [2, 3])
def test_a_part_of_a_map_is_copied_from_where_it_lies(axis):
    """Rows or columns from the middle, which meet others of the same map."""
    rng = np.random.default_rng(4)
    nodes = [
        conv(rng, 2, 4, (1, 1), y="a", name="first"),
        sliced("a", "b", axis, 2, 5),
        Node("Relu", "relu", ("b",), ("c",)),
        sliced("a", "d", axis, 0, 3),
        Node("Add", "join", ("c", "d"), ("y",)),
    ]
    check(graph_of(nodes, x=(1, 2, 6, 6)), rng)


def test_parts_of_a_product_with_gaps_between_them_meet():
    """Every part begins with a native vector of its own, also one that no other part ends in front of."""
    rng = np.random.default_rng(5)
    product = Node(
        "Dense", "dense", ("x",), ("a",), {"weight": integers(rng, (12, 3), 1), "bias": integers(rng, 12, 3)}
    )
    nodes = [product, sliced("a", "b", 1, 0, 3), sliced("a", "c", 1, 5, 8), Node("Mul", "join", ("b", "c"), ("y",))]
    compiled = check(graph_of(nodes, x=(1, 3)), rng)
    assert len(compiled.lowered.layers) == 2


def test_what_a_later_layer_reads_is_not_replaced():
    rng = np.random.default_rng(6)
    nodes = [
        conv(rng, 2, 4, (1, 1), y="a", name="first"),
        Node("Clip", "clip", ("a",), ("b",), {"min": -1.0, "max": 1.0}),
        Node("MaxPool", "pool", ("b",), ("c",), SAME),
        Node("Add", "join", ("c", "a"), ("y",)),
    ]
    check(graph_of(nodes, x=(1, 2, 5, 6)), rng)


@pytest.mark.parametrize("kernel", [(2, 2), (1, 3), (3, 1)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("dilations", [(1, 1), (1, 2), (2, 1)])
def test_windows_of_an_input_that_the_host_writes_out(kernel, strides, dilations):
    """Different steps and pads along both axes and at both ends."""
    rng = np.random.default_rng(7)
    node = conv(rng, 1, 3, kernel, strides=strides, pads=(0, 1, 1, 2), dilations=dilations)
    compiled = check(graph_of([node], x=(1, 1, 6, 7)), rng)
    assert compiled.lowered.layers[0].window.kernel == (1, 1)


def test_what_a_window_still_reads_is_not_replaced():
    """A maximum of windows plus the tensor itself: the sum must not lie where later windows read."""
    rng = np.random.default_rng(3)
    first = conv(rng, 2, 4, (1, 1), y="a", name="first")
    pool = Node("MaxPool", "pool", ("a",), ("b",), SAME)
    join = Node("Add", "join", ("b", "a"), ("c",))
    last = Node("Relu", "last", ("c",), ("y",))
    check(graph_of([first, pool, join, last], x=(1, 2, 5, 6)), rng)


def test_what_another_operand_still_reads_is_not_replaced():
    """Four rows plus the first of them: the result must not lie where the first row is read again."""
    nodes = [
        Node("Add", "double", ("x", "x"), ("a",)),
        Node("Concat", "rows", ("a", "a", "u", "x"), ("c",), {"axis": 0}),
        Node("Add", "join", ("a", "c"), ("y",)),
    ]
    check(graph_of(nodes, x=(1, 4), u=(1, 4)), np.random.default_rng(3))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min"])
@pytest.mark.parametrize("computed", [False, True])
def test_an_operation_on_a_tensor_and_itself(op, computed):
    """As passes leave it where they remove what lay between the tensor and its other operand."""
    x = "a" if computed else "x"
    nodes = [Node("Relu", "relu", ("x",), ("a",))] if computed else []
    check(graph_of([*nodes, Node(op, "both", (x, x), ("y",))], x=(1, 3, 5)), np.random.default_rng(4))


def test_a_part_that_is_written_when_others_have_been_read():
    """Products read one row narrow; a later row of the same tensor is written narrow, too, and replaces nothing."""
    eye = {"weight": np.eye(5), "bias": np.zeros(5)}
    nodes = [
        Node("Mul", "double", ("x",), ("a",), {"constant": np.asarray(2.0)}),
        Node("Dense", "first", ("a",), ("b",), eye),
        *(Node("Dense", f"next {k}", ("b" if k == 0 else f"c{k - 1}",), (f"c{k}",), eye) for k in range(3)),
        Node("Concat", "rows", ("a", "c2"), ("y",), {"axis": 0}),
    ]
    check(graph_of(nodes, x=(1, 5)), np.random.default_rng(3))


def test_the_comparison_notices_one_wrong_number(monkeypatch):
    """The least difference there is between binary16 numbers, in one element of one sample."""
    rng = np.random.default_rng(1)
    graph = graph_of([conv(rng, 2, 3, (2, 2))], x=(1, 2, 4, 4))
    check(graph, np.random.default_rng(2))
    original = compiled_nets.run

    def wrong(*args, **options):
        found = original(*args, **options)
        found["y"][-1, -1, -1, -1] *= 1 + 2.0**-10
        return found

    monkeypatch.setattr(compiled_nets, "run", wrong)
    with pytest.raises(AssertionError):
        check(graph, np.random.default_rng(2))


@pytest.mark.parametrize("channels", [3, 4, 6])
def test_a_product_reads_the_maximum_over_channels(channels):
    """The mask in padding lanes is beyond all numbers: were it in a block, nothing else would be left of that."""
    rng = np.random.default_rng(channels)
    attrs = {"strides": (1, 1), "dilations": (1, 1), "group": 1, "pads": (0, 0, 0, 0), "bias": np.zeros(1)}
    nodes = [
        Node(
            "Conv",
            "first",
            ("x",),
            ("h",),
            {**attrs, "weight": integers(rng, (channels, 2, 1, 1), 2), "bias": np.zeros(channels)},
        ),
        Node("ReduceMax", "most", ("h",), ("m",), {"axes": (1,), "keepdims": True}),
        Node("Conv", "last", ("m",), ("y",), {**attrs, "weight": np.ones((1, 1, 1, 1))}),
    ]
    check(graph_of(nodes, x=(1, 2, 3, 3)), rng)
