"""Random graphs of codes with the operations of TensorFlow Lite."""

import numpy as np

from concord.integer.operations import CodeMaximum, IntegerAverage, IntegerProduct
from concord.integer.tflite.fixed_point import MOST, FixedPointMultiplier
from concord.integer.tflite.operations import (
    FixedPointMean,
    FixedPointSoftmax,
    FixedPointSum,
    InterpolatedSoftmax,
)
from concord.integer.tflite.requantise import Binary64Requantisation, FixedPointRequantisation
from concord.transfer import CodeRange, Codes
from support.exact_graphs import GraphDraw


def twice_rounded(scales, zero, low, high):
    return FixedPointRequantisation(FixedPointMultiplier.of(scales), zero, low, high)


def wide(scales, zero, low, high):
    return FixedPointRequantisation(FixedPointMultiplier.of(scales), zero, low, high, wide=True)


def binary64(scales, zero, low, high):
    """With all 53 bits."""
    return Binary64Requantisation.of(np.float64(scales) * (np.pi / 3), zero, low, high)


def wide_binary64(scales, zero, low, high):
    return Binary64Requantisation.of(np.float64(scales) * (np.pi / 3), zero, low, high, wide=True)


class FixedPointDraw(GraphDraw):
    """A graph in the making; shapes are without the samples, with the channels in the last axis."""

    def limits(self, scheme):
        """Ends of the codes, sometimes those of an activation."""
        low, high = scheme.low, scheme.high
        if self.rng.random() < 0.4:
            low = scheme.zero
            high = int(self.rng.integers(max(low, (low + high) // 2), high + 1))
        return {"low": low, "high": high}

    def convolution(self, *shape, how=twice_rounded, **settings):
        return super().convolution(*shape, last=True, how=how, **settings)

    def dense(self, shape, channels, how=binary64, **settings):
        return self.matmul(shape, channels, how=how, **settings)

    def pool(self, kind, shape, kernel, **settings):
        x = self.input(shape)
        scheme = self.graph.schemes[x]
        return self.windows(kind, shape, kernel, x=x, scheme=scheme, last=True, **settings, **self.limits(scheme))

    def mean(self, shape, axes, kept):
        x = self.input(shape)
        source, count = self.graph.schemes[x], int(np.prod([shape[axis - 1] for axis in axes]))
        return self.add(FixedPointMean, x, of=lambda scheme: {
            "axes": axes, "kept": kept, "zero_point": source.zero,
            "requantisation": twice_rounded(self.scale(scheme.count / source.count / count), scheme.zero,
                                            **self.limits(scheme))})  # fmt: skip

    def sum(self, shape_a, shape_b, difference=False):
        names = self.input(shape_a), self.input(shape_b)
        sources = [self.graph.schemes[name] for name in names]
        up = 20 if max(source.bits for source in sources) <= 8 else 15
        halves = [float(source.scale) / max(float(other.scale) for other in sources) / 2 for source in sources]
        span = sum(half * source.count for half, source in zip(halves, sources, strict=True)) * 2.0**up
        return self.add(FixedPointSum, *names, of=lambda scheme: {
            "zeros": tuple(source.zero for source in sources), "up": up, "difference": difference,
            "scales": tuple(FixedPointMultiplier.of(half) for half in halves),
            "requantisation": twice_rounded(self.scale(scheme.count / span), scheme.zero,
                                            **self.limits(scheme))})  # fmt: skip

    def mul(self, shape_a, shape_b):
        """Of at most 15 bits, for products must fit 32 bits."""
        most = min(self.widths[1], 15)
        names = [self.input(shape, self.rng.integers(self.widths[0], most + 1)) for shape in (shape_a, shape_b)]
        sources = [self.graph.schemes[name] for name in names]
        span = np.prod([float(source.reach()) for source in sources])
        return self.add(IntegerProduct, *names, of=lambda scheme: {
            "zeros": tuple(source.zero for source in sources),
            "requantisation": twice_rounded(self.scale(scheme.count / span), scheme.zero,
                                            **self.limits(scheme))})  # fmt: skip

    def softmax(self, shape):
        x, bits = self.input(shape, 8), int(self.rng.integers(max(self.widths[0], 4), self.widths[1] + 1))
        codes = self.rng.choice([CodeRange.SIGNED, CodeRange.UNSIGNED])
        low = Codes(bits, 1.0, 0, codes).low
        scheme = Codes(bits, 2.0**-bits, low, codes)
        powers = np.floor(np.exp(-np.arange(255, -1, -1) * self.rng.uniform(0.001, 0.3)) * MOST).astype(np.int64)
        powers[: self.rng.integers(0, 100)] = 0
        ends = {"low": scheme.low, "high": scheme.high}
        return self.add(FixedPointSoftmax, x, scheme=scheme, of=lambda _: {"powers": powers, "bits": bits, **ends})

    def interpolated_softmax(self, shape):
        """Of codes of 9 to 16 bits, whatever the widths of others are."""
        x, scheme = self.input(shape, int(self.rng.integers(9, 17))), Codes(16, 2.0**-15, 0, CodeRange.SIGNED)
        scale = FixedPointMultiplier.of(np.exp(self.rng.uniform(-4, 9)))
        return self.add(InterpolatedSoftmax, x, scheme=scheme, scale=scale)


def channels_last_convolutions(seed, widths):
    """One and two dimensions, groups, strides, dilations, pads on each side; multipliers above 1; wide sums."""
    draw = FixedPointDraw(seed, widths)
    draw.convolution((9, 3), 5, (3,), pads=(1, 0), strides=(2,))
    draw.convolution((6, 5, 3), 4, (3, 3), pads=(1, 1, 1, 1))
    draw.convolution((7, 6, 4), 6, (2, 3), pads=(0, 2, 1, 1), dilations=(2, 1), groups=2)
    draw.convolution((5, 7, 4), 3, (3, 2), strides=(1, 3), dilations=(1, 3), pads=(2, 2, 0, 1), per_channel=False)
    draw.convolution((4, 4, 5), 7, (1, 1))
    draw.convolution((3, 3, 2), 4, (1, 1), weight_bits=2)
    draw.convolution((4, 5, 3), 4, (2, 2), how=wide)
    draw.convolution((4, 4, 9), 3, (3, 3), how=wide, weight_bits=24, room=46)
    return draw


def channels_last_depthwise(seed, widths):
    """One channel in a group, and two of each."""
    draw = FixedPointDraw(seed, widths)
    draw.convolution((8, 7, 11), 11, (3, 3), groups=11, pads=(1, 1, 1, 1))
    draw.convolution((8, 7, 5), 5, (2, 3), groups=5, strides=(2, 1), pads=(0, 1, 1, 2), per_channel=False)
    draw.convolution((6, 4, 3), 6, (3, 2), groups=3, dilations=(2, 1))
    draw.convolution((5, 4, 3), 3, (3, 3), groups=3, pads=(1, 1, 1, 1), how=wide)
    draw.convolution((5, 4, 3), 3, (3, 3), groups=3, how=wide, weight_bits=24, room=46)
    return draw


def dense_layers(seed, widths):
    """Rows, single ones and several; sums of 35 bits."""
    draw = FixedPointDraw(seed, widths)
    draw.dense((30,), 12)
    draw.dense((4, 6), 5, per_channel=False)
    draw.dense((3, 2, 9), 4, weight_bits=2)
    draw.dense((40,), 10, how=wide_binary64)
    draw.dense((50,), 7, how=wide_binary64, weight_bits=16, room=34)
    return draw


def channels_last_pools(seed, widths):
    draw = FixedPointDraw(seed, widths)
    for kind in (CodeMaximum, IntegerAverage):
        draw.pool(kind, (6, 5, 3), (2, 2), strides=(2, 2))
        draw.pool(kind, (7, 6, 3), (3, 2), strides=(1, 2), pads=(1, 0, 1, 1))
        draw.pool(kind, (5, 4, 1), (3, 3), pads=(1, 1, 1, 1))
        draw.pool(kind, (4, 4, 5), (4, 4))
    return draw


def fixed_point_means(seed, widths):
    draw = FixedPointDraw(seed, widths)
    draw.mean((5, 7, 9), (1, 2), True)
    draw.mean((5, 7, 9), (1, 2), False)
    draw.mean((4, 5, 3), (3,), False)
    draw.mean((4, 5, 3), (1, 3), True)
    draw.mean((50,), (1,), False)
    return draw


def fixed_point_sums(seed, widths):
    """Sums, differences and products, broadcast in all ways."""
    draw = FixedPointDraw(seed, widths)
    shapes = [((4, 5), (4, 5)), ((4, 5), (1, 5)), ((1, 1), (3, 4)), ((6,), (2, 1, 6)), ((3, 4, 5), (3, 1, 1)),
              ((40,), (40,))]  # fmt: skip
    for shape_a, shape_b in shapes:
        draw.sum(shape_a, shape_b)
        draw.sum(shape_b, shape_a, difference=True)
        draw.mul(shape_b, shape_a)
    return draw


def fixed_point_softmaxes(seed, widths):
    draw = FixedPointDraw(seed, widths)
    draw.softmax((10,))
    draw.softmax((3, 5, 4))
    draw.softmax((300,))
    draw.softmax((1,))
    draw.interpolated_softmax((10,))
    draw.interpolated_softmax((3, 5, 4))
    draw.interpolated_softmax((300,))
    draw.interpolated_softmax((1,))
    return draw


FIXED_POINT_GRAPHS = {make.__name__: make for make in (
    channels_last_convolutions, channels_last_depthwise, dense_layers, channels_last_pools, fixed_point_means,
    fixed_point_sums, fixed_point_softmaxes
)}  # fmt: skip
