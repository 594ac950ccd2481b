"""Small networks for the compiler, as expressions."""

import numpy as np

from concord.graph.ir import Node
from concord.graph.passes import piecewise
from support.expressions import concat, graph_of, network, tensor


def _weights(rng, *shape):
    return rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape)


def _conv(rng, x, outputs, name, group=1):
    """A convolution of 3 x 3 positions after which the map is as large."""
    weight = _weights(rng, outputs, x.shape[1] // group, 3, 3)
    return x.conv(weight, rng.normal(0, 0.2, outputs), pads=1, group=group, name=name)


def _dense(rng, x, outputs, name):
    return x.dense(_weights(rng, outputs, x.shape[-1]), rng.normal(0, 0.2, outputs), name)


def _normalised(x, scale):
    return x.then("Normalise", axes=(2,), centred=True, epsilon=1e-5, scale=scale, name="norm")


def magnitudes(seed=0):
    """Square roots of sums of squares, and a product."""
    x = tensor(1, 16)
    square = x.combined("Mul", x, name="square")
    root = square[:, :8].combined("Add", square[:, 8:], name="power").function("sqrt", name="root")
    return network(_dense(np.random.default_rng(seed), root, 5, "last"))


def perceptron(*widths, functions=None, seed=0):
    """Products with ReLU in between; ``functions`` are those behind every product, None for none."""
    rng, x = np.random.default_rng(seed), tensor(1, widths[0])
    for k, outputs in enumerate(widths[1:]):
        x = _dense(rng, x, outputs, f"fc{k}")
        function = functions[k] if functions else "relu" if k < len(widths) - 2 else None
        if function == "relu":
            x = x.relu(f"relu{k}")
        elif function is not None:
            x = x.function(function, f"{function}{k}")
    return network(**{f"{x.name}.out": x})


def scaled_functions():
    """Functions in whose place there are tables and arithmetic."""
    x = tensor(1, 6, name="t0")
    for name in ("leaky_relu", "gelu", "elu", "tanh", "softplus"):
        x = x.function(name, name)
    graph = network(t5=x)
    piecewise.run(graph)
    return graph


def residual():
    """Convolution, depthwise convolution, residual sum, pooling, mean, product, sigmoid."""
    rng = np.random.default_rng(1)
    a = _conv(rng, tensor(1, 2, 4, 4), 4, "first").called("a")
    b = a.relu("relu").called("b")
    c = _conv(rng, b, 4, "depthwise", group=4).called("c")
    d = c.combined("Add", b, name="sum").called("d")
    e = d.pool("MaxPool", 2, 2, name="pool").called("e")
    f = e.reduce("Mean", 2, 3, keep=False, name="mean").called("f")
    return network(_dense(rng, f, 5, "dense").called("g").function("sigmoid", "sigmoid"))


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
    rng, x, parts = np.random.default_rng(seed), tensor(1, tokens, width), []
    for name, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        parts.append(_dense(rng, x, width, name).reshape(1, tokens, heads, width // heads).transpose(*perm))
    mixed = _mixed(*parts, (width / heads) ** -0.5)
    joined = mixed.transpose(0, 2, 1, 3).reshape(1, tokens, width)
    y = joined.dense(_weights(rng, width, width), name="out").combined("Add", x, name="sum")
    return network(y.reduce("Mean", 1, keep=False, name="mean"))


def _mixed(queries, keys, values, factor, mask=None):
    """Values, mixed by how keys fit queries."""
    scores = queries.combined("MatMul", keys, name="scores").combined("Mul", factor, name="scale")
    scores = scores if mask is None else scores.combined("Add", mask, name="mask")
    return scores.softmax(3).combined("MatMul", values, name="mix")


def heads(tokens, stack, width, shared=1, mask=None, seed=0):
    """Attention of several heads, ``shared`` of which have the same keys and values."""
    rng, x, parts = np.random.default_rng(seed), tensor(1, tokens, stack * width), []
    for part, count in (("q", stack), ("k", stack // shared), ("v", stack // shared)):
        weight = _weights(rng, count * width, stack * width)
        y = x.dense(weight, rng.normal(0, 0.1, count * width), part).reshape(1, tokens, count, width)
        y = y.transpose(*((0, 2, 3, 1) if part == "k" else (0, 2, 1, 3)))
        if shared > 1 and part != "q":
            size = y.shape[2:]
            y = concat(2, *[y.reshape(1, count, 1, *size)] * shared).reshape(1, stack, *size)
        parts.append(y)
    mixed = _mixed(*parts, 1 / np.sqrt(width), mask)
    return network(mixed.transpose(0, 2, 1, 3).reshape(1, tokens, stack * width))


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
    factors = []
    for name, shape in zip("xz", shapes, strict=True):
        turned = rng.random() < 0.4
        x = tensor(*(shape[axis] for axis in swap) if turned else shape, name=name)
        factors.append(x.transpose(*swap) if turned else x)
    return network(factors[0].combined("MatMul", factors[1], name="product")), inner


def large_windows():
    """Means and maxima over more positions than a window of ``TINY`` has, behind a convolution."""
    a = _conv(np.random.default_rng(4), tensor(1, 2, 1, 67), 4, "conv")
    mean = a.reduce("Mean", 2, 3, name="mean")
    return network(a.pool("MaxPool", (1, 67), name="max").combined("Add", mean, name="sum"))


def grouped_softmax(seen=False):
    """A softmax over two lanes out of four, which a convolution writes apart unless they are ``seen`` as a result."""
    rng = np.random.default_rng(6)
    a = _conv(rng, tensor(1, 3, 2, 3), 4, "conv")
    d = a.reshape(1, 2, 2, 6).softmax(2).reshape(1, 4, 2, 3)
    return network(_conv(rng, d, 2, "last"), **({"a": a} if seen else {}))


def normalised():
    """A layer normalisation over six lanes, two of them in another native vector than the others."""
    rng = np.random.default_rng(7)
    normal = _normalised(tensor(1, 2, 6), rng.normal(1, 0.2, 6))
    return network(normal.combined("Add", rng.normal(0, 0.2, 6), name="bias"))


def graph_convolution(adjacency, *widths, functions=True, seed=8):
    """Graph convolutions ``A X W + b`` of nodes with features; the mean over the nodes at the end."""
    rng, x = np.random.default_rng(seed), tensor(1, len(adjacency), widths[0])
    mix = {"weight": np.asarray(adjacency, float), "bias": np.zeros(len(adjacency)), "fixed": True}
    for k, outputs in enumerate(widths[1:]):
        features = x.dense(_weights(rng, outputs, x.shape[-1]), name=f"features{k}")
        mixed = features.transpose(0, 2, 1).then("Dense", name=f"neighbours{k}", **mix).transpose(0, 2, 1)
        x = mixed.combined("Add", rng.normal(0, 0.2, outputs), name=f"bias{k}")
        x = x.relu(f"relu{k}") if functions else x
    return network(x.reduce("Mean", 1, keep=False, name="mean"))


def group_normalised():
    """Three groups of two channels, over all positions: a native vector of ``TINY`` holds two of them."""
    rng = np.random.default_rng(9)
    image = _normalised(tensor(1, 6, 2, 2).reshape(1, 3, 8), np.ones(())).reshape(1, 6, 2, 2)
    gained = image.combined("Mul", rng.normal(1, 0.2, (6, 1, 1)), name="gain")
    return network(gained.combined("Add", rng.normal(0, 0.2, (6, 1, 1)), name="bias"))


def joined_maps():
    """Maps of two sizes, flattened and joined as a result, as detectors have it."""
    rng, x = np.random.default_rng(10), tensor(1, 2, 4, 4)
    fine = _conv(rng, x, 5, "fine")
    coarse = _conv(rng, x.pool("MaxPool", 2, 2, name="pool"), 5, "coarse")
    return network(concat(2, fine.reshape(1, 5, 16), coarse.reshape(1, 5, 4)))


def exchanged_axes():
    """Channels and rows change places between two convolutions: a copy whose windows take a lane of every row."""
    rng = np.random.default_rng(11)
    first = _conv(rng, tensor(1, 2, 4, 3), 4, "first")
    return network(_conv(rng, first.transpose(0, 2, 1, 3), 3, "last"))
