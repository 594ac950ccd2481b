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
from support import orders, random_models
from support.expressions import ROOMY, concat, graph_of, network, tensor
from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees, node, onnxruntime_results
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


def figure_of_the_source(x=(1, 3, 8, 8)):
    """Operation 1 is read by a precise operation and by a quantised one."""
    a = tensor(*x).function("sigmoid", name="s")
    t = a.function("tanh", name="t")
    conv = a.conv(weights(4, 3, 3, 3).astype(np.float64), pads=1, name="c")
    return network(y=t, z=conv)


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
    made = [tensor(1, 8), tensor(1, 8, name="z")]
    for _ in range(9):
        one, other = (made[int(rng.integers(len(made)))] for _ in range(2))
        kind = str(rng.choice(["tanh", "Relu", "Add", "Mul", "Dense"]))
        if kind == "tanh":
            made.append(one.function("tanh"))
        elif kind == "Relu":
            made.append(one.relu())
        elif kind == "Dense":
            made.append(one.dense(rng.normal(0, 0.3, (8, 8)), rng.normal(0, 0.3, 8)))
        else:
            made.append(one.combined(kind, other))
    read = {x for y in made for x in y.operands}
    return network(**{f"t{k}": y for k, y in enumerate(made) if y not in read and y.op is not None})


def refused():
    """Four nodes that cannot be lowered, on two ways."""
    more = np.full((1, 6), 1e6)
    x, z = tensor(1, 6), tensor(1, 6, name="z")
    a, b, c = (one.combined("Add", more, name=f"add {k}") for k, one in ((1, x), (2, x), (3, z)))
    return network(y=a + c, w=b * b)


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
        s = op.Sigmoid(given(1, 3, 8, 8))
        made_of = {"t": op.Tanh(s), "c": op.Conv(s, w, pads=[1, 1, 1, 1])}
        for proto in orders.of_model(model_of(**{name: made_of[name] for name in outputs}), 10):
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
    x, weight = tensor(1, 3, 8, 8), rng.normal(0, 0.3, (4, 3, 3, 3))
    if first:
        c, t = x.conv(weight, pads=1), x.function("tanh")
    else:
        t, c = x.function("tanh"), x.conv(weight, pads=1)
    outputs = {"t": t, "c": c}
    if "Concat" in behind:
        outputs = {"y": concat(1, t, c)}
    if "Slice" in behind:
        outputs = {"t": t, "y": c[:, :2]}
    if "MaxPool" in behind:
        outputs["y"] = x.pool("MaxPool", 2, 2)
    agree(network(**outputs))


@pytest.mark.parametrize("swapped", [False, True])
def test_windows_decide_the_layout_of_an_input(swapped):
    """Channels are in lanes, whether the convolution or the function is listed first."""
    graph = figure_of_the_source()
    nodes = [graph.nodes[2], graph.nodes[1]] if swapped else graph.nodes[1:]
    order_of_elements = preferred_order(replace(graph, nodes=nodes, inputs=["s.out"]), "s.out")
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
    proto = random_models.network(seed)
    want, others = imported(proto), list(orders.of_model(proto, 4, seed))
    assert [imported(other) for other in others] == [want] * len(others)
    if seed < 6:
        first = compiled(import_model(proto))
        assert [compiled(import_model(other)) for other in others] == [first] * len(others)


def test_refusals_of_files():
    x = given(1, 3, 3)
    a = op.Relu(x)
    outputs = {name: op.Wavelet(x, domain="own") for name in "bf"}
    proto = model_of(**outputs, d=op.NonZero(a), e=op.Unique(op.Erf(a)), domains=["own"])
    messages = {imported(other) for other in orders.of_model(proto, 12)}
    assert len(messages) == 1 and messages.pop().count("operator is not supported") == 4


def test_nodes_without_names_and_functions():
    """What gets its name when it is imported gets the same one in every order."""
    body = [node("Add", ["x", "x"], ["s"]), node("Tanh", ["s"], ["y"])]
    twice = helper.make_function("own", "Twice", ["x"], ["y"], body, [helper.make_opsetid("", 17)])
    x = given(1, 4)
    a, c = op.Twice(x, domain="own"), op.Twice(x, domain="own")
    y = op.Mul(op.Twice(a, domain="own"), c)
    proto = model_of(y=y, z=op.LayerNormalization(c, np.ones(4)), domains=["own"])
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
    x = tensor(1, 4)
    alone = x.function("tanh", name="alone")
    b, a = x.function("tanh", name="n2"), x.function("tanh", name="n1")
    graph = network(y=a.function("erf", name="n3").combined("Add", b, name="sum"), w=alone)
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
