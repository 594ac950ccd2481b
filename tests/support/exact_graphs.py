"""Random graphs of codes: single operations with schemes of all widths, and codes that are often corners."""

from dataclasses import dataclass, field

import numpy as np

from concord.integer.graph import IntegerGraph
from concord.integer.moves import ConcatMove, FlattenMove, PadMove, ReshapeMove, TakeMove, TransposeMove
from concord.integer.operations import (
    CodeAverage,
    CodeConstant,
    CodeFloats,
    CodeMaximum,
    CodeMean,
    CodeMovement,
    CodeSoftmax,
    CodeSum,
    CodeTable,
    IntegerProduct,
)
from concord.integer.requantise import FloatRequantisation, Requantisation
from concord.integer.softmaxes import NumberSoftmax
from concord.integer.sum_orders import SUM_ORDERS
from concord.integer.weighted_sums import CodeMatMul, IntegerConvolution, IntegerMatMul
from concord.integer.wide import WIDE, CodesOfNumbers, TabledNumbers
from concord.transfer import CodeRange, Codes, PointwiseOperator, TransferTable


@dataclass
class GraphDraw:
    """A graph in the making; ``widths`` are least and greatest bits of codes."""

    seed: int
    widths: tuple = (8, 8)
    graph: IntegerGraph = field(default_factory=lambda: IntegerGraph("random"))

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)

    def scale(self, about=0.1):
        """Often with few bits, so that many numbers are in the middle between two codes."""
        number = np.exp(self.rng.uniform(-1, 1)) * about
        if self.rng.random() < 0.4:
            number = self.rng.integers(1, 8) * 2.0 ** np.floor(np.log2(about))
        return np.float32(number)

    def scheme(self, bits=None):
        bits = int(bits or self.rng.integers(self.widths[0], self.widths[1] + 1))
        codes = self.rng.choice([CodeRange.SIGNED, CodeRange.UNSIGNED])
        plain = Codes(bits, 1.0, 0, codes)
        zero = int(self.rng.choice([self.rng.integers(plain.low, plain.high + 1), plain.low, 0]))
        return Codes(bits, float(self.scale()), zero, codes)

    def input(self, shape, bits=None):
        """A tensor of codes that is an input."""
        name = f"x{len(self.graph.inputs)}"
        self.graph.inputs[name] = name
        self.graph.schemes[name] = self.scheme(bits)
        self.graph.shapes[name] = (None, *shape)
        return name

    def add(self, kind, *inputs, output=True, bits=None, scheme=None, **settings):
        """An operation, whose result is an output."""
        name = f"{kind.__name__.lower()}{len(self.graph.operations)}"
        scheme = scheme or self.scheme(bits)
        settings |= settings.pop("of")(scheme) if "of" in settings else {}
        self.graph.operations.append(kind(name=name, inputs=inputs, output=name, **settings))
        self.graph.schemes[name] = scheme
        if output:
            self.graph.outputs[name] = name
        return name

    def limits(self, scheme):
        """Ends of the codes, sometimes those of an activation."""
        low = scheme.zero if self.rng.random() < 0.3 else scheme.low
        return {"low": low, "high": scheme.high}

    def product(self, kind, x, shape, axis, per_channel=True, weight_bits=8, floats=False, how=Requantisation,
                room=30, **settings):  # fmt: skip
        """A product with a random weight of a shape, whose channels are along an axis.

        ``how(scales, zero, low=..., high=...)`` makes the requantisation of sums that have ``room`` bits at most.
        """
        source, count = self.graph.schemes[x], shape[axis]
        reach = source.reach()
        terms = int(np.prod(shape)) // count
        most = min(1 << weight_bits - 1, ((1 << room) - 1) // (reach * terms))
        weight = self.rng.integers(-most, most + (weight_bits > 8), shape)
        corners = self.rng.random(shape) < 0.1
        weight[corners] = -most
        spread = np.sqrt(terms) * most * reach / 4
        bias = self.rng.integers(-int(spread) - 1, int(spread) + 2, count)

        def of(scheme):
            about = (scheme.high - scheme.low) / 3 / spread
            factors = np.array([self.scale(about) for _ in range(count if per_channel else 1)], np.float32)
            ends, zero = self.limits(scheme), scheme.zero
            requantisation = how(factors, zero, **ends)
            if floats:
                terms = self.rng.normal(size=count).astype(np.float32) * scheme.count / 8
                signs = self.rng.choice(np.float32([1, -1]), factors.shape)
                requantisation = FloatRequantisation(factors * signs * 3, terms, np.float32(3), zero, **ends)
            return {"weight": weight, "bias": bias, "zero_point": source.zero, "reach": reach,
                    "requantisation": requantisation, **settings}  # fmt: skip

        return self.add(kind, x, of=of)

    def matmul(self, shape, channels, **settings):
        x = self.input(shape)
        return self.product(IntegerMatMul, x, (shape[-1], channels), 1, **settings)

    def convolution(self, shape, channels, kernel, groups=1, strides=None, dilations=None, pads=None, last=False,
                    **settings):  # fmt: skip
        x, rank = self.input(shape), len(kernel)
        return self.product(
            IntegerConvolution, x, (channels, shape[-1 if last else 0] // groups, *kernel), 0, groups=groups,
            strides=strides or (1,) * rank, dilations=dilations or (1,) * rank, pads=pads or (0,) * 2 * rank,
            last=last, **settings,
        )  # fmt: skip

    def windows(self, kind, shape, kernel, strides=None, dilations=None, pads=None, x=None, **settings):
        x, rank = x or self.input(shape), len(kernel)
        return self.add(kind, x, kernel=kernel, strides=strides or (1,) * rank, dilations=dilations or (1,) * rank,
                        pads=pads or (0,) * 2 * rank, **settings)  # fmt: skip

    def maximum(self, shape, kernel, **settings):
        x = self.input(shape)
        return self.windows(CodeMaximum, shape, kernel, x=x, scheme=self.graph.schemes[x], **settings)

    def mean(self, shape, order=""):
        x = self.input(shape)
        return self.add(CodeMean, x, of=lambda scheme: self.scales(x, scheme), order=order)

    def scales(self, x, scheme):
        """Parameters of a mean."""
        source = self.graph.schemes[x]
        return {"zero_point": source.zero, "scale": np.float32(source.scale), "target_scale": np.float32(scheme.scale),
                "target_zero_point": scheme.zero, **self.limits(scheme)}  # fmt: skip

    def average(self, shape, kernel, padding_counts=False, **settings):
        x, scheme = self.input(shape), self.scheme()
        return self.windows(CodeAverage, shape, kernel, x=x, scheme=scheme, padding_counts=padding_counts,
                            **self.scales(x, scheme), **settings)  # fmt: skip

    def sum(self, shape_a, shape_b, ratios=None, shifts=(0, 0, 0)):
        a, b = self.input(shape_a), self.input(shape_b)
        return self.add(CodeSum, a, b, shifts=shifts, of=lambda scheme: self.of_two(
            a, b, scheme, ratios=ratios or tuple(self.ratio(x, scheme) for x in (a, b))))  # fmt: skip

    def ratio(self, x, scheme):
        source = self.graph.schemes[x]
        return self.scale((scheme.high - scheme.low) / (source.high - source.low) / 2)

    def mul(self, shape_a, shape_b, shift=0):
        a, b = self.input(shape_a), self.input(shape_b)
        step = 2.0 ** (1 - self.graph.schemes[b].bits)
        zeros = self.graph.schemes[a].zero, self.graph.schemes[b].zero

        def of(scheme):
            ratio = np.float32(self.ratio(a, scheme) * step)
            how = FloatRequantisation.of_kernel(ratio, scheme.zero, shift, **self.limits(scheme))
            return {"zeros": zeros, "requantisation": how}

        return self.add(IntegerProduct, a, b, of=of)

    def of_floats(self, shape_a, shape_b, operator="Sub"):
        a, b = self.input(shape_a), self.input(shape_b)
        return self.add(CodeFloats, a, b, operator=operator, of=lambda scheme: self.of_two(
            a, b, scheme, scales=(self.ratio(a, scheme), self.ratio(b, scheme)), step=np.float32(1.5)))  # fmt: skip

    def of_two(self, a, b, scheme, **settings):
        zeros = (self.graph.schemes[a].zero, self.graph.schemes[b].zero)
        return {"zeros": zeros, "zero_point": scheme.zero, **self.limits(scheme), **settings}

    def softmax(self, shape, axis, flattened=False):
        x, scheme = self.input(shape, 8), self.scheme(8)
        return self.add(CodeSoftmax, x, scheme=scheme, axis=axis, flattened=flattened,
                        scale=np.float32(self.graph.schemes[x].scale), steps=np.float32(self.rng.integers(100, 300)),
                        zero_point=scheme.zero, low=scheme.low, high=scheme.high)  # fmt: skip

    def number_softmax(self, shape, axis, flattened=False):
        x, scheme = self.input(shape), self.scheme()
        source = self.graph.schemes[x]
        return self.add(NumberSoftmax, x, scheme=scheme, axis=axis, flattened=flattened, count=source.count,
                        scale=np.float32(6 / source.count), step=np.float32(1 / scheme.count), zero_point=scheme.zero,
                        low=scheme.low, high=scheme.high)  # fmt: skip

    def product_of_two(self, shape_a, shape_b, floats=False):
        """Matrices of codes times others; ``floats`` if sums become numbers on the way."""
        a, b = self.input(shape_a), self.input(shape_b)
        schemes = self.graph.schemes[a], self.graph.schemes[b]
        reaches = [scheme.reach() for scheme in schemes]
        largest = reaches[0] * reaches[1] * shape_a[-1]

        def of(scheme):
            factor = self.scale((scheme.high - scheme.low) * 2 / largest).reshape(1)
            how = Requantisation(factor, scheme.zero, **self.limits(scheme))
            if floats or largest >= 1 << 31:
                how = FloatRequantisation(factor * 3, np.zeros(1, np.float32), np.float32(3), scheme.zero,
                                          **self.limits(scheme), sum_bits=62)  # fmt: skip
            return {"zeros": tuple(scheme.zero for scheme in schemes), "largest": largest, "requantisation": how}

        return self.add(CodeMatMul, a, b, of=of)

    def table(self, shape, x=None, **settings):
        x = x or self.input(shape)
        source, target = self.graph.schemes[x], self.scheme()
        entries = self.rng.integers(target.low, target.high + 1, source.count)
        table = TransferTable(source, (PointwiseOperator.of("relu"),), target, entries)
        return self.add(CodeTable, x, scheme=target, table=table, **settings)

    def move(self, move, *inputs, narrower=False, **settings):
        """A movement of tensors with the scheme of the first one."""
        scheme = self.graph.schemes[inputs[0]]
        for name in inputs:
            self.graph.schemes[name] = scheme
        low = scheme.low + (scheme.count // 4 if narrower else 0)
        return self.add(CodeMovement, *inputs, scheme=scheme, move=move, low=low, high=scheme.high, **settings)

    def constant(self, shape, **settings):
        scheme = self.scheme()
        value = self.rng.integers(scheme.low, scheme.high + 1, shape)
        return self.add(CodeConstant, scheme=scheme, value=value, **settings)

    def samples(self, count):
        """Codes of all inputs, half of which are ends or zero points."""
        made = {}
        for name, tensor in self.graph.inputs.items():
            scheme, shape = self.graph.schemes[tensor], (count, *self.graph.shapes[name][1:])
            corners = self.rng.choice([scheme.low, scheme.high, scheme.zero], shape)
            codes = self.rng.integers(scheme.low, scheme.high + 1, shape)
            made[name] = np.where(self.rng.random(shape) < 0.5, corners, codes)
        return made


def products(seed, widths):
    """Products of rows, single ones and several, of few and of many elements."""
    draw = GraphDraw(seed, widths)
    draw.matmul((7,), 10)
    draw.matmul((6, 19), 5, per_channel=False)
    draw.matmul((2, 3, 8), 1)
    draw.matmul((40,), 3, weight_bits=9)
    draw.matmul((3,), 4, weight_bits=16)
    draw.matmul((5, 9), 4, floats=True)
    draw.matmul((9,), 4, floats=True, per_channel=False)
    return draw


def convolutions(seed, widths):
    """One to three dimensions, groups, strides, dilations, pads on each side."""
    draw = GraphDraw(seed, widths)
    draw.convolution((3, 9), 5, (3,), pads=(1, 0), strides=(2,))
    draw.convolution((3, 6, 5), 4, (3, 3), pads=(1, 1, 1, 1))
    draw.convolution((4, 7, 6), 6, (2, 3), pads=(0, 2, 1, 1), dilations=(2, 1), groups=2)
    draw.convolution((4, 5, 7), 3, (3, 2), strides=(1, 3), dilations=(1, 3), pads=(2, 2, 0, 1), per_channel=False)
    draw.convolution((5, 4, 4), 7, (1, 1))
    draw.convolution((2, 3, 4, 5), 3, (2, 2, 3), pads=(1, 0, 1, 0, 1, 1), strides=(1, 2, 1))
    draw.convolution((6, 5), 4, (5,))
    draw.convolution((2, 6, 6), 3, (1, 1), strides=(2, 2), pads=(1, 0, 0, 1), weight_bits=9)
    return draw


def depthwise(seed, widths):
    """One channel in a group, behind each other so that channels are beside each other in memory."""
    draw = GraphDraw(seed, widths)
    for kernel, settings in (((3, 3), {"pads": (1, 1, 1, 1)}), ((2, 3), {"strides": (2, 1), "pads": (0, 1, 1, 2)}),
                             ((1, 1), {}), ((3, 1), {"dilations": (2, 1)})):  # fmt: skip
        x = draw.convolution((3, 8, 7), 11, (1, 1))
        del draw.graph.outputs[x]
        y = draw.product(IntegerConvolution, x, (11, 1, *kernel), 0, groups=11,
                         **{"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)} | settings)  # fmt: skip
        del draw.graph.outputs[y]
        draw.product(IntegerConvolution, y, (3, 11, 1, 1), 0, groups=1, strides=(1, 1), dilations=(1, 1),
                     pads=(0, 0, 0, 0))  # fmt: skip
    draw.convolution((4, 6, 5), 4, (3, 3), groups=4, pads=(1, 1, 1, 1))
    draw.convolution((3, 9), 6, (3,), groups=3, pads=(2, 1))
    return draw


def pools(seed, widths):
    draw = GraphDraw(seed, widths)
    draw.maximum((3, 6, 5), (2, 2), strides=(2, 2))
    draw.maximum((2, 7), (3,), pads=(1, 2), dilations=(2,))
    draw.maximum((2, 5, 4, 3), (2, 3, 1), pads=(1, 1, 0, 0, 1, 0))
    draw.mean((5, 6, 7))
    draw.mean((3, 50))
    draw.average((3, 6, 6), (2, 2), strides=(2, 2))
    draw.average((2, 5, 7), (3, 3), pads=(1, 1, 1, 1))
    draw.average((2, 5, 7), (3, 2), pads=(1, 0, 2, 1), padding_counts=True)
    draw.average((3, 4, 4), (4, 4))
    for size, order in zip((3, 4, 21, 30, 31, 140, 300), [*SUM_ORDERS, *SUM_ORDERS], strict=False):
        draw.mean((2, size), order)
        draw.mean((3, size, 3), order)
    draw.average((2, 7, 6), (3, 5), order="pairs")
    draw.average((2, 5, 7), (3, 2), pads=(1, 0, 2, 1), order="one by one")
    draw.average((3, 4, 4), (4, 4), order="pairs")
    draw.average((2, 5, 7), (3, 3), pads=(1, 1, 1, 1), shift=128)
    return draw


def pointwise(seed, widths):
    """Tables, sums and products, broadcast in all ways."""
    draw = GraphDraw(seed, widths)
    shapes = [((4, 5), (4, 5)), ((4, 5), (1, 5)), ((1, 1), (3, 4)), ((6,), (2, 1, 6)), ((3, 4, 5), (3, 1, 1)),
              ((40,), (40,))]  # fmt: skip
    for shape_a, shape_b in shapes:
        draw.sum(shape_a, shape_b)
        draw.mul(shape_b, shape_a)
        draw.of_floats(shape_a, shape_b)
    for shape_a, shape_b in shapes[1:3]:
        for operator in ("Add", "Mul"):
            draw.of_floats(shape_a, shape_b, operator)
        draw.sum(shape_a, shape_b, shifts=(128, 128, 128))
        draw.sum(shape_a, shape_b, shifts=(0, 128, 128))
        draw.mul(shape_a, shape_b, shift=128)
    draw.sum((50,), (50,), ratios=(np.float32(2.0**-40), np.float32(1.5)))
    draw.sum((50,), (50,), ratios=(np.float32(0.5), np.float32(1.25)))
    draw.table((9, 7))
    return draw


def softmaxes(seed, widths):
    draw = GraphDraw(seed, widths)
    draw.softmax((10,), -1)
    draw.softmax((3, 5, 4), 2)
    draw.softmax((3, 1, 4), 1, flattened=True)
    draw.softmax((4, 3), -1)
    return draw


def scatter(draw):
    """Indices without a pattern, so many that they are no pieces."""
    return tuple(draw.rng.integers(0, 64, 200).tolist())


def moves(seed, widths):
    """Copies, pieces, other orders, and what is as it was; outputs that are inputs, constants and each other."""
    draw = GraphDraw(seed, widths)
    a, b = draw.input((3, 4, 5)), draw.input((3, 2, 5))
    draw.move(TransposeMove((0, 2, 3, 1)), a)
    draw.move(ConcatMove(2), a, b, narrower=True)
    draw.move(PadMove(((0, 0), (1, 0), (0, 2), (1, 1)), draw.graph.schemes[a].zero), a)
    draw.move(TakeMove(2, (0, 2, 3, 3, 1)), a)
    scattered = ReshapeMove((1, -1)), PadMove(((0, 0), (3, 1)), draw.graph.schemes[a].low), TakeMove(1, scatter(draw))
    c = a
    for k, move in enumerate(scattered):
        c = draw.move(move, c, output=k == 2)
    flat = draw.move(ReshapeMove((0, -1)), a)
    draw.move(ConcatMove(-1), flat, flat)
    draw.table((), flat)
    x = draw.convolution((3, 4, 4), 5, (1, 1))
    del draw.graph.outputs[x]
    transposed = draw.move(TransposeMove((0, 3, 1, 2)), x, output=False)
    draw.move(ReshapeMove((0, 5, -1)), transposed)
    draw.move(ReshapeMove((1, -1)), x)
    y = draw.move(ReshapeMove((1, -1)), x, output=False)
    draw.table((), y)
    constant = draw.constant((1, 2, 3))
    draw.graph.outputs.update({"again": constant, "given": a, "twice": flat})
    return draw


def tensors(seed, widths):
    """Products of two tensors, softmaxes and functions in binary32, and several rows of a sample."""
    draw = GraphDraw(seed, widths)
    draw.product_of_two((3, 7), (7, 4))
    draw.product_of_two((2, 5, 3), (2, 3, 6))
    draw.product_of_two((1, 4, 9), (3, 9, 1))
    draw.product_of_two((4, 1), (1, 3), floats=True)
    draw.product_of_two((2, 300), (300, 2), floats=True)
    draw.number_softmax((6,), -1)
    draw.number_softmax((3, 4), 1)
    draw.number_softmax((2, 2, 3), 2, flattened=True)
    x = draw.input((4, 3))
    source = draw.graph.schemes[x]
    numbers = (draw.rng.normal(size=source.count) * 3).astype(np.float32)
    wide = draw.add(TabledNumbers, x, scheme=WIDE, output=False, numbers=numbers, least=source.low)
    draw.add(CodesOfNumbers, wide, of=lambda scheme: {
        "step": np.float32(6 / scheme.count), "zero_point": scheme.zero, **draw.limits(scheme)})  # fmt: skip
    rows = draw.move(FlattenMove(2), draw.input((4, 2, 3)))
    made = draw.product(IntegerMatMul, rows, (6, 5), 1)
    draw.table((), made)
    draw.move(TakeMove(1, (2, 0, 2)), rows)
    draw.move(PadMove(((0, 0), (1, 2)), draw.graph.schemes[rows].low), rows)
    draw.move(ReshapeMove((-1, 2, 10)), made)
    return draw


GRAPHS = {make.__name__: make for make in (
    products, convolutions, depthwise, pools, pointwise, softmaxes, moves, tensors
)}  # fmt: skip
