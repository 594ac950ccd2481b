"""Recurrent layers on the emulator against double precision."""

import numpy as np
import pytest

from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.functions import by_recurrent_name
from concord.graph.execute import run
from concord.graph.ir import Node
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F
from support.compiled_nets import recurrent
from support.expressions import graph_of

CONFIG = ECP5_85F.replace(native=8, lanes=4, mfu_lanes=2, table_depth=2048)
PEEPHOLE = np.random.default_rng(3).normal(0, 0.5, (1, 33))
STATE = np.random.default_rng(4).normal(0, 0.5, (1, 1, 11))


def error(graph, seed=0, samples=3):
    """Greatest error relative to the greatest output."""
    rng = np.random.default_rng(seed)
    x = {name: rng.normal(0, 1, (samples, *graph.sample_shape(name))) for name in graph.inputs}
    want = run(graph, x)
    compiled = compile_graph(graph, CONFIG)
    got = emulate(compiled, x)
    return max(np.abs(got[name] - want[name]).max() / np.abs(want[name]).max() for name in want)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("sequence", [False, True])
def test_directions(op, direction, sequence):
    assert error(recurrent(op, 11, 5, 6, direction=direction, sequence=sequence)) < 0.05


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_few_steps(op, steps):
    assert error(recurrent(op, 8, 9, steps)) < 0.05


def test_reset_before_the_product():
    assert error(recurrent("GRU", 11, 5, 6, linear_before_reset=False)) < 0.05


@pytest.mark.parametrize("forget", [False, True])
def test_peepholes(forget):
    assert error(recurrent("LSTM", 11, 5, 6, P=PEEPHOLE, input_forget=forget)) < 0.05


def test_constant_initial_states():
    rng = np.random.default_rng(4)
    h, c = (rng.normal(0, 0.5, (1, 1, 11)) for _ in range(2))
    assert error(recurrent("LSTM", 11, 5, 3, initial_h=h, initial_c=c)) < 0.05


def test_given_initial_states():
    graph = recurrent("LSTM", 11, 5, 3)
    (node,) = graph.nodes
    graph.nodes = [node.replace(inputs=("x", "h", "c"))]
    graph.inputs += ["h", "c"]
    graph.shapes |= {"h": (1, 1, 11), "c": (1, 1, 11)}
    assert error(graph) < 0.05


def without(values, part):
    """A copy with zeros in some of its last axis."""
    changed = values.copy()
    changed[..., part] = 0
    return changed


@pytest.mark.parametrize(
    ("op", "attrs", "other"),
    [
        *(("LSTM", {"P": PEEPHOLE}, {"P": without(PEEPHOLE, slice(k, k + 11))}) for k in (0, 11, 22)),
        ("LSTM", {"P": PEEPHOLE}, {"P": PEEPHOLE, "input_forget": True}),
        ("LSTM", {"initial_h": STATE}, {"initial_h": None}),
        ("LSTM", {"initial_c": STATE}, {"initial_c": None}),
        ("GRU", {"linear_before_reset": False}, {"linear_before_reset": True}),
    ],
)
def test_details_make_more_difference_than_is_allowed(op, attrs, other):
    """In double precision: what a layer left out would be three times the error that tests of this file allow."""
    graph, changed = (recurrent(op, 11, 5, 6, **given) for given in (attrs, other))
    x = {"x": np.random.default_rng(0).normal(0, 1, (3, 6, 1, 5))}
    (want,), (got,) = run(graph, x).values(), run(changed, x).values()
    assert np.abs(got - want).max() > 3 * 0.05 * np.abs(want).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", by_recurrent_name())
def test_every_function(name):
    assert error(recurrent("GRU", 11, 5, 4, activations=(("HardSigmoid", name),))) < 0.05
    assert error(recurrent("RNN", 11, 5, 4, activations=((name,),))) < 0.05


def test_two_layers_read_each_other_in_place():
    graph = recurrent("GRU", 11, 5, 4, direction="bidirectional")
    second = recurrent("GRU", 7, 22, 4, seed=9).nodes[0]
    first = graph.nodes[0].replace(outputs=("a", ""))
    graph.nodes = [
        first,
        Node("Transpose", "order", ("a",), ("b",), {"perm": (0, 2, 1, 3)}),
        Node("Reshape", "merge", ("b",), ("m",), {"shape": (4, 1, 22)}),
        second.replace(name="second", inputs=("m",), outputs=("y", "")),
    ]
    graph.shapes |= {"a": (4, 2, 1, 11), "b": (4, 1, 2, 11), "m": (4, 1, 22), "y": (4, 1, 1, 7)}
    assert error(graph) < 0.05


def test_what_cells_cannot_do_is_told():
    with pytest.raises(Unsupported, match="clip must be left out"):
        compile_graph(recurrent("GRU", 8, 8, 2, clip=3.0), CONFIG)
    with pytest.raises(Unsupported, match="input_forget must go with a sigmoid"):
        tanh = (("Tanh", "Tanh", "Tanh"),)
        compile_graph(recurrent("LSTM", 8, 8, 2, input_forget=True, activations=tanh), CONFIG)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_states_that_are_read_and_lie_beside_others(direction):
    """The states of a layer, which another layer reads, lie beside the states of that one."""
    first, second = (
        recurrent("RNN", 11, features, 4, seed=features, direction=direction).nodes[0] for features in (5, 11)
    )
    as_sequence = {"shape": (4, 1, 11)}
    graph = graph_of(
        [
            first.replace(name="first", outputs=("a", "")),
            Node("Reshape", "a as sequence", ("a",), ("b",), as_sequence),
            second.replace(name="second", inputs=("b",), outputs=("c", "")),
            Node("Reshape", "c as sequence", ("c",), ("d",), as_sequence),
            Node("Concat", "beside", ("b", "d"), ("y",), {"axis": 2}),
        ],
        x=(4, 1, 5),
    )
    assert error(graph) < 0.05


def test_directions_and_nodes_have_different_names():
    graph = recurrent("RNN", 5, 4, 3, direction="bidirectional")
    eye = {"weight": np.eye(4), "bias": np.zeros(4)}
    before = Node("Dense", "cell.1", ("x",), ("before",), eye)
    cell = graph.nodes[0].replace(inputs=("before",))
    assert error(graph_of([before, cell], x=(3, 1, 4))) < 0.05
