"""Networks of one convolution or product, ``last``, in every way that its weights are laid out."""

import numpy as np

from concord.graph.ir import Node
from support.compiled_nets import graph_of


def conv(name, x, y, channels, outputs, group=1, kernel=(2, 2)):
    rng = np.random.default_rng(9)
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": group}
    weight = rng.normal(0, 0.5, (outputs, channels // group, *kernel))
    return Node("Conv", name, (x,), (y,), {"weight": weight, "bias": rng.normal(0, 0.2, outputs), **attrs})


def dense(bias=0.1):
    rng = np.random.default_rng(10)
    attrs = {"weight": rng.normal(0, 0.5, (6, 9)), "bias": bias * np.arange(1, 7)}
    return graph_of([Node("Dense", "last", ("x",), ("y",), attrs)], x=(1, 9))


def unfolded():
    return graph_of([conv("last", "x", "y", 2, 6)], x=(1, 2, 3, 3))


def behind(group, outputs):
    """A convolution that does not read the input of the network."""
    relu = Node("Relu", "relu", ("x",), ("a",))
    return lambda: graph_of([relu, conv("last", "a", "y", 6, outputs, group)], x=(1, 6, 3, 3))


def steps():
    """A product at every step of a sequence whose channels are permuted and sliced apart behind it."""
    rng = np.random.default_rng(11)
    attrs = {"weight": rng.normal(0, 0.5, (6, 5)), "bias": rng.normal(0, 0.3, 6)}
    cut = {"axes": (2,), "steps": (1,)}
    return graph_of(
        [
            Node("Transpose", "turn", ("x",), ("t",), {"perm": (0, 2, 1)}),
            Node("Dense", "last", ("t",), ("d",), attrs),
            Node("Slice", "low", ("d",), ("l",), {"starts": (0,), "stops": (3,), **cut}),
            Node("Slice", "high", ("d",), ("h",), {"starts": (3,), "stops": (6,), **cut}),
            Node("Sub", "sum", ("l", "h"), ("y",)),
        ],
        x=(1, 5, 4),
    )


def twice():
    """A product of which every element is two inputs."""
    rng = np.random.default_rng(13)
    attrs = {"weight": rng.normal(0, 0.5, (6, 10)), "bias": rng.normal(0, 0.3, 6)}
    join = Node("Concat", "join", ("x", "x"), ("xx",), {"axis": 1})
    return graph_of([join, Node("Dense", "last", ("xx",), ("y",), attrs)], x=(1, 5))


#: Those whose weights are each in one place.
PRODUCTS = {
    "dense": dense,
    "unfolded": unfolded,
    "conv": behind(1, 5),
    "groups": behind(2, 4),
    "depthwise": behind(6, 6),
    "steps": steps,
}
