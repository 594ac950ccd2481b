"""Small networks for the compiler, as graphs."""

from itertools import pairwise

import numpy as np

from concord.compiler.model import compile_graph
from concord.graph.execute import run
from concord.graph.ir import Graph, Node
from concord.graph.ops import OPS
from concord.graph.passes import piecewise
from concord.networks.calibrated import emulate
from concord.spec.presets import TINY

#: Small vectors, and memory for whatever a test needs.
ROOMY = TINY.replace(narrow_depth=2048, wide_depth=2048, matrix_depth=8192, program_depth=512)


def graph_of(nodes, **inputs):
    """A graph of nodes, whose last output is the output; shapes follow from those of the inputs."""
    shapes = dict(inputs)
    for node in nodes:
        found = OPS[node.op].shape(node, [shapes[name] if name else None for name in node.inputs])
        shapes |= {name: shape for name, shape in zip(node.outputs, found, strict=True) if name}
    outputs = [next(name for name in nodes[-1].outputs if name)]
    batched = {name for name in (*inputs, *outputs) if shapes[name][:1] == (1,)}
    graph = Graph("test", list(nodes), list(inputs), outputs, shapes, batched)
    graph.check()
    return graph


def integers(rng, shape, limit=2):
    return rng.integers(-limit, limit + 1, shape).astype(float)


def check(graph, rng, config=ROOMY, samples=3, limit=2):
    """Compile, run on the emulator and compare; returns the compiled network."""
    inputs = {name: integers(rng, (samples, *graph.sample_shape(name)), limit) for name in graph.inputs}
    want = run(graph, inputs)
    compiled = compile_graph(graph, config)
    got = emulate(compiled, inputs)
    for name, values in want.items():
        np.testing.assert_array_equal(got[name], values)
    return compiled


def _weights(rng, *shape):
    return rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape)


def _conv(rng, name, x, y, weight, group=1):
    geometry = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": group}
    return Node("Conv", name, (x,), (y,), {"weight": weight, "bias": rng.normal(0, 0.2, len(weight)), **geometry})


def magnitudes(seed=0):
    """Square roots of sums of squares, and a product."""
    rng = np.random.default_rng(seed)
    return graph_of(
        [
            Node("Mul", "square", ("x", "x"), ("a",)),
            Node("Slice", "low", ("a",), ("l",), {"axes": (1,), "starts": (0,), "stops": (8,), "steps": (1,)}),
            Node("Slice", "high", ("a",), ("h",), {"axes": (1,), "starts": (8,), "stops": (16,), "steps": (1,)}),
            Node("Add", "power", ("l", "h"), ("p",)),
            Node("Function", "root", ("p",), ("r",), {"functions": (("sqrt", {}),)}),
            Node("Dense", "last", ("r",), ("y",), {"weight": _weights(rng, 5, 8), "bias": rng.normal(0, 0.2, 5)}),
        ],
        x=(1, 16),
    )


def perceptron(*widths, functions=None, seed=0):
    """Products with ReLU in between; ``functions`` are those behind every product, None for none."""
    rng = np.random.default_rng(seed)
    nodes, value = [], "x"
    for k, (inputs, outputs) in enumerate(pairwise(widths)):
        attrs = {"weight": _weights(rng, outputs, inputs), "bias": rng.normal(0, 0.2, outputs)}
        nodes.append(Node("Dense", f"fc{k}", (value,), (f"fc{k}.out",), attrs))
        function = functions[k] if functions else "relu" if k < len(widths) - 2 else None
        if function == "relu":
            nodes.append(Node("Relu", f"relu{k}", (f"fc{k}.out",), (f"relu{k}.out",)))
        elif function is not None:
            attrs = {"functions": ((function, {}),)}
            nodes.append(Node("Function", f"{function}{k}", (f"fc{k}.out",), (f"{function}{k}.out",), attrs))
        value = nodes[-1].outputs[0]
    return graph_of(nodes, x=(1, widths[0]))


def scaled_functions():
    """Functions in whose place there are tables and arithmetic."""
    names = ("leaky_relu", "gelu", "elu", "tanh", "softplus")
    nodes = [
        Node("Function", name, (f"t{k}",), (f"t{k + 1}",), {"functions": ((name, {}),)}) for k, name in enumerate(names)
    ]
    graph = graph_of(nodes, t0=(1, 6))
    piecewise.run(graph)
    return graph


def residual():
    """Convolution, depthwise convolution, residual sum, pooling, mean, product, sigmoid."""
    rng = np.random.default_rng(1)
    pool = {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    return graph_of(
        [
            _conv(rng, "first", "x", "a", _weights(rng, 4, 2, 3, 3)),
            Node("Relu", "relu", ("a",), ("b",)),
            _conv(rng, "depthwise", "b", "c", _weights(rng, 4, 1, 3, 3), group=4),
            Node("Add", "sum", ("c", "b"), ("d",)),
            Node("MaxPool", "pool", ("d",), ("e",), pool),
            Node("ReduceMean", "mean", ("e",), ("f",), {"axes": (2, 3), "keepdims": False}),
            Node("Dense", "dense", ("f",), ("g",), {"weight": _weights(rng, 5, 4), "bias": rng.normal(0, 0.2, 5)}),
            Node("Function", "sigmoid", ("g",), ("y",), {"functions": (("sigmoid", {}),)}),
        ],
        x=(1, 2, 4, 4),
    )


def recurrent(op, hidden, features, steps, seed=2, direction="forward", sequence=True, **attrs):
    """A recurrent layer with random weights, all steps or the last state as its output."""
    rng = np.random.default_rng(seed)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    count = 2 if direction == "bidirectional" else 1
    names = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}[op]
    full = {
        "W": rng.normal(0, 1 / np.sqrt(features), (count, gates * hidden, features)),
        "R": rng.normal(0, 1 / np.sqrt(hidden), (count, gates * hidden, hidden)),
        "B": rng.normal(0, 0.3, (count, 2 * gates * hidden)),
        "hidden_size": hidden,
        "direction": direction,
        "activations": (names,) * count,
        "activation_parameters": (({},) * len(names),) * count,
        "clip": None,
        "initial_h": None,
        **({"P": None, "initial_c": None, "input_forget": False} if op == "LSTM" else {}),
        **({"linear_before_reset": True} if op == "GRU" else {}),
        **attrs,
    }
    outputs = ["y" if sequence else "", "" if sequence else "y", *([""] if op == "LSTM" else [])]
    return graph_of([Node(op, "cell", ("x",), tuple(outputs), full)], x=(steps, 1, features))


def gru():
    """A GRU over three steps."""
    return recurrent("GRU", 5, 3, 3)


def attention(tokens=3, heads=2, width=4, seed=3):
    """Self-attention over rows of features with a residual sum, and the mean over all tokens."""
    rng = np.random.default_rng(seed)
    split = {"shape": (1, tokens, heads, width // heads)}
    nodes = []
    for name, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        attrs = {"weight": _weights(rng, width, width), "bias": rng.normal(0, 0.2, width)}
        nodes += [
            Node("Dense", name, ("x",), (f"{name}1",), attrs),
            Node("Reshape", f"{name}/split", (f"{name}1",), (f"{name}2",), split),
            Node("Transpose", f"{name}/turn", (f"{name}2",), (f"{name}3",), {"perm": perm}),
        ]
    return graph_of(
        [
            *nodes,
            Node("MatMul", "scores", ("q3", "k3"), ("s",)),
            Node("Mul", "scale", ("s",), ("t",), {"constant": np.asarray((width / heads) ** -0.5)}),
            Node("Softmax", "softmax", ("t",), ("p",), {"axis": 3}),
            Node("MatMul", "mix", ("p", "v3"), ("o",)),
            Node("Transpose", "back", ("o",), ("o1",), {"perm": (0, 2, 1, 3)}),
            Node("Reshape", "join", ("o1",), ("o2",), {"shape": (1, tokens, width)}),
            Node("Dense", "out", ("o2",), ("r",), {"weight": _weights(rng, width, width), "bias": np.zeros(width)}),
            Node("Add", "sum", ("r", "x"), ("z",)),
            Node("ReduceMean", "mean", ("z",), ("y",), {"axes": (1,), "keepdims": False}),
        ],
        x=(1, tokens, width),
    )


def heads(tokens, stack, width, shared=1, mask=None, seed=0):
    """Attention of several heads, ``shared`` of which have the same keys and values."""
    rng = np.random.default_rng(seed)
    nodes, names = [], {}
    for part, count in (("q", stack), ("k", stack // shared), ("v", stack // shared)):
        weight = rng.normal(0, 1 / np.sqrt(stack * width), (count * width, stack * width))
        nodes += [
            Node("Dense", part, ("x",), (f"{part}0",), {"weight": weight, "bias": rng.normal(0, 0.1, count * width)}),
            Node("Reshape", f"{part}1", (f"{part}0",), (f"{part}1",), {"shape": (1, tokens, count, width)}),
            Node(
                "Transpose", f"{part}2", (f"{part}1",), (f"{part}2",),
                {"perm": (0, 2, 3, 1) if part == "k" else (0, 2, 1, 3)},
            ),
        ]  # fmt: skip
        names[part] = f"{part}2"
        if shared > 1 and part != "q":
            size = (width, tokens) if part == "k" else (tokens, width)
            nodes += [
                Node("Reshape", f"{part}3", (f"{part}2",), (f"{part}3",), {"shape": (1, count, 1, *size)}),
                Node("Concat", f"{part}4", (f"{part}3",) * shared, (f"{part}4",), {"axis": 2}),
                Node("Reshape", f"{part}5", (f"{part}4",), (f"{part}5",), {"shape": (1, stack, *size)}),
            ]
            names[part] = f"{part}5"
    nodes += [
        Node("MatMul", "scores", (names["q"], names["k"]), ("s",)),
        Node("Mul", "scale", ("s",), ("scaled",), {"constant": np.asarray(1 / np.sqrt(width))}),
        *([] if mask is None else [Node("Add", "mask", ("scaled",), ("masked",), {"constant": mask})]),
        Node("Softmax", "softmax", ("scaled" if mask is None else "masked",), ("a",), {"axis": 3}),
        Node("MatMul", "mix", ("a", names["v"]), ("o",)),
        Node("Transpose", "turn", ("o",), ("o1",), {"perm": (0, 2, 1, 3)}),
        Node("Reshape", "join", ("o1",), ("y",), {"shape": (1, tokens, stack * width)}),
    ]
    return graph_of(nodes, x=(1, tokens, stack * width))


def random_product(rng, most):
    """A product of two inputs with random batch axes and sizes up to ``most``, and the length of the axis it sums.

    The second input may be broadcast, and either may be transposed in front of the product.
    """
    batch = tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 3)))
    rows, columns, inner = (int(n) for n in rng.integers(1, most + 1, 3))
    swap = (*range(len(batch)), len(batch) + 1, len(batch))
    shapes = [(*batch, rows, inner), (*batch, inner, columns)]
    if batch and rng.random() < 0.3:
        shapes[1] = (1,) * len(batch) + shapes[1][-2:]
    nodes, names = [], ["x", "z"]
    for k in range(2):
        if rng.random() < 0.4:
            nodes.append(Node("Transpose", f"turn{k}", (names[k],), (f"t{k}",), {"perm": swap}))
            names[k], shapes[k] = f"t{k}", tuple(shapes[k][axis] for axis in swap)
    nodes.append(Node("MatMul", "product", tuple(names), ("y",)))
    return graph_of(nodes, x=shapes[0], z=shapes[1]), inner


def large_windows():
    """Means and maxima over more positions than a window of ``TINY`` has, behind a convolution."""
    rng = np.random.default_rng(4)
    ones = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
    return graph_of(
        [
            _conv(rng, "conv", "x", "a", _weights(rng, 4, 2, 3, 3)),
            Node("ReduceMean", "mean", ("a",), ("b",), {"axes": (2, 3), "keepdims": True}),
            Node("MaxPool", "max", ("a",), ("c",), {"kernel": (1, 67), **ones}),
            Node("Add", "sum", ("c", "b"), ("y",)),
        ],
        x=(1, 2, 1, 67),
    )


def grouped_softmax(seen=False):
    """A softmax over two lanes out of four, which a convolution writes apart unless they are ``seen`` as a result."""
    rng = np.random.default_rng(6)
    graph = graph_of(
        [
            _conv(rng, "conv", "x", "a", _weights(rng, 4, 3, 3, 3)),
            Node("Reshape", "groups", ("a",), ("b",), {"shape": (1, 2, 2, 6)}),
            Node("Softmax", "softmax", ("b",), ("c",), {"axis": 2}),
            Node("Reshape", "channels", ("c",), ("d",), {"shape": (1, 4, 2, 3)}),
            _conv(rng, "last", "d", "y", _weights(rng, 2, 4, 3, 3)),
        ],
        x=(1, 3, 2, 3),
    )
    if seen:
        graph.outputs.append("a")
        graph.batched.add("a")
    return graph


def normalised():
    """A layer normalisation over six lanes, two of them in another native vector than the others."""
    rng = np.random.default_rng(7)
    attrs = {"axes": (2,), "centred": True, "epsilon": 1e-5, "scale": rng.normal(1, 0.2, 6)}
    return graph_of(
        [
            Node("Normalise", "norm", ("x",), ("n",), attrs),
            Node("Add", "bias", ("n",), ("y",), {"constant": rng.normal(0, 0.2, 6)}),
        ],
        x=(1, 2, 6),
    )


def graph_convolution(adjacency, *widths, functions=True, seed=8):
    """Graph convolutions ``A X W + b`` of nodes with features; the mean over the nodes at the end."""
    rng, nodes, last = np.random.default_rng(seed), [], "x"
    size = len(adjacency)
    fixed = {"weight": np.asarray(adjacency, float), "bias": np.zeros(size), "fixed": True}
    for k, (inputs, outputs) in enumerate(pairwise(widths)):
        attrs = {"weight": _weights(rng, outputs, inputs), "bias": np.zeros(outputs)}
        nodes.append(Node("Dense", f"features{k}", (last,), (f"f{k}",), attrs))
        nodes += around(Node("Dense", f"neighbours{k}", (f"f{k}",), (f"n{k}",), fixed))
        nodes.append(Node("Add", f"bias{k}", (f"n{k}",), (f"b{k}",), {"constant": rng.normal(0, 0.2, outputs)}))
        last = f"b{k}"
        if functions:
            nodes.append(Node("Relu", f"relu{k}", (last,), (f"r{k}",)))
            last = f"r{k}"
    nodes.append(Node("ReduceMean", "mean", (last,), ("y",), {"axes": (1,), "keepdims": False}))
    return graph_of(nodes, x=(1, size, widths[0]))


def around(node, perm=(0, 2, 1)):
    """A product with its last two axes exchanged before and behind it."""
    (x,), (y,), name = node.inputs, node.outputs, node.name
    turned = [f"{name}.{what}" for what in ("turned", "back")]
    middle = node.replace(inputs=(turned[0],), outputs=(f"{name}.product",))
    return [
        Node("Transpose", turned[0], (x,), (turned[0],), {"perm": perm}), middle,
        Node("Transpose", turned[1], middle.outputs, (y,), {"perm": perm}),
    ]  # fmt: skip


def group_normalised():
    """Three groups of two channels, over all positions: a native vector of ``TINY`` holds two of them."""
    rng = np.random.default_rng(9)
    shapes = {"groups": (1, 3, 8), "image": (1, 6, 2, 2)}
    attrs = {"axes": (2,), "centred": True, "epsilon": 1e-5, "scale": np.ones(())}
    return graph_of(
        [
            Node("Reshape", "groups", ("x",), ("g",), {"shape": shapes["groups"]}),
            Node("Normalise", "norm", ("g",), ("n",), attrs),
            Node("Reshape", "image", ("n",), ("i",), {"shape": shapes["image"]}),
            Node("Mul", "gain", ("i",), ("m",), {"constant": rng.normal(1, 0.2, (6, 1, 1))}),
            Node("Add", "bias", ("m",), ("y",), {"constant": rng.normal(0, 0.2, (6, 1, 1))}),
        ],
        x=shapes["image"],
    )


def joined_maps():
    """Maps of two sizes, flattened and joined as a result, as detectors have it."""
    rng = np.random.default_rng(10)
    pool = {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    return graph_of(
        [
            _conv(rng, "fine", "x", "a", _weights(rng, 5, 2, 3, 3)),
            Node("MaxPool", "pool", ("x",), ("p",), pool),
            _conv(rng, "coarse", "p", "b", _weights(rng, 5, 2, 3, 3)),
            Node("Reshape", "fine places", ("a",), ("c",), {"shape": (1, 5, 16)}),
            Node("Reshape", "coarse places", ("b",), ("d",), {"shape": (1, 5, 4)}),
            Node("Concat", "places", ("c", "d"), ("y",), {"axis": 2}),
        ],
        x=(1, 2, 4, 4),
    )


def exchanged_axes():
    """Channels and rows change places between two convolutions: a copy whose windows take a lane of every row."""
    rng = np.random.default_rng(11)
    return graph_of(
        [
            _conv(rng, "first", "x", "a", _weights(rng, 4, 2, 3, 3)),
            Node("Transpose", "turn", ("a",), ("b",), {"perm": (0, 2, 1, 3)}),
            _conv(rng, "last", "b", "y", _weights(rng, 3, 4, 3, 3)),
        ],
        x=(1, 2, 4, 3),
    )
