"""Layers against the graph in double precision, and against the definition of a derivative, without any tolerance.

With wide formats nothing is rounded. A layer that is linear in x then satisfies ``<g, f(x + d) - f(x)> = <f'(g), d>``.
"""

from dataclasses import replace

import numpy as np
import pytest

from concord.functions import function, trainable
from concord.graph import execute
from concord.graph.ir import Graph, Node
from concord.graph.ops import OPS
from concord.spec.training import AccumulatorFormat, TrainingFormat, TrainingFormats
from concord.train.layers.base import PassContext
from concord.train.layers.pointwise import ENTRY_POINT, table
from concord.train.network import CannotTrain, TrainableNetwork
from concord.train.tensor import Tensor
from support import expressions

WIDE = TrainingFormats(
    weight=TrainingFormat(24),
    bias=TrainingFormat(24),
    activation=TrainingFormat(24),
    gradient=TrainingFormat(24),
    accumulator=AccumulatorFormat(8),
)
X = expressions.tensor(1, 3)


def small(rng, *shape):
    """Whole numbers; the greatest is no power of two, which would saturate as a weight."""
    values = rng.integers(-7, 8, shape).astype(float)
    values.reshape(-1)[0] = 7
    return values


def window(stride=1, pad=0, dilation=1, rank=2):
    return {"strides": (stride,) * rank, "pads": (pad,) * (2 * rank), "dilations": (dilation,) * rank}


def conv(rng, o, c, kernel, group=1, **options):
    weight = small(rng, o, c // group, *kernel)
    return "Conv", {
        "weight": weight, "bias": small(rng, o), "group": group, **window(rank=len(kernel), **options)
    }  # fmt: skip


def average(kernel, counted=0, **options):
    counted = (counted,) * (2 * len(kernel))
    return "AveragePool", {"kernel": kernel, "counted": counted, **window(rank=len(kernel), **options)}


CASES = {
    "dense": lambda r: (("Dense", {"weight": small(r, 4, 6), "bias": small(r, 4)}), (1, 6)),
    "dense, rows": lambda r: (("Dense", {"weight": small(r, 4, 6), "bias": small(r, 4)}), (5, 1, 6)),
    "conv": lambda r: (conv(r, 4, 3, (3, 3), pad=1), (1, 3, 6, 5)),
    "conv, strides": lambda r: (conv(r, 2, 3, (3, 2), stride=2), (1, 3, 8, 7)),
    "conv, dilated": lambda r: (conv(r, 2, 1, (2, 3), dilation=2, pad=2), (1, 1, 6, 7)),
    "conv, one axis": lambda r: (conv(r, 4, 2, (3,), stride=2, pad=1), (1, 2, 9)),
    "conv, groups": lambda r: (conv(r, 6, 4, (3, 3), group=2, pad=1), (1, 4, 5, 5)),
    "depthwise": lambda r: (conv(r, 3, 3, (3, 3), group=3, stride=2, pad=1), (1, 3, 7, 6)),
    "depthwise, one axis": lambda r: (conv(r, 3, 3, (3,), group=3), (1, 3, 7)),
    "conv, three axes": lambda r: (conv(r, 4, 3, (3, 2, 3), pad=1), (1, 3, 4, 5, 4)),
    "conv, three axes, strides": lambda r: (conv(r, 2, 2, (2, 3, 2), stride=2), (1, 2, 5, 7, 6)),
    "conv, three axes, dilated": lambda r: (conv(r, 2, 1, (2, 2, 3), dilation=2, pad=2), (1, 1, 4, 3, 5)),
    "conv, three axes, groups": lambda r: (conv(r, 6, 4, (2, 3, 3), group=2, pad=1), (1, 4, 3, 4, 4)),
    "depthwise, three axes": lambda r: (conv(r, 3, 3, (2, 3, 2), group=3, stride=2, pad=1), (1, 3, 4, 5, 5)),
    "average, three axes": lambda r: (average((2, 2, 1), stride=2), (1, 2, 4, 6, 3)),
    "average, three axes, pads": lambda r: (average((2, 2, 2), 1, stride=1, pad=1), (1, 2, 3, 4, 4)),
    "mean, three axes": lambda r: (("ReduceMean", {"axes": (2, 3, 4), "keepdims": False}), (1, 3, 2, 4, 8)),
    "average": lambda r: (average((2, 2), stride=2), (1, 3, 6, 4)),
    "average, overlapping": lambda r: (average((4, 2), stride=1), (1, 2, 6, 4)),
    "average, counted pads": lambda r: (average((2, 2), 1, stride=1, pad=1), (1, 2, 4, 4)),
    "mean": lambda r: (("ReduceMean", {"axes": (2, 3), "keepdims": True}), (1, 3, 4, 8)),
    "mean, dropped": lambda r: (("ReduceMean", {"axes": (1,), "keepdims": False}), (4, 1, 3)),
    "reshape": lambda r: (("Reshape", {"shape": (1, 12)}), (1, 3, 2, 2)),
    "transpose": lambda r: (("Transpose", {"perm": (1, 0, 2)}), (1, 3, 2)),
    "slice": lambda r: (("Slice", {"axes": (0, 1), "starts": (4, 1), "stops": (-1, 6), "steps": (-2, 2)}), (5, 8)),
}


def network(op, attrs, shape, formats=WIDE):
    """The operator, behind a product with one so that there is something to train where it has no weights."""
    return trainable_of(expressions.tensor(*shape).same("one").then(op, name="op", **attrs), formats)


def trainable_of(y, formats=WIDE):
    return TrainableNetwork(replace(expressions.network(y), batched=set()), formats)


def tensor(values):
    return Tensor(np.asarray(values, dtype=np.float32), 0, int(np.abs(values).max()))


@pytest.mark.parametrize("case", CASES)
def test_forward_is_the_graph_and_backward_its_derivative(case):
    rng = np.random.default_rng(len(case))
    (op, attrs), shape = CASES[case](rng)
    net = network(op, attrs, shape)
    x, d = small(rng, 3, *shape), small(rng, 3, *shape)
    context = PassContext(WIDE)
    y, memories = net.forward(tensor(x), context)
    run = execute.run(net.graph, {"x": x})["y"].reshape(3, *net.graph.shapes["y"])
    assert np.array_equal(y.values, run)
    g = small(rng, *y.mant.shape)
    layer = net.layers[1]
    (back,), changes = layer.backward([tensor(g)], memories[1], context)
    moved = execute.run(net.graph, {"x": x + d})["y"].reshape(run.shape)
    assert np.sum(g * (moved - run)) == np.sum(back.values * d)
    for key, change in changes.items():
        step = small(rng, *attrs[key].shape)
        graph = Graph("net", list(net.graph.nodes), ["x"], ["y"], net.graph.shapes)
        graph.nodes[1] = graph.nodes[1].with_attrs(**{key: attrs[key] + step})
        other = execute.run(graph, {"x": x})["y"].reshape(run.shape)
        assert np.sum(g * (other - run)) == np.sum(change.values * step)
    assert set(changes) == {key for key in ("weight", "bias") if key in attrs}


def test_the_check_of_a_derivative_can_fail():
    rng = np.random.default_rng(0)
    (op, attrs), shape = CASES["conv"](rng)
    net = network(op, attrs, shape)
    x, d = small(rng, 3, *shape), small(rng, 3, *shape)
    y, memories = net.forward(tensor(x), PassContext(WIDE))
    g = small(rng, *y.mant.shape)
    flipped = net.layers[1].weight.tensor.mant[..., ::-1, ::-1]  # not rotated by 180 degrees
    object.__setattr__(net.layers[1].weight.tensor, "mant", flipped)
    (back,), _ = net.layers[1].backward([tensor(g)], memories[1], PassContext(WIDE))
    moved = execute.run(net.graph, {"x": x + d})["y"].reshape(y.mant.shape)
    assert np.sum(g * (moved - y.values)) != np.sum(back.values * d)


@pytest.mark.parametrize(
    "options", [{"stride": 2}, {"stride": 1, "pad": 1}, {"stride": 3, "dilation": 2, "pad": 1}], ids=str
)
def test_the_gradient_of_max_pooling_goes_to_the_first_greatest(options):
    rng = np.random.default_rng(1)
    attrs = {"kernel": (2, 3), **window(**options)}
    net = network("MaxPool", attrs, (1, 2, 8, 9))
    x = rng.integers(-2, 3, (2, 1, 2, 8, 9)).astype(float)  # many are equal
    y, memories = net.forward(tensor(x), PassContext(WIDE))
    assert np.array_equal(y.values, execute.run(net.graph, {"x": x})["y"].reshape(y.mant.shape))
    g = small(rng, *y.mant.shape)
    (back,), _ = net.layers[1].backward([tensor(g)], memories[1], PassContext(WIDE))
    want, pad = np.zeros(x.shape), attrs["pads"][0]
    for s, c, i, j in np.ndindex(2, 2, *y.mant.shape[3:]):
        best = None
        for a in range(2):
            for b in range(3):
                row = i * options["stride"] + a * attrs["dilations"][0] - pad
                column = j * options["stride"] + b * attrs["dilations"][1] - pad
                if 0 <= row < 8 and 0 <= column < 9 and (best is None or x[s, 0, c, row, column] > x[best]):
                    best = (s, 0, c, row, column)
        want[best] += g[s, 0, c, i, j]
    assert np.array_equal(back.values, want)


def test_relu_passes_gradients_above_zero():
    net = network("Relu", {}, (1, 5))
    y, memories = net.forward(tensor(np.array([[[-2.0, -1, 0, 1, 3]]])), PassContext(WIDE))
    (back,), _ = net.layers[1].backward([tensor(np.array([[[5.0, 6, 7, 8, 9]]]))], memories[1], PassContext(WIDE))
    assert y.values.tolist() == [[[0, 0, 0, 1, 3]]] and back.values.tolist() == [[[0, 0, 0, 8, 9]]]


def test_add_sends_its_gradient_both_ways_and_readers_add_up():
    a = X.same("one")
    net = trainable_of(a + a)
    y, memories = net.forward(tensor(np.array([[[1.0, 2, 3]]])), PassContext(WIDE))
    changes = net.backward(tensor(np.array([[[1.0, -1, 2]]])), memories, PassContext(WIDE))
    assert y.values.tolist() == [[[2, 4, 6]]] and changes["one.bias"].values.tolist() == [2, -2, 4]


@pytest.mark.parametrize("name", [record.name for record in trainable()])
def test_tables_of_functions_and_slopes(name):
    values, slopes = table(name, -5, 127)
    x = np.arange(-127, 128) * 2.0**-5
    y = function(name).values(x)
    unit = 2.0**-ENTRY_POINT
    slope = function(name).slope(y)
    assert np.abs(values * unit - np.minimum(y, 1 - unit)).max() <= unit * 0.51
    assert np.abs(slopes * unit - np.minimum(slope, 1 - unit)).max() <= unit * 0.51
    net = network("Function", {"functions": ((name, {}),)}, (1, 3), TrainingFormats())
    given = Tensor(np.array([[[3.0, -40, 127]]]), -5, 127)
    (found,), memory = net.layers[1].forward([given], PassContext(TrainingFormats()))
    assert found.mant.tolist() == [[[values[130], values[87], values[254]]]]
    (back,), _ = net.layers[1].backward([tensor(np.array([[[2.0, 3, -1]]]))], memory, PassContext(TrainingFormats()))
    assert back.values.tolist() == [[[2 * slopes[130] * unit, 3 * slopes[87] * unit, -slopes[254] * unit]]]


def test_gradients_of_weights_read_what_is_not_rounded_and_those_of_inputs_what_is():
    """32 and 16 bits, as in the source."""
    net = network("Dense", {"weight": np.array([[3.0]]), "bias": np.zeros(1)}, (1, 1), TrainingFormats())
    context = PassContext(TrainingFormats())
    _, memory = net.layers[1].forward([tensor(np.array([[[5.0]]]))], context)
    g = Tensor(np.array([[[1000003.0]]]), 0, 1000003)
    (back,), changes = net.layers[1].backward([g], memory, context)
    assert changes["weight"].values.tolist() == [[5 * 1000003.0]]
    assert back.values.tolist() == [[[3 * 31250.0 * 32]]]


def test_what_cannot_be_trained_is_listed_at_once():
    a = X.same()
    with pytest.raises(CannotTrain, match=r"curve \(Function: erf\); gate \(Mul of two tensors\)"):
        trainable_of(a.combined("Mul", a.function("erf", "curve"), name="gate"))
    with pytest.raises(CannotTrain, match="must have weights to train"):
        trainable_of(X.relu())
    with pytest.raises(ValueError, match=r"one.weight must be finite"):
        trainable_of(X.dense(np.full((3, 3), np.nan), name="one"))


def recurrent(op, rng, direction="forward", **more):
    """The attributes of a node with weights that are whole sixteenths."""
    gates, count = {"LSTM": 4, "GRU": 3}[op], 2 if direction == "bidirectional" else 1
    names = ("Sigmoid", "Tanh", "Tanh")[: 3 if op == "LSTM" else 2]
    return {
        "W": small(rng, count, gates * 5, 3) / 16, "R": small(rng, count, gates * 5, 5) / 16,
        "B": small(rng, count, 2 * gates * 5) / 16, "hidden_size": 5, "direction": direction,
        "activations": (names,) * count, "activation_parameters": (({},) * len(names),) * count, "clip": None,
        "initial_h": None,
    } | ({"P": None, "input_forget": False, "initial_c": None} if op == "LSTM" else {}) | more  # fmt: skip


RECURRENT = {
    "lstm": ("LSTM", {}),
    "lstm, backwards": ("LSTM", {"direction": "reverse"}),
    "lstm, both ways": ("LSTM", {"direction": "bidirectional"}),
    "gru": ("GRU", {"linear_before_reset": True}),
    "gru, reset first": ("GRU", {"linear_before_reset": False}),
    "gru, both ways": ("GRU", {"linear_before_reset": True, "direction": "bidirectional"}),
}
FINE = TrainingFormats(
    weight=TrainingFormat(16), bias=TrainingFormat(16), activation=TrainingFormat(12), gradient=TrainingFormat(24),
    accumulator=AccumulatorFormat(8),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("read", ["y", "h"])
@pytest.mark.parametrize("case", RECURRENT)
def test_recurrent_layers_follow_the_graph_and_its_derivative(case, read):
    """Within what tables of 12 bits leave: differences of the graph in double precision, for every weight and input."""
    rng = np.random.default_rng(len(case))
    op, more = RECURRENT[case]
    attrs = recurrent(op, rng, **more)
    outputs = ("y", "h") + (("c",) if op == "LSTM" else ())
    shapes = OPS[op].shape(Node(op, "op", ("x",), outputs, attrs), [(4, 1, 3)])

    def graph(attrs):
        node = Node(op, "op", ("x",), outputs, attrs)
        return Graph("net", [node], ["x"], [read], {"x": (4, 1, 3), **dict(zip(outputs, shapes, strict=True))})

    net = TrainableNetwork(graph(attrs), FINE)
    x = small(rng, 2, 4, 1, 3) / 8
    context = PassContext(FINE)
    y, memories = net.forward(Tensor(x * 8, -3, 7), context)
    exact = execute.run(graph(attrs), {"x": x})[read]
    assert np.abs(y.values - exact).max() < 2e-3
    g = small(rng, *y.mant.shape)
    layer = net.layers[0]
    given = [Tensor(g, 0, 7) if name == read else None for name in outputs[:2]]
    (back,), changes = layer.backward(given, memories[0], context)

    def slope(values, change):
        """The derivative by one number, by a central difference."""
        step, found = 1e-5, []
        for sign in (1, -1):
            moved = values.copy()
            moved[change] += sign * step
            found.append(moved)
        return found, 2 * step

    scale = max(np.abs(back.values).max(), 1.0)
    for place in [(0, 0, 0, 0), (1, 2, 0, 1), (0, 3, 0, 2)]:
        (up, down), width = slope(x, place)
        runs = [execute.run(graph(attrs), {"x": v})[read] for v in (up, down)]
        assert abs(np.sum(g * (runs[0] - runs[1])) / width - back.values[place]) < 0.02 * scale
    for d in range(len(attrs["W"])):
        for key, name in (("W", "weight"), ("R", "recurrent")):
            scale = max(np.abs(changes[f"{name}{d}"].values).max(), 1.0)
            for row in range(0, attrs[key].shape[1], 3):
                (up, down), width = slope(attrs[key], (d, row, row % 3))
                runs = [execute.run(graph(attrs | {key: v}), {"x": x})[read] for v in (up, down)]
                found = changes[f"{name}{d}"].values[row, row % 3]
                assert abs(np.sum(g * (runs[0] - runs[1])) / width - found) < 0.02 * scale, (key, row)
        for row in range(0, attrs["B"].shape[1], 4):
            gates = attrs["B"].shape[1] // 2
            hidden = row >= gates
            key = f"hidden_bias{d}" if hidden and op == "GRU" and row >= gates + 10 else f"bias{d}"
            at = row % gates - (10 if key.startswith("hidden") else 0)
            if key not in changes:
                key, at = f"bias{d}", row % gates
            (up, down), width = slope(attrs["B"], (d, row))
            runs = [execute.run(graph(attrs | {"B": v}), {"x": x})[read] for v in (up, down)]
            scale = max(np.abs(changes[key].values).max(), 1.0)
            assert abs(np.sum(g * (runs[0] - runs[1])) / width - changes[key].values[at]) < 0.02 * scale, (key, row)
    trained = net.trained().nodes[0].attrs
    assert np.abs(trained["W"] - attrs["W"]).max() < 1e-4 and np.abs(trained["R"] - attrs["R"]).max() < 1e-4
    assert np.abs(execute.run(graph(attrs | trained), {"x": x})[read] - exact).max() < 1e-3


def test_recurrent_layers_that_are_not_usual_are_refused():
    attrs = recurrent("LSTM", np.random.default_rng(0), P=np.ones((1, 15)), clip=3.0)
    shapes = {"x": (4, 1, 3), "y": (4, 1, 1, 5)}
    with pytest.raises(CannotTrain, match="LSTM with peepholes, clip"):
        TrainableNetwork(Graph("net", [Node("LSTM", "op", ("x",), ("y", "", ""), attrs)], ["x"], ["y"], shapes), FINE)


def test_only_what_is_trained_asks_for_gradients():
    """Of the first layer with weights nobody needs the gradient of the input; behind it everybody does."""
    net = trainable_of(X.relu().same("one").relu().same())
    assert [layer.first for layer in net.layers] == [True, True, False, False]
    _, memories = net.forward(tensor(np.array([[[1.0, 2, 3]]])), PassContext(WIDE))
    changes = net.backward(tensor(np.array([[[1.0, -1, 3]]])), memories, PassContext(WIDE))
    assert changes["one.weight"].values.tolist() == [[1, 2, 3], [-1, -2, -3], [3, 6, 9]]
