"""Networks with states, by name: small ones whose results are exact for whole numbers, and cells."""

import numpy as np
from onnx import helper

from concord.frontend import import_model
from concord.graph.ir import Node
from concord.graph.states import with_states
from support.compiled_nets import graph_of
from support.onnx_models import model


def _with(graph, outputs, states):
    graph.outputs = list(outputs)
    graph.batched |= {name for name in outputs if graph.shapes[name][:1] == (1,)}
    graph.check()
    return with_states(graph, states)


def _slice(name, source, output, start, stop, axis=1):
    return Node(
        "Slice", name, (source,), (output,), {"axes": (axis,), "starts": (start,), "stops": (stop,), "steps": (1,)}
    )


def _dense(name, source, output, size, inputs, seed=3):
    weight = np.random.default_rng(seed).integers(-2, 3, (size, inputs)).astype(float)
    return Node("Dense", name, (source,), (output,), {"weight": weight, "bias": np.zeros(size)})


def window(count=5, size=8, oldest_first=True, computed=False):
    """Keeps the last vectors, and multiplies each by a matrix; new ones come in at the end or at the beginning.

    What is ``computed`` is a tensor that is there before the window is.
    """
    old = _slice("old", "past", "kept", 1, count) if oldest_first else _slice("old", "past", "kept", 0, count - 1)
    new = "twice" if computed else "x"
    parts = ("kept", new) if oldest_first else (new, "kept")
    first = [Node("Add", "double", ("x", "x"), ("twice",))] if computed else []
    nodes = [*first, old, Node("Concat", "join", parts, ("next",), {"axis": 1}), _dense("fc", "next", "y", 3, size)]
    return _with(graph_of(nodes, x=(1, 1, size), past=(1, count, size)), ["y", "next"], {"past": "next"})


def integrator(size=6):
    """A sum of all inputs so far, in front of a product."""
    nodes = [
        Node("Add", "add", ("sum", "x"), ("next",)),
        _dense("fc", "next", "y", 4, size),
    ]
    return _with(graph_of(nodes, x=(1, size), sum=(1, size)), ["y", "next"], {"sum": "next"})


def before(size=6):
    """A sum, and a product with what it was before."""
    nodes = [Node("Add", "add", ("sum", "x"), ("next",)), _dense("fc", "sum", "y", 4, size)]
    return _with(graph_of(nodes, x=(1, size), sum=(1, size)), ["next", "y"], {"sum": "next"})


def delays(size=4):
    """A delay by one run and another one by two."""
    nodes = [
        Node("Add", "sum", ("a", "b"), ("s",)),
        Node("Add", "result", ("s", "x"), ("z",)),
        Node("Reshape", "to a", ("b",), ("a2",), {"shape": (1, size)}),
        Node("Reshape", "to b", ("x",), ("b2",), {"shape": (1, size)}),
        _dense("fc", "z", "y", 3, size),
    ]
    return _with(graph_of(nodes, x=(1, size), a=(1, size), b=(1, size)), ["y", "a2", "b2"], {"a": "a2", "b": "b2"})


def exchange(size=4):
    """Two states that become each other, but for a vector that comes in."""
    nodes = [
        Node("Add", "sum", ("a", "b"), ("z",)),
        _slice("half", "b", "h", 0, 1),
        Node("Concat", "to a", ("h", "x"), ("a2",), {"axis": 1}),
        Node("Reshape", "to b", ("a",), ("b2",), {"shape": (1, 2, size)}),
        _dense("fc", "z", "y", 3, size),
    ]
    graph = graph_of(nodes, x=(1, 1, size), a=(1, 2, size), b=(1, 2, size))
    return _with(graph, ["y", "a2", "b2"], {"a": "a2", "b": "b2"})


def seen(new=False, count=3, size=4):
    """An output that is part of a window, as it was or as it is then."""
    nodes = [
        _slice("old", "past", "kept", 1, count),
        Node("Concat", "join", ("kept", "x"), ("next",), {"axis": 1}),
        _slice("look", "next" if new else "past", "first", 0, 1),
        _dense("fc", "x", "y", 3, size),
    ]
    graph = graph_of(nodes, x=(1, 1, size), past=(1, count, size))
    return _with(graph, ["y", "first", "next"], {"past": "next"})


def stream(taps=3, channels=4):
    """A convolution over time whose window moves by two steps in a run."""
    weight = np.random.default_rng(4).integers(-2, 3, (5, channels, 1, taps)).astype(float)
    nodes = [
        Node("Concat", "join", ("past", "x"), ("line",), {"axis": 3}),
        Node(
            "Conv", "conv", ("line",), ("y",),
            {
                "weight": weight, "bias": np.zeros(5), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1),
                "group": 1,
            },
        ),
        _slice("last", "line", "next", 2, 2 + taps - 1, 3),
    ]  # fmt: skip
    graph = graph_of(nodes[:2], x=(1, channels, 1, 2), past=(1, channels, 1, taps - 1))
    whole = graph_of([nodes[0], nodes[2], nodes[1]], x=graph.shapes["x"], past=graph.shapes["past"])
    return _with(whole, ["y", "next"], {"past": "next"})


#: Their results are whole numbers or halves of them, exactly those of the graph.
EXACT = {
    "window": window,
    "window, newest first": lambda: window(oldest_first=False),
    "window of results": lambda: window(computed=True),
    "window with lanes to spare": lambda: window(size=6),
    "newest first with lanes to spare": lambda: window(3, 5, oldest_first=False),
    "integrator": integrator,
    "sum before": before,
    "delay line": delays,
    "exchange": exchange,
    "exchange with lanes to spare": lambda: exchange(6),
    "old part": seen,
    "new part": lambda: seen(new=True),
    "stream": stream,
}


def unequal(middle=0.0, size=8):
    """A state whose channels differ by powers of two, which the product that reads it makes up for.

    With a ``middle`` the network takes a number off the state in front of that product.
    """
    rng, powers = np.random.default_rng(7), 2.0 ** np.arange(-6, 10, 2)
    constants = {
        "w": (rng.normal(size=(size, 4)) / powers[:, None]).astype(np.float32),
        "v": (rng.normal(size=(size, size)) * powers).astype(np.float32),
        "m": np.float32(middle),
    }
    nodes = [
        *([helper.make_node("Sub", ["past", "m"], ["less"], "less")] if middle else []),
        helper.make_node("MatMul", ["less" if middle else "past", "w"], ["y"], "read"),
        helper.make_node("MatMul", ["x", "v"], ["next"], "write"),
    ]
    return model(nodes, {"x": (1, size), "past": (1, size)}, ("y", "next"), constants)


def line_model():
    """A convolution of a line of four channels that alone reads it, and that the run before has computed."""
    rng = np.random.default_rng(8)
    constants = {
        "k": rng.normal(size=(3, 4, 3)).astype(np.float32),
        "b": np.ones(3, np.float32),
    }
    nodes = [
        helper.make_node("Add", ["x", "x"], ["next"], "twice"),
        helper.make_node("Conv", ["past", "k", "b"], ["y"], "conv", kernel_shape=[3]),
    ]
    return model(nodes, {"x": (1, 4, 6), "past": (1, 4, 6)}, ("y", "next"), constants)


def moving_line_model():
    """A convolution of a line that moves by a step in a run; channels come in as positions, and lie in lanes there."""
    rng = np.random.default_rng(8)
    constants = {
        "k": rng.normal(size=(3, 4, 3)).astype(np.float32), "b": np.ones(3, np.float32),
        "start": np.array([1]), "stop": np.array([6]), "axis": np.array([2]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Slice", ["past", "start", "stop", "axis"], ["old"], "old"),
        helper.make_node("Concat", ["old", "x"], ["next"], "join", axis=2),
        helper.make_node("Conv", ["past", "k", "b"], ["y"], "conv", kernel_shape=[3]),
    ]
    return model(nodes, {"x": (1, 4, 1), "past": (1, 4, 6)}, ("y", "next"), constants)


def cell_model(kind, size=6, hidden=5):
    """A step of a recurrent cell whose state goes in and comes out."""
    rng, gates = np.random.default_rng(5), {"GRU": 3, "LSTM": 4, "RNN": 1}[kind]
    constants = {
        "W": rng.normal(0, 0.5, (1, gates * hidden, size)).astype(np.float32),
        "R": rng.normal(0, 0.5, (1, gates * hidden, hidden)).astype(np.float32),
        "B": rng.normal(0, 0.2, (1, 2 * gates * hidden)).astype(np.float32),
        "axes": np.array([0], np.int64),
    }
    states = CELL_STATES[kind]
    nodes = [
        helper.make_node(
            kind, ["x", "W", "R", "B", "", *states], ["", *states.values()], kind, hidden_size=hidden
        ),
        helper.make_node("Squeeze", ["h2", "axes"], ["y"], "squeeze"),
    ]  # fmt: skip
    shapes = {"x": (1, 1, size), **dict.fromkeys(states, (1, 1, hidden))}
    return model(nodes, shapes, ("y", *states.values()), constants)


CELL_STATES = {"GRU": {"h": "h2"}, "RNN": {"h": "h2"}, "LSTM": {"h": "h2", "c": "c2"}}


def cell(kind, size=6, hidden=5):
    """The network of :func:`cell_model`."""
    return with_states(import_model(cell_model(kind, size, hidden)), CELL_STATES[kind])


def decoder(tokens=6, size=8, heads=2):
    """Attention of one token to those before it: keys and values are kept."""
    rng, width = np.random.default_rng(6), size // heads
    nodes = []
    for part in "qkv":
        weight = rng.normal(0, 1 / np.sqrt(size), (size, size))
        nodes.append(Node("Dense", part, ("x",), (part,), {"weight": weight, "bias": rng.normal(0, 0.1, size)}))
    for part in "kv":
        nodes += [
            Node("Reshape", f"{part} new", (part,), (f"{part}1",), {"shape": (1, 1, size)}),
            _slice(f"{part} old", f"{part}s", f"{part}2", 1, tokens),
            Node("Concat", f"{part} join", (f"{part}2", f"{part}1"), (f"{part}s next",), {"axis": 1}),
            Node("Reshape", f"{part} heads", (f"{part}s next",), (f"{part}3",), {"shape": (1, tokens, heads, width)}),
        ]
    nodes += [
        Node("Reshape", "q heads", ("q",), ("q1",), {"shape": (1, heads, 1, width)}),
        Node("Transpose", "k swap", ("k3",), ("k4",), {"perm": (0, 2, 3, 1)}),
        Node("Transpose", "v swap", ("v3",), ("v4",), {"perm": (0, 2, 1, 3)}),
        Node("MatMul", "scores", ("q1", "k4"), ("s",)),
        Node("Softmax", "softmax", ("s",), ("a",), {"axis": 3}),
        Node("MatMul", "mix", ("a", "v4"), ("o",)),
        Node("Reshape", "o join", ("o",), ("o1",), {"shape": (1, size)}),
        Node("Dense", "out", ("o1",), ("y",), {"weight": rng.normal(0, 0.4, (3, size)), "bias": np.zeros(3)}),
    ]
    past = (1, tokens, size)
    graph = graph_of(nodes, **{"x": (1, size), "ks": past, "vs": past})
    return _with(graph, ["y", "ks next", "vs next"], {"ks": "ks next", "vs": "vs next"})


#: Their results are rounded.
ROUNDED = {
    "GRU": lambda: cell("GRU"),
    "LSTM": lambda: cell("LSTM"),
    "RNN": lambda: cell("RNN", hidden=8),
    "decoder": decoder,
    "decoder with lanes to spare": lambda: decoder(5, 6, 2),
}
