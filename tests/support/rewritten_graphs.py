"""Small graphs, drawn at random, to which a rewrite rule applies: a generator for each rule."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from concord.compiler.ir.tensor_formats import Formats
from concord.functions import FUNCTIONS
from concord.golden.codes import CodeRange, Codes
from concord.graph.channels import FIXED, channels
from concord.graph.equalised import ChannelScale
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.passes.functions import GATE


class Drawn:
    """A graph whose structure Hypothesis draws; numbers are those of a generator with a drawn seed.

    Parameters
    ----------
    draw : callable
        Of ``st.data()``.
    near : bool
        Whether the rule may only nearly apply.
    """

    def __init__(self, draw, near=False):
        self.draw, self.near = draw, near
        self.rng = np.random.default_rng(self.count(0, 2**32 - 1))
        self.nodes, self.shapes, self.inputs = [], {}, []
        #: Samples by input.
        self.x = {}
        #: Number of nodes that a rule must leave, if that is known.
        self.left = None

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def usual(self, first, *odd):
        """What the rule is for, or something else if it may only nearly apply."""
        return self.pick(first, *odd) if self.near else first

    def count(self, low, high):
        return self.draw(st.integers(low, high))

    def order(self, items):
        return tuple(self.draw(st.permutations(list(items))))

    def shape(self, least=1, most=4):
        """Axes of 1 to 4 elements."""
        return tuple(self.draw(st.lists(st.integers(1, 4), min_size=least, max_size=most)))

    def numbers(self, *shape):
        """Numbers of a few bits, so that sums of products are exact; zeros, ones and equal ones among them."""
        kind, scale = self.pick("any", "any", "signs", "equal"), 2.0 ** self.count(-3, 3)
        if kind == "equal":
            return np.full(shape, self.count(-1, 2) * scale)
        values = self.rng.integers(-8, 9, shape) if kind == "any" else self.rng.integers(-1, 2, shape)
        return np.asarray(values * scale)

    def input(self, shape, values=None):
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.shapes[name] = tuple(shape)
        self.x[name] = self.numbers(3, *shape) if values is None else values
        return name

    def add(self, op, *inputs, **attrs):
        name = f"{op.lower()}{len(self.nodes)}"
        node = Node(op, name, inputs, (name,), attrs)
        (self.shapes[name],) = operator_of(node).shape(node, [self.shapes[tensor] for tensor in inputs])
        self.nodes.append(node)
        return name

    def function(self, x, *names, **parameters):
        return self.add("Function", x, functions=tuple((name, parameters) for name in names))

    def graph(self, *outputs, **fields):
        """The graph of all nodes; each tensor that no node reads is an output, unless there are others."""
        read = {name for node in self.nodes for name in node.inputs}
        ends = [node.outputs[0] for node in self.nodes if node.outputs[0] not in read]
        return Graph("drawn", list(self.nodes), self.inputs, list(outputs or ends), dict(self.shapes), **fields)

    def part(self, shape, grows=False):
        """A shape that is broadcast to another one, or with it to one of more axes."""
        sizes = tuple(self.pick(1, size) for size in shape)[self.count(0, len(shape)) :]
        if grows and self.pick(False, False, True):
            return (*self.shape(1, 1), *[1] * (len(shape) - len(sizes)), *sizes)
        return sizes

    def reshaped(self, shape):
        """Another shape of as many elements."""
        n = math.prod(shape)
        first = self.pick(*(k for k in range(1, n + 1) if n % k == 0))
        return self.order(self.pick((n,), (first, n // first), (1, n), (1, first, 1, n // first), shape))

    def conv(self, x, outputs=None):
        """A convolution of ``[1, channels, *spatial]``, in groups unless ``outputs`` channels are wanted."""
        shape = self.shapes[x]
        spatial = shape[2:]
        group = 1 if outputs else self.pick(*(k for k in (1, 2, 3) if shape[1] % k == 0))
        pads = tuple(self.count(0, 2) for _ in range(2 * len(spatial)))
        kernel, dilations = [], []
        for axis, size in enumerate(spatial):
            room = size + pads[axis] + pads[axis + len(spatial)]
            kernel.append(self.count(1, min(3, room)))
            dilations.append(self.count(1, 2) if 2 * (kernel[-1] - 1) < room else 1)
        outputs = outputs or group * self.count(1, 2)
        return self.add(
            "Conv", x, weight=self.numbers(outputs, shape[1] // group, *kernel), bias=self.numbers(outputs),
            strides=tuple(self.count(1, 2) for _ in spatial), pads=pads, dilations=tuple(dilations), group=group,
        )  # fmt: skip

    def dense(self, x, outputs=None, **attrs):
        outputs = outputs or self.count(1, 4)
        return self.add(
            "Dense", x, weight=self.numbers(outputs, self.shapes[x][-1]), bias=self.numbers(outputs), **attrs
        )

    def image(self, least=1):
        return (1, self.count(1, 4), *(self.count(least, 5) for _ in range(self.count(1, 2))))

    def product(self):
        """A Dense or a Conv of an input, and the axis of its channels."""
        if self.pick(True, False):
            y = self.dense(self.input(self.shape()))
            return y, len(self.shapes[y]) - 1
        return self.conv(self.input(self.image())), 1


# Passes after import -----------------------------------------------------------------------------


def order(b):
    """Two outputs, the second one listed first."""
    x = b.input(b.shape())
    second = b.add("Mul", x, constant=b.numbers())
    first = b.add("Add", b.add("Relu", x), x) if b.pick(True, False) else b.add("Relu", x)
    return b.graph(first, b.add("Sub", second, x), second) if b.pick(True, False) else b.graph(first, second)


def dead(b):
    x = b.input(b.shape())
    y = b.add("Relu", x)
    for _ in range(b.count(1, 3)):
        b.add(b.pick("Add", "Max"), b.pick(x, y), y)
    b.left = 1
    return b.graph(y)


def codes(b, bits=8, **fixed):
    """Codes with a scale that is a power of two, and zero among them."""
    signed = b.pick(True, False)
    least = -(1 << bits - 1) if signed else 0
    zero = b.pick(least, least + (1 << bits - 1), b.count(least, least + (1 << bits) - 1))
    return Codes(bits, 2.0 ** b.count(-4, 2), zero, CodeRange.of(signed))


def fake_quantize(b):
    """Codes that are rounded to themselves: only a lower end of zero changes them, as a Relu does."""
    chosen = codes(b)
    if b.pick(False, True):
        chosen = b.pick(
            Codes(8, 2.0**-3, 0, CodeRange.UNSIGNED),
            Codes(8, 3 * 2.0**-7, 0, CodeRange.UNSIGNED),  # of a ReLU6
        )
    low, high = (int(end) for end in chosen.offsets)
    least = low or -high
    shape = b.shape()
    x = b.input(shape, b.rng.integers(least, high + 1, (3, *shape)) * float(chosen.scale))
    y = b.add("Mul", b.add("Mul", x, constant=np.asarray(-1.0)), constant=np.asarray(-1.0))
    for _ in range(b.count(0, 2)):
        y = b.add("Reshape", y, shape=b.reshaped(b.shapes[y]))
        if b.pick(True, False):
            y = b.add("FakeQuantize", y, quantization=chosen)
    y = b.add("FakeQuantize", y, quantization=chosen)
    if b.pick(True, False):
        y = b.add("Concat", y, y, axis=0)
    return b.graph(b.add("Mul", y, constant=b.numbers()))


def nothing(b, x):
    """A node whose result is its input."""
    shape = b.shapes[x]
    axis = b.count(0, len(shape) - 1)
    op, attrs = b.pick(
        ("Reshape", {"shape": shape}),
        ("Transpose", {"perm": tuple(range(len(shape)))}),
        ("Slice", {"axes": (axis,), "starts": (0,), "stops": (shape[axis],), "steps": (1,)}),
        ("Concat", {"axis": axis}),
        ("Pad", {"pads": (0,) * 2 * len(shape), "mode": b.pick("constant", "edge", "reflect"), "value": 1.0}),
        ("Pick", {"axis": axis, "indices": tuple(range(shape[axis]))}),
    )
    return b.add(op, x, **attrs)


def noops(b):
    """Nodes that do nothing, of which one may be the first or the last; and some that only move elements."""
    x = b.input(b.shape())
    y = nothing(b, x)
    y = b.add("Mul", y, constant=b.numbers())
    b.left = 1
    for _ in range(b.count(0, 2)):
        axes = range(len(b.shapes[y]))
        perm = b.order(axes)
        b.left += perm != tuple(axes)
        y = b.add("Transpose", nothing(b, y) if b.pick(True, False) else y, perm=perm)
    size, rank = b.shapes[y][0], len(b.shapes[y])
    step = b.usual("", "picked", "mirrored", "padded", "shaped")
    if step == "picked":
        y = b.add("Pick", y, axis=0, indices=tuple(b.count(0, size - 1) for _ in range(size)))
    elif step == "mirrored":
        y = b.add("Slice", y, axes=(0,), starts=(size - 1,), stops=(-1,), steps=(-1,))
    elif step == "padded":
        y = b.add("Pad", y, pads=tuple(b.count(0, 1) for _ in range(2 * rank)), mode="constant", value=0.0)
    elif step == "shaped":
        y = b.add("Reshape", y, shape=b.reshaped(b.shapes[y]))
    if b.pick(True, False):
        y, b.left = b.add("Relu", y), b.left + 1
    return b.graph(y)


def reshapes(b):
    """Two of a kind in a row, with others around them."""
    y = b.input(b.shape())
    moves = st.sampled_from(["Reshape", "Transpose"])
    for op in [b.draw(moves)] * 2 + b.draw(st.lists(moves, max_size=4)):
        shape = b.shapes[y]
        attrs = {"shape": b.reshaped(shape)} if op == "Reshape" else {"perm": b.order(range(len(shape)))}
        y = b.add(op, y, **attrs)
    b.left = None if any(node.op == "Transpose" for node in b.nodes) else 1
    return b.graph(y)


def uneven_windows(b):
    """Windows that are picked tap by tap, those that are shorter with zeros, and the reciprocals of their sizes."""
    spatial = tuple(b.count(2, 5) for _ in range(b.count(1, 2)))
    shape = (1, b.count(1, 2), *spatial)
    starts, sizes = [], []
    for size in spatial:
        count = b.count(1, 3)
        starts.append([b.count(0, size - 2) for _ in range(count)])
        sizes.append([b.count(2, size - start) for start in starts[-1]])
    x, total = b.input(shape), ""
    for tap in np.ndindex(*(max(part) for part in sizes)):
        y = x
        for axis, k in enumerate(tap):
            far = spatial[axis] - 1
            indices = tuple(min(start + k, far) * b.usual(1, 0) for start in starts[axis])
            y = b.add("Pick", y, axis=2 + axis, indices=indices)
            there = np.array([float(k < size) for size in sizes[axis]])
            y = b.add("Mul", y, constant=there.reshape(-1, *[1] * (len(spatial) - 1 - axis)))
        total = b.add("Add", total, y) if total else y
    areas = np.ones(())
    for part in sizes:
        areas = np.multiply.outer(areas, np.array(part, float))
    areas.reshape(-1)[0] *= b.usual(1, 2)
    return b.graph(b.add("Mul", total, constant=1 / areas))


def gelu(b):
    shape = b.shape()
    x = b.input(shape)
    x = b.add("Mul", x, constant=b.numbers()) if b.pick(True, False) else x
    b.left = 1 + len(b.nodes)

    def number(value):
        axes = b.usual(b.count(0, len(shape)), len(shape) + 1)
        return np.full((1,) * axes, value * b.usual(1, 1, 2))

    erf = b.function(b.add("Mul", x, constant=number(math.sqrt(0.5))), "erf")
    y, form = b.add("Add", erf, constant=number(1.0)), b.pick("half first", "half last", "half of x")
    if form == "half first":
        y = b.add("Mul", y, constant=number(0.5))
    factor = b.usual(x, b.add("Relu", x), y) if b.near else x
    factor = b.add("Mul", factor, constant=number(0.5)) if form == "half of x" else factor
    y = b.add("Mul", *b.order((factor, y)))
    return b.graph(b.add("Mul", y, constant=number(0.5)) if form == "half last" else y)


def fold_affine(b):
    y, axis = b.product()
    b.left = 1
    for _ in range(b.count(1, 3)):
        shape = b.shapes[y]
        sizes = b.pick((), (1,), tuple(size if k == axis else 1 for k, size in enumerate(shape))[b.count(0, axis) :])
        sizes = b.usual(sizes, b.part(shape, grows=True)) if b.near else sizes
        op, attrs = b.pick(("Add", {}), ("Sub", {}), ("Sub", {"reversed": True}), ("Mul", {}))
        y = b.add(op, y, constant=b.numbers(*sizes), **attrs)
    return b.graph(y)


def fold_pad(b):
    x = b.input(b.image())
    rank = len(b.shapes[x])
    pads = tuple(0 if k % rank < b.usual(2, 1) else b.count(0, 2) for k in range(2 * rank))
    y = b.add("Pad", x, pads=pads, mode=b.usual("constant", "edge"), value=b.usual(0.0, 1.0))
    b.left = b.count(1, 2)
    for _ in range(b.left):
        b.conv(b.usual(y, b.add("Relu", y)) if b.near else y)
    return b.graph()


#: Functions that share a table with others.
PLAIN = sorted(name for name, each in FUNCTIONS.items() if not each.decomposed)


def functions(b):
    b.left, shape = 1, b.shape()
    y = b.input(shape, b.rng.integers(1, 64, (3, *shape)) / 8)
    chain = b.pick(GATE, ("sqrt", "reciprocal"), tuple(b.pick(*PLAIN) for _ in range(b.count(2, 3))))
    if FUNCTIONS[chain[0]].pole:
        chain = ("sigmoid", *chain[1:])
    for name in chain:
        y = b.function(y, b.usual(name, "tanh", "silu", "reciprocal"))
    return b.graph(y)


def normalisations(b):
    b.left, shape = 1, b.shape()
    x = b.input(shape)
    axes = tuple(sorted(b.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    y = b.add("Sub", x, b.add("ReduceMean", x, axes=axes, keepdims=True)) if b.pick(True, False) else x
    square = b.add("Mul", y, b.usual(y, x))
    variance = b.add(b.usual("ReduceMean", "ReduceSum"), square, axes=b.usual(axes, axes[:1]), keepdims=True)
    epsilon = np.full((1,) * b.count(0, len(shape) + b.usual(0, 1)), 2.0 ** -b.count(0, 10))
    shifted = b.add("Add", variance, constant=epsilon)
    root = b.function(shifted, "rsqrt") if b.pick(True, False) else b.function(shifted, "sqrt", "reciprocal")
    y = b.add("Mul", *b.order((b.usual(y, x), root)))
    return b.graph(b.add("Mul", y, constant=b.numbers(*b.part(shape))) if b.pick(True, False) else y)


def offsets(b):
    b.left, y = 1, b.input(b.shape())
    for _ in range(b.count(2, 3)):
        y = b.add(b.usual("Add", "Sub", "Mul"), y, constant=b.numbers(*b.part(b.shapes[y], grows=True)))
        y = b.usual(y, b.add("Add", y, y)) if b.near else y
    return b.graph(y)


def centring(b):
    """A sum of products and of constants, moved, for normalisations."""
    kind, width = b.pick("Dense", "Dense", "Conv", "Lookup"), b.count(2, 4)
    if kind == "Dense":
        x = b.input(b.shape(1, 3))
        y, axis = b.dense(x, width, fixed=b.usual(False, True)), len(b.shapes[x]) - 1
    elif kind == "Conv":
        x = b.input(b.image())
        y, axis = b.conv(x, b.usual(width, None)), 1
    else:
        rows = b.shape(1, 2)
        x = b.input(rows, b.rng.integers(0, 3, (3, *rows)) * 1.0)
        y, axis = b.add("Lookup", x, table=b.numbers(3, width), axis=0), len(rows)
    width = b.shapes[y][axis]
    for _ in range(b.count(0, 3)):
        step = b.pick("constant", "factor", "sum", "turned", "reshaped", "padded", "taken", "beside")
        y, axis = _for_normalisation(b, step, x, y, axis)
    for _ in range(b.count(1, 2)):
        axes = b.usual((axis,), (0,), (len(b.shapes[y]) - 1,), tuple(range(len(b.shapes[y]))))
        b.add("Normalise", y, axes=axes, centred=b.usual(True, False), epsilon=2.0**-6, scale=b.numbers())
    return b.graph()


def _for_normalisation(b, step, x, y, axis):
    """A tensor after a step, and the place of the axis that is normalised."""
    shape = b.shapes[y]
    width, rank = shape[axis], len(shape)
    if step == "constant":
        op, attrs = b.pick(("Add", {}), ("Sub", {}), ("Sub", {"reversed": True}))
        return b.add(op, y, constant=b.numbers(*b.part(shape)), **attrs), axis
    if step == "factor":
        sizes = [1 if k == axis and b.usual(True, False) else size for k, size in enumerate(shape)]
        return b.add("Mul", y, constant=b.numbers(*sizes[b.count(0, rank) :])), axis
    if step == "sum" and shape[:-1] == b.shapes[x][:-1] and axis == rank - 1:
        other = b.dense(x, b.usual(width, 1))
        return b.add(
            b.pick("Add", "Sub"), *b.order((y, b.usual(other, b.add("Relu", other)) if b.near else other))
        ), axis
    if step == "turned":
        perm = b.order(range(rank))
        return b.add("Transpose", y, perm=perm), perm.index(axis)
    if step == "reshaped":
        whole = (*shape[:axis], width, math.prod(shape[axis + 1 :]), 1)
        return b.add("Reshape", y, shape=b.usual(whole, b.order(whole))), axis
    others = [k for k in range(rank) if k != axis or b.usual(False, True)]
    if not others:
        return y, axis
    along = b.pick(*others)
    if step == "padded":
        pads = tuple(b.count(0, 2) if k % rank == along else 0 for k in range(2 * rank))
        return b.add("Pad", y, pads=pads, mode=b.pick("constant", "edge"), value=b.usual(0.0, 1.0)), axis
    if step == "taken":
        start = b.count(0, shape[along] - 1)
        return b.add("Slice", y, axes=(along,), starts=(start,), stops=(shape[along],), steps=(1,)), axis
    if step == "beside":
        return b.add("Concat", y, y, axis=along), axis
    return y, axis


def scales(b):
    """Weights and constants that are far from 1."""
    if b.pick(True, False):
        y, _ = b.product()
        node = b.nodes[-1]
        weight, far = node.attrs["weight"].copy(), 2.0 ** b.pick(b.count(8, 12), -b.count(18, 30))
        weight.reshape(-1)[0] = 2.0
        bias = node.attrs["bias"] * b.pick(far, 1.0, 2.0**16)
        b.nodes[-1] = node.with_attrs(weight=weight * far, bias=bias)
        return b.graph(y)
    x = b.input(b.shape())
    constant = np.array(np.sign(b.numbers(*b.part(b.shapes[x], grows=True))))
    constant.reshape(-1)[:1] = 1 + 2.0**-12
    far = b.pick(2.0 ** b.count(17, 30), 2.0 ** -b.count(18, 26))
    return b.graph(b.add("Mul", x, constant=constant * far))


def masks(b):
    """A mask in front of a softmax, as a constant or as a factor of whole numbers."""
    front = b.shape(0, 2)
    axis, shape = len(front), (*front, b.count(2, 4), *b.shape(0, 1))
    x = b.input(shape)
    low = b.pick(-np.inf, -1e38, -1e9)
    hidden = b.rng.integers(0, 2, (3, *shape))
    hidden[(slice(None),) * (axis + 1) + (0,)] = 0  # no row has nothing but masks
    hidden[(slice(None), *[-1] * len(shape))] = 1
    if b.pick(True, False):
        y = b.add("Add", x, constant=np.where(hidden[0], low, 0.0))
    else:
        signs = b.add("Sign", b.input(shape, 2.0 * hidden))
        y = b.add("Add", x, b.add("Mul", signs, constant=np.asarray(b.pick(-1e38, -1e9))))
    if b.pick(True, False):
        perm = b.order(range(len(shape)))
        y, axis = b.add("Transpose", y, perm=perm), perm.index(axis)
    return b.graph(b.add("Softmax", y, axis=axis))


# Passes of the compiler --------------------------------------------------------------------------


def one_function(name, **parameters):
    """Numbers of all sizes, for one function with parameters that are chosen for it."""

    def generate(b):
        chosen = {key: b.pick(*values) for key, values in parameters.items()}
        shape = b.shape()
        x = b.rng.integers(-64, 65, (3, *shape)) / 2.0 ** b.count(3, 8)
        x.reshape(-1)[:3] = b.pick((0.0, 2.0**-14, -(2.0**-14)), (8.0, -8.0, 0.0), (1.0, -1.0, 6.0))[: x.size]
        return b.graph(b.function(b.input(shape, x), *name, **chosen))

    return generate


def power(name):
    """Numbers of many powers of two, with their bounds."""

    def generate(b):
        shape, low = b.shape(), b.pick(0, -1) if name == "reciprocal" else 0
        x = 2.0 ** b.rng.integers(-8, 9, (3, *shape)) * (1 + b.rng.integers(0, 8, (3, *shape)) / 8)
        x *= b.rng.choice([1, -1], x.shape) if low else 1
        return b.graph(b.function(b.input(shape, x), name))

    return generate


def bounds_of(graph, inputs):
    """Formats that know the bounds of inputs."""
    values = inputs[graph.inputs[0]]
    return Formats(bounds={graph.inputs[0]: (min(float(values.min()), 0.0), float(np.abs(values).max()))})


def rounding_to_codes(b):
    """Codes of channels, and codes that are finer than binary16."""
    shape = b.shape()
    x = b.input(shape)
    if b.pick(True, False):
        axis = b.count(0, len(shape) - 1)
        one = codes(b, b.count(2, 8))
        scale = 2.0 ** b.rng.integers(-4, 3, shape[axis])
        chosen = Codes(one.bits, scale, one.zero, one.range, axis=axis)
    else:
        chosen = Codes(16, 2.0**-6, b.pick(0, 5), CodeRange.of(b.pick(True, False)))
    return b.graph(b.add("FakeQuantize", x, quantization=chosen))


def batch(b):
    """Operators of rows, with constants of one row."""
    y = x = b.input((1, *b.shape(1, 2)))
    if b.pick(True, False):  # what has more axes than other operands
        y = b.add("Add", x, b.input((1, *b.shape(1, 2), *b.shapes[x][1:])))
    for _ in range(b.count(1, 4)):
        kind, shape = b.pick("Dense", "Relu", "Add", "Mul", "Sub", "both", "Clip"), b.shapes[y]
        constant = b.numbers(*[1] * b.count(0, len(shape)), shape[-1])
        if kind == "Dense":
            y = b.dense(y)
        elif kind == "both":
            other = b.add("Relu", b.pick(x, y, y))
            pairs = zip(shape[::-1], b.shapes[other][::-1], strict=False)
            fits = all(a == c or 1 in (a, c) for a, c in pairs)
            y = b.add(b.pick("Max", "Sub"), *b.order((y, other))) if fits else y
        elif kind in ("Relu", "Clip"):
            y = b.add(kind, y, **({"min": -1.0, "max": 2.0} if kind == "Clip" else {}))
        else:
            y = b.add(kind, y, constant=constant)
    return b.graph(y)


def equalisation(b):
    """Products, and all that a factor passes between them; what follows has the factor 1."""
    y = b.conv(b.input(b.image(2))) if b.pick(True, False) else b.dense(b.input(b.shape(2, 3)))
    for _ in range(b.count(1, 5)):
        shape = b.shapes[y]
        kind = b.pick(*"Relu Clip Add Sub Mul Max both Transpose Reshape Pad mean product".split())
        if kind == "Relu":
            y = b.add("Relu", y)
        elif kind == "Clip":
            y = b.add("Clip", y, min=b.pick(0.0, -1.0, -math.inf), max=b.pick(6.0, math.inf))
        elif kind in ("Add", "Sub", "Max"):
            attrs = {"reversed": True} if kind == "Sub" and b.pick(True, False) else {}
            y = b.add(kind, y, constant=b.numbers(*b.part(shape, grows=True)), **attrs)
        elif kind == "Mul":
            y = b.add("Mul", y, constant=b.numbers(*b.part(shape)))
        elif kind == "both":
            y = b.add(b.pick("Add", "Max", "Mul"), y, b.add("Relu", y))
        elif kind == "Transpose":
            y = b.add("Transpose", y, perm=b.order(range(len(shape))))
        elif kind == "Reshape":
            y = b.add("Reshape", y, shape=b.reshaped(shape))
        elif kind == "Pad":
            pads = tuple(b.count(0, 1) for _ in range(2 * len(shape)))
            y = b.add("Pad", y, pads=pads, mode="constant", value=b.pick(0.0, 0.0, 1.0))
        elif kind == "mean":
            axes = (b.count(0, len(shape) - 1),)
            y = b.add(b.pick("ReduceSum", "ReduceMax"), y, axes=axes, keepdims=True)
        else:
            y = b.dense(y)
    return b.graph(b.dense(y))


def random_scales(graph, rng):
    """A power of two, other than 1, for every channel that may have one."""
    free = channels(graph)
    powers = rng.integers(1, 7, free.count) * rng.choice([1, -1], free.count)
    powers[FIXED] = 0
    return {name: ChannelScale.of(powers[ids]) for name, ids in free.sources.items()}


# Operators that the compiler computes by others, when it lowers them ----------------------------------


def large_windows(op, *sizes, **attrs):
    """Windows of some sizes along the last axis, one or two of them, and of one or all elements of another one."""

    def generate(b):
        size = b.pick(*sizes)
        first = (b.count(1, 3),) * b.count(0, 1)
        kernel = (*(b.pick(1, count) for count in first), size * b.count(1, 2))
        x = b.input((1, b.count(1, 5), *first, 2 * size))
        rank = len(kernel)
        pads = dict.fromkeys(("pads", *attrs), (0,) * 2 * rank)
        return b.graph(b.add(op, x, kernel=kernel, strides=kernel, dilations=(1,) * rank, **pads))

    return generate


def compared(b):
    shape = b.shape()
    x = b.input(shape)
    if b.pick(True, False):
        return b.graph(b.add("Compare", x, b.pick(x, b.input(shape))))
    attrs = {"reversed": True} if b.pick(True, False) else {}
    constant = b.pick(np.zeros(()), b.numbers(*b.part(shape)), np.asarray(1e30))
    return b.graph(b.add("Compare", x, constant=constant, **attrs))


def each(op, limit, step):
    """Numbers up to a limit, some of them in the middle of two whole ones or very small."""

    def generate(b):
        shape = b.shape()
        x = b.rng.integers(-limit, limit + 1, (3, *shape)) * b.pick(step, step, 1.0)
        return b.graph(b.add(op, b.input(shape, np.float16(x).astype(float))))

    return generate


def along(op):
    """An operator along some axes of an input or of a product, whose elements are in lanes or in positions."""

    def generate(b):
        y = b.input(b.order((b.count(1, 20), *b.shape(0, 2))))
        y = b.dense(y, b.count(2, 9)) if b.pick(True, False) else y
        rank = len(b.shapes[y])
        y = b.add("Transpose", y, perm=b.order(range(rank))) if b.pick(True, False) else y
        if op != "Normalise":
            return b.graph(b.add(op, y, axis=b.count(0, rank - 1)))
        axes = tuple(sorted(b.draw(st.sets(st.integers(0, rank - 1), min_size=1))))
        attrs = {"centred": b.pick(True, False), "epsilon": 2.0 ** -b.count(0, 8)}
        return b.graph(b.add(op, y, axes=axes, scale=b.numbers(*b.part(b.shapes[y])), **attrs))

    return generate


def reduced(op, *sizes):
    """A reduction over a long axis, and others."""

    def generate(b):
        shape = b.order((b.pick(*sizes), *b.shape(0, 2)))
        axes = {shape.index(max(shape)), *b.draw(st.sets(st.integers(0, len(shape) - 1)))}
        y = b.input(shape)
        y = b.add("Relu", y) if b.pick(True, False) else y
        return b.graph(b.add(op, y, axes=tuple(sorted(axes)), keepdims=b.pick(True, False)))

    return generate


def matmul(b):
    shape = b.shape(0, 1)
    rows, inner, columns = (b.count(1, 6) for _ in range(3))
    first, second = b.input((*shape, rows, inner)), b.input((*shape, inner, columns))
    if b.pick(True, False):
        second = b.add("Transpose", second, perm=(*range(len(shape)), len(shape) + 1, len(shape)))
        second = second if inner == columns else b.inputs[-1]
    if b.pick(True, False):
        first = b.dense(first, inner)
    return b.graph(b.add("MatMul", first, second))


def dense_along_positions(b):
    """A product along positions: each channel by itself, or mixed by a matrix with zeros."""
    x = b.conv(b.input((1, b.count(1, 3), b.count(4, 9))), b.count(1, 5))
    size, outputs = b.shapes[x][-1], b.count(1, 6)
    y = b.dense(x, outputs)
    weight = b.nodes[-1].attrs["weight"] * b.rng.integers(0, 2, (outputs, size))
    b.nodes[-1] = b.nodes[-1].with_attrs(weight=weight)
    return b.graph(y)


def padded(b):
    x = b.input(b.image())
    y = b.add("Relu", x) if b.pick(True, False) else b.conv(x)
    shape = b.shapes[y]
    mode = b.pick("constant", "edge", "reflect", "wrap")
    most = [min(2, size - 1) if mode in ("reflect", "wrap") else 2 for size in shape]
    pads = tuple(b.count(0, most[k % len(shape)]) if k % len(shape) else 0 for k in range(2 * len(shape)))
    return b.graph(b.add("Pad", y, pads=pads, mode=mode, value=b.pick(0.0, 1.0, -2.0)))


def grown(op):
    """A constant of more axes than the tensor has."""

    def generate(b):
        x = b.input(b.shape(1, 2))
        shape = b.shapes[x]
        sizes = (*b.shape(1, 1), *(b.pick(1, size) for size in shape))
        return b.graph(b.add(op, x, constant=b.numbers(*sizes)))

    return generate


EXPANDED = {
    "AveragePool": large_windows("AveragePool", 9, 12, 16, counted=True),
    "Compare": compared,
    "Dense": dense_along_positions,
    "Function": power("sqrt"),
    "LogSoftmax": along("LogSoftmax"),
    "MatMul": matmul,
    "MaxPool": large_windows("MaxPool", 64, 72, 96),
    "Normalise": along("Normalise"),
    "Pad": padded,
    "ReduceMax": reduced("ReduceMax", 66, 90, 131),
    "ReduceMean": reduced("ReduceMean", 36, 40, 64),
    "ReduceSum": reduced("ReduceSum", 36, 40, 64),
    "Round": each("Round", 9000, 0.25),
    "Sign": each("Sign", 3, 2.0**-24),
    "Softmax": along("Softmax"),
    **{op: grown(op) for op in ("Add", "Sub", "Mul", "Max", "Min")},
}
