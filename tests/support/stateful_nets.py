"""Networks with states, by name: small ones whose results are exact for whole numbers, and cells."""

import numpy as np

from concord.frontend import import_model
from concord.graph.states import with_states
from support.expressions import concat, network, tensor
from support.onnx_expressions import given, model_of, op


def _fc(x, size=3, seed=3):
    """A product with whole numbers."""
    return x.dense(np.random.default_rng(seed).integers(-2, 3, (size, x.shape[-1])).astype(float), name="fc")


def window(count=5, size=8, oldest_first=True, computed=False):
    """Keeps the last vectors, and multiplies each by a matrix; new ones come in at the end or at the beginning.

    What is ``computed`` is a tensor that is there before the window is.
    """
    x, past = tensor(1, 1, size), tensor(1, count, size, name="past")
    new = x + x if computed else x
    joined = concat(1, past[:, 1:], new) if oldest_first else concat(1, new, past[:, :-1])
    return with_states(network(y=_fc(joined), next=joined), {"past": "next"})


def integrator(size=6):
    """A sum of all inputs so far, in front of a product."""
    x, total = tensor(1, size), tensor(1, size, name="sum")
    new = total + x
    return with_states(network(y=_fc(new, 4), next=new), {"sum": "next"})


def before(size=6):
    """A sum, and a product with what it was before."""
    x, total = tensor(1, size), tensor(1, size, name="sum")
    new = total + x
    return with_states(network(next=new, y=_fc(total, 4)), {"sum": "next"})


def delays(size=4):
    """A delay by one run and another one by two."""
    x, a, b = (tensor(1, size, name=name) for name in "xab")
    y = _fc(a + b + x)
    return with_states(network(y=y, a2=b.reshape(1, size), b2=x.reshape(1, size)), {"a": "a2", "b": "b2"})


def exchange(size=4):
    """Two states that become each other, but for a vector that comes in."""
    x, a, b = tensor(1, 1, size), tensor(1, 2, size, name="a"), tensor(1, 2, size, name="b")
    y = a + b
    new = concat(1, b[:, :1], x)
    return with_states(network(a2=new, b2=a.reshape(1, 2, size), y=_fc(y)), {"a": "a2", "b": "b2"})


def seen(new=False, count=3, size=4):
    """An output that is part of a window, as it was or as it is then."""
    x, past = tensor(1, 1, size), tensor(1, count, size, name="past")
    joined = concat(1, past[:, 1:], x)
    first = (joined if new else past)[:, :1]
    return with_states(network(first=first, next=joined, y=_fc(x)), {"past": "next"})


def stream(taps=3, channels=4):
    """A convolution over time whose window moves by two steps in a run."""
    weight = np.random.default_rng(4).integers(-2, 3, (5, channels, 1, taps)).astype(float)
    x, past = tensor(1, channels, 1, 2), tensor(1, channels, 1, taps - 1, name="past")
    line = concat(3, past, x)
    kept = line[:, :, :, 2:]
    return with_states(network(y=line.conv(weight), next=kept), {"past": "next"})


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
    past = given(1, size, name="past")
    less = op.Sub(past, middle, name="less") if middle else past
    y = op.MatMul(less, rng.normal(size=(size, 4)) / powers[:, None], name="read")
    return model_of(y=y, next=op.MatMul(given(1, size), rng.normal(size=(size, size)) * powers, name="write"))


def line_model():
    """A convolution of a line of four channels that alone reads it, and that the run before has computed."""
    x, past = given(1, 4, 6), given(1, 4, 6, name="past")
    new = op.Add(x, x, name="twice")
    return model_of(y=_of_line(past), next=new)


def moving_line_model():
    """A convolution of a line that moves by a step in a run; channels come in as positions, and lie in lanes there."""
    x, past = given(1, 4, 1), given(1, 4, 6, name="past")
    new = op.Concat(op.Slice(past, [1], [6], [2], name="old"), x, axis=2, name="join")
    return model_of(y=_of_line(past), next=new)


def _of_line(past):
    weight = np.random.default_rng(8).normal(size=(3, 4, 3))
    return op.Conv(past, weight, np.ones(3), kernel_shape=[3], name="conv")


def cell_model(kind, size=6, hidden=5):
    """A step of a recurrent cell whose state goes in and comes out."""
    rng, gates = np.random.default_rng(5), {"GRU": 3, "LSTM": 4, "RNN": 1}[kind]
    shapes = {(1, gates * hidden, size): 0.5, (1, gates * hidden, hidden): 0.5, (1, 2 * gates * hidden): 0.2}
    weights = [rng.normal(0, size, shape) for shape, size in shapes.items()]
    x, states = given(1, 1, size), CELL_STATES[kind]
    old = [given(1, 1, hidden, name=name) for name in states]
    _, *new = getattr(op, kind)(x, *weights, None, *old, hidden_size=hidden, outputs=1 + len(states), name=kind)
    return model_of(y=op.Squeeze(new[0], [0], name="squeeze"), **dict(zip(states.values(), new, strict=True)))


CELL_STATES = {"GRU": {"h": "h2"}, "RNN": {"h": "h2"}, "LSTM": {"h": "h2", "c": "c2"}}


def cell(kind, size=6, hidden=5):
    """The network of :func:`cell_model`."""
    return with_states(import_model(cell_model(kind, size, hidden)), CELL_STATES[kind])


def decoder(tokens=6, size=8, heads=2):
    """Attention of one token to those before it: keys and values are kept."""
    rng, width = np.random.default_rng(6), size // heads
    x = tensor(1, size)
    kept = {name: tensor(1, tokens, size, name=f"{name}s") for name in "kv"}
    parts = {}
    for part in "qkv":
        weight = rng.normal(0, 1 / np.sqrt(size), (size, size))
        parts[part] = x.dense(weight, rng.normal(0, 0.1, size), name=part)
    new = {name: concat(1, old[:, 1:], parts[name].reshape(1, 1, size)) for name, old in kept.items()}
    heads_of = {name: one.reshape(1, tokens, heads, width) for name, one in new.items()}
    q, k = parts["q"].reshape(1, heads, 1, width), heads_of["k"].transpose(0, 2, 3, 1)
    mix = (q @ k).softmax(3) @ heads_of["v"].transpose(0, 2, 1, 3)
    y = mix.reshape(1, size).dense(rng.normal(0, 0.4, (3, size)), name="out")
    states = {"ks": "ks next", "vs": "vs next"}
    return with_states(network(y=y, **{f"{name}s next": one for name, one in new.items()}), states)


#: Their results are rounded.
ROUNDED = {
    "GRU": lambda: cell("GRU"),
    "LSTM": lambda: cell("LSTM"),
    "RNN": lambda: cell("RNN", hidden=8),
    "decoder": decoder,
    "decoder with lanes to spare": lambda: decoder(5, 6, 2),
}
