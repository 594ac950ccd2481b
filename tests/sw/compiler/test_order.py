"""The order in which a file or a graph lists its nodes decides nothing: results, cycles and refusals are the same."""

import random
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

import concord
from concord.compiler.lowering.inputs import preferred_order
from concord.compiler.model import compile_graph
from concord.frontend import UnsupportedModel, import_model
from concord.graph.execute import run
from concord.graph.ir import Node
from concord.graph.level import text
from concord.graph.passes import order
from concord.host import connect
from concord.host.rates import rates
from concord.spec.presets import ECP5_85F, TINY
from same_images import NETS
from support import orders
from support.compiled_nets import ROOMY, graph_of
from support.onnx_models import agrees, model, node, onnxruntime_results
from support.random_models import network
from support.trained import DATA, needs_data

RNG = np.random.default_rng(4)


def weights(*shape):
    return RNG.normal(0, 0.3, shape).astype(np.float32)


def compiled(graph, config=ROOMY):
    """What a network has become: its words, ports and cycles, or why it was refused."""
    try:
        made = compile_graph(graph, config)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    arranged = {name: ids.tobytes() for name, ids in made.package.arrangement.outputs.items()}
    return str(made.image.program), made.image.inputs, arranged, rates(made.image).cycles


def function(name, x, y, kind):
    return Node("Function", name, (x,), (y,), {"functions": ((kind, {}),)})


def figure_of_the_source(x=(1, 3, 8, 8)):
    """Operation 1 is read by a precise operation and by a quantised one."""
    attrs = {"weight": weights(4, 3, 3, 3).astype(np.float64), "bias": np.zeros(4), "group": 1, "strides": (1, 1),
             "pads": (1, 1, 1, 1), "dilations": (1, 1)}  # fmt: skip
    conv = Node("Conv", "c", ("a",), ("z",), attrs)
    graph = graph_of([function("s", "x", "a", "sigmoid"), function("t", "a", "y", "tanh"), conv], x=x)
    graph.outputs = ["y", "z"]
    return graph


def agree(graph, config=ROOMY):
    """What the emulator gives is what double precision gives, within what 8 bits leave."""
    made = compile_graph(graph, config)
    x = {name: np.random.default_rng(1).normal(0, 1, (3, *graph.sample_shape(name))) for name in graph.inputs}
    want = run(graph, x)
    with connect("emulator", config) as device:
        device.load(made.image)
        for name, got in made.run(device, x).items():
            assert np.abs(got - want[name]).max() < 0.05 * np.abs(want[name]).max()


def many_ways(seed):
    """Functions, sums and products of whatever is there already, and what nothing reads as outputs."""
    rng = np.random.default_rng(seed)
    nodes, names = [], ["x", "z"]
    for k in range(9):
        one, other = (names[int(rng.integers(len(names)))] for _ in range(2))
        kind = rng.choice(["tanh", "Relu", "Add", "Mul", "Dense"])
        if kind == "tanh":
            nodes.append(function(f"n{k}", one, f"t{k}", "tanh"))
        elif kind == "Relu":
            nodes.append(Node("Relu", f"n{k}", (one,), (f"t{k}",)))
        elif kind == "Dense":
            attrs = {"weight": rng.normal(0, 0.3, (8, 8)), "bias": rng.normal(0, 0.3, 8)}
            nodes.append(Node("Dense", f"n{k}", (one,), (f"t{k}",), attrs))
        else:
            nodes.append(Node(str(kind), f"n{k}", (one, other), (f"t{k}",)))
        names.append(f"t{k}")
    graph = graph_of(nodes, x=(1, 8), z=(1, 8))
    read = {name for n in nodes for name in n.inputs}
    graph.outputs = [name for name in names[2:] if name not in read]
    return graph


def refused():
    """Four nodes that cannot be lowered, on two ways."""
    more = {"constant": np.full((1, 6), 1e6)}
    nodes = [Node("Add", f"add {k}", (x,), (y,), more) for k, x, y in ((1, "x", "a"), (2, "x", "b"), (3, "z", "c"))]
    return graph_of([*nodes, Node("Add", "sum", ("a", "c"), ("y",)), Node("Mul", "square", ("b", "b"), ("w",))],
                    x=(1, 6), z=(1, 6))  # fmt: skip


GRAPHS = {"figure of the source": figure_of_the_source, "refused": refused, **NETS,
          **{f"many ways {seed}": lambda seed=seed: many_ways(seed) for seed in range(12)}}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name):
    graph = GRAPHS[name]()
    for config in (ROOMY, TINY) if name in NETS else (ROOMY,):
        want = compiled(graph, config)
        for nodes in orders.of_graph(graph, 6):
            assert compiled(replace(graph, nodes=nodes), config) == want


@pytest.mark.slow
def test_a_few_graphs():
    for name in ("figure of the source", "refused", "residual", "many ways 3"):
        graph = GRAPHS[name]()
        want = compiled(graph)
        for nodes in orders.of_graph(graph, 4, seed=1):
            assert compiled(replace(graph, nodes=nodes)) == want
    assert compiled(refused()).count("constants must be below 65520 in magnitude, not 1e+06") == 3


def test_the_graph_that_is_compiled_stays_as_it_is():
    graph = figure_of_the_source()
    graph.nodes = [graph.nodes[0], *graph.nodes[:0:-1]]
    before = list(graph.nodes)
    compile_graph(graph, ROOMY)
    assert graph.nodes == before


def test_both_orders_of_the_figure_are_right():
    """The layout of an input is decided by all that read it, and the convolution has the say."""
    for nodes in orders.of_graph(figure_of_the_source(), 10):
        agree(replace(figure_of_the_source(), nodes=nodes))


@pytest.mark.slow
def test_the_figure_as_a_file():
    w, x = weights(4, 3, 3, 3), np.random.default_rng(2).normal(0, 1, (1, 3, 8, 8))
    made = []
    for outputs in (["t", "c"], ["c", "t"]):
        nodes = [node("Sigmoid", ["x"], ["s"]), node("Tanh", ["s"], ["t"]),
                 node("Conv", ["s", "w"], ["c"], pads=[1, 1, 1, 1])]  # fmt: skip
        for proto in orders.of_model(model(nodes, {"x": (1, 3, 8, 8)}, outputs, {"w": w}), 10):
            net = concord.compile(proto)
            results = net.run(x)
            assert list(results) == outputs
            for name, want in zip(outputs, onnxruntime_results(proto, {"x": x}), strict=True):
                assert np.abs(results[name] - want).max() < 0.02 * np.abs(want).max()
            made.append((outputs, {name: values.tobytes() for name, values in results.items()}, net.rates.cycles))
    assert len(made) == 4 and made[0] == made[1] and made[2] == made[3] and made[0][1] == made[2][1]


@pytest.mark.parametrize("behind", [["Concat"], ["Slice"], ["Tanh", "Conv"], ["Conv", "MaxPool"]], ids=str)
@pytest.mark.parametrize("first", [True, False])
def test_who_reads_an_input_first_does_not_decide(behind, first):
    """An input that a function and something else read, in either order; what windows read is laid out for them."""
    rng = np.random.default_rng(3)
    attrs = {"weight": rng.normal(0, 0.3, (4, 3, 3, 3)), "bias": np.zeros(4), "group": 1, "strides": (1, 1),
             "pads": (1, 1, 1, 1), "dilations": (1, 1)}  # fmt: skip
    conv = Node("Conv", "conv", ("x",), ("c",), attrs)
    tanh = function("tanh", "x", "t", "tanh")
    nodes = [conv, tanh] if first else [tanh, conv]
    if "Concat" in behind:
        nodes.append(Node("Concat", "join", ("t", "c"), ("y",), {"axis": 1}))
    if "Slice" in behind:
        cut = {"axes": (1,), "starts": (0,), "stops": (2,), "steps": (1,)}
        nodes.append(Node("Slice", "cut", ("c",), ("y",), cut))
    if "MaxPool" in behind:
        pool = {"kernel": (2, 2), "strides": (2, 2), "pads": (0,) * 4, "dilations": (1, 1)}
        nodes.append(Node("MaxPool", "pool", ("x",), ("y",), pool))
    graph = graph_of(nodes, x=(1, 3, 8, 8))
    computed = [name for n in nodes for name in n.outputs]
    graph.outputs = [name for name in computed if not any(name in n.inputs for n in nodes)]
    agree(graph)


@pytest.mark.parametrize("swapped", [False, True])
def test_windows_decide_the_layout_of_an_input(swapped):
    """Channels are in lanes, whether the convolution or the function is listed first."""
    graph = figure_of_the_source()
    nodes = [graph.nodes[2], graph.nodes[1]] if swapped else graph.nodes[1:]
    order_of_elements = preferred_order(replace(graph, nodes=nodes, inputs=["a"]), "a")
    assert order_of_elements.tolist() == np.arange(3 * 64).reshape(3, 8, 8).transpose(1, 2, 0).tolist()


# Files ------------------------------------------------------------------------------------------------


def imported(proto):
    try:
        return "\n".join(text(import_model(proto)))
    except UnsupportedModel as error:
        return str(error)


@pytest.mark.parametrize("seed", range(30))
def test_files(seed):
    """Names and shapes of all nodes are the same, and so is what is compiled of them."""
    proto = network(seed)
    want, others = imported(proto), list(orders.of_model(proto, 4, seed))
    assert [imported(other) for other in others] == [want] * len(others)
    if seed < 6:
        first = compiled(import_model(proto))
        assert [compiled(import_model(other)) for other in others] == [first] * len(others)


def test_refusals_of_files():
    nodes = [node("Relu", ["x"], ["a"]), node("Wavelet", ["x"], ["b"], domain="own"), node("Erf", ["a"], ["c"]),
             node("NonZero", ["a"], ["d"]), node("Unique", ["c"], ["e"]),
             node("Wavelet", ["x"], ["f"], domain="own")]  # fmt: skip
    proto = model(nodes, {"x": (1, 3, 3)}, ["b", "d", "e", "f"], domains=["own"])
    messages = {imported(other) for other in orders.of_model(proto, 12)}
    assert len(messages) == 1 and messages.pop().count("operator is not supported") == 4


def test_nodes_without_names_and_functions():
    """What gets its name when it is imported gets the same one in every order."""
    body = [node("Add", ["x", "x"], ["s"]), node("Tanh", ["s"], ["y"])]
    twice = helper.make_function("own", "Twice", ["x"], ["y"], body, [helper.make_opsetid("", 17)])
    nodes = [node("Twice", ["x"], ["a"], domain="own"), node("Twice", ["a"], ["b"], domain="own"),
             node("Twice", ["x"], ["c"], domain="own"), node("Mul", ["b", "c"], ["y"]),
             node("LayerNormalization", ["c", "w"], ["z"])]  # fmt: skip
    proto = model(nodes, {"x": (1, 4)}, ["y", "z"], {"w": np.ones(4, np.float32)}, domains=["own"])
    proto.functions.append(twice)
    assert len({imported(other) for other in orders.of_model(proto, 24)}) == 1
    agrees(proto)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((DATA / "models").rglob("*.onnx")), ids=lambda path: path.stem)
def test_trained_networks(path):
    proto = onnx.load(path)
    want = imported(proto)
    assert all(imported(other) == want for other in orders.of_model(proto, 3))


def test_the_order_is_that_of_outputs_and_operands():
    add = Node("Add", "sum", ("c", "b"), ("y",))
    nodes = [function("alone", "x", "w", "tanh"), function("n2", "x", "b", "tanh"), function("n1", "x", "a", "tanh"),
             function("n3", "a", "c", "erf"), add]  # fmt: skip
    graph = graph_of(nodes, x=(1, 4))
    graph.outputs = ["y"]
    names = set()
    for seed in range(10):
        random.Random(seed).shuffle(graph.nodes)
        order.run(graph)
        names.add(tuple(n.name for n in graph.nodes))
    assert names == {("n1", "n3", "n2", "sum", "alone")}


def test_a_chain_of_many_nodes_needs_no_stack():
    nodes = [Node("Relu", f"n{k}", (f"t{k}",), (f"t{k + 1}",)) for k in range(5000)]
    graph = graph_of(nodes, t0=(1, 4))
    graph.nodes.reverse()
    order.run(graph)
    assert graph.nodes == nodes


@pytest.mark.slow
def test_another_layout_of_an_input_is_needed_for_a_window():
    """Without a say of all readers the first order of the figure is refused, on every preset."""
    for config in (TINY, ECP5_85F):
        assert not isinstance(compiled(figure_of_the_source((1, 3, 4, 4)), config), str)
