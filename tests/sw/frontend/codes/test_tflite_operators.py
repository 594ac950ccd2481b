"""Every operator of TensorFlow Lite by itself: random codes, scales and zero points, against its reference kernel."""

import numpy as np
import pytest

from concord.frontend.codes import load
from support.frameworks import missing, needs

if missing("tflite"):
    pytest.skip(missing("tflite"), allow_module_level=True)

from support import tflite_draws
from support.tflite_models import Net, compared_codes

pytestmark = needs("tflite")

SAME, VALID = 0, 1
NONE, RELU, RELU_N1_TO_1, RELU6, TANH = range(5)
INT32 = 2
KINDS = [np.int8, np.uint8, np.int16]
BYTES = KINDS[:2]


#: Some scheme.
ANY = {"scale": 0.05, "zero": 3}


class Draw(tflite_draws.Draw):
    """A network of some inputs under construction, with random schemes, constants and inputs."""

    def __init__(self, seed, dtype):
        super().__init__(seed, dtype)
        self.inputs, self.values = [], []

    def codes(self, shape, dtype=None):
        ends = np.iinfo(dtype or self.dtype)
        return self.rng.integers(ends.min, ends.max + 1, shape).astype(dtype or self.dtype)

    def input(self, *shape, **scheme):
        """An input, and codes for it; some are near each other, as tables and powers need them."""
        self.values.append(self.codes(shape))
        self.inputs.append(self.net.tensor(shape, self.dtype, **(scheme or self.scheme())))
        return self.inputs[-1]

    def output(self, *shape, dtype=None, **scheme):
        return self.net.tensor(shape, dtype or self.dtype, **(scheme or self.scheme()))

    def weight(self, shape, axis=None, factor=0.3):
        """Constant codes; with an axis, each of its elements has a scale."""
        count = None if axis is None else shape[axis]
        scale = np.exp(self.rng.uniform(-0.7, 0.7, count)) * 0.03 * factor
        dtype = np.uint8 if self.dtype == np.uint8 else np.int8
        zero = 121 if dtype == np.uint8 else 0
        return self.net.constant(self.codes(shape, dtype), scale=np.float32(scale), zero=zero, axis=axis or 0)

    def bias(self, count, x, w, wide=False):
        """In the product of the scales of an input and a weight."""
        scales = [self.net.graph.tensors[k].quantization.scale for k in (x, w)]
        values = self.rng.integers(-4000, 4000, count)
        return self.net.constant(values.astype(np.int64 if wide else np.int32), scale=np.float32(scales[0]) * scales[1])

    def compared(self, outputs):
        """Codes compared, and how many differ; some must not be saturated."""
        data = self.net.bytes(self.inputs, np.atleast_1d(outputs).tolist())
        (own, *_) = load(data).run(dict(zip(load(data).graph.inputs, self.values, strict=True))).values()
        assert np.mean((own > np.iinfo(own.dtype).min) & (own < np.iinfo(own.dtype).max)) > 0.02
        return compared_codes(data, *self.values)


@pytest.fixture(params=range(3))
def seed(request):
    return request.param


#: Padding, strides, dilations, size of the result of 7 x 6 with a window of 3 x 2, activation.
WINDOWS = [(SAME, (1, 1), (1, 1), (7, 6), NONE), (SAME, (2, 3), (1, 1), (4, 2), RELU),
           (VALID, (1, 2), (1, 1), (5, 3), RELU6), (VALID, (1, 1), (2, 3), (3, 3), RELU_N1_TO_1),
           (SAME, (1, 1), (2, 2), (7, 6), RELU)]  # fmt: skip


def window_options(padding, strides, dilations, activation, **more):
    return {"padding": padding, "strideH": strides[0], "strideW": strides[1], "dilationHFactor": dilations[0],
            "dilationWFactor": dilations[1], "fusedActivationFunction": activation, **more}  # fmt: skip


@pytest.mark.parametrize("padding, strides, dilations, size, activation", WINDOWS)
@pytest.mark.parametrize("dtype", KINDS)
def test_convolutions(seed, dtype, padding, strides, dilations, size, activation):
    draw = Draw(seed, dtype)
    x, y = draw.input(3, 7, 6, 4), draw.output(3, *size, 5, **draw.scheme(20 if activation in (NONE, RELU) else 2))
    w = draw.weight((5, 3, 2, 4), axis=None if dtype == np.uint8 or seed == 1 else 0)
    operands = [x, w, draw.bias(5, x, w, dtype == np.int16)]
    draw.net.op("CONV_2D", operands, y, "Conv2DOptions", **window_options(padding, strides, dilations, activation))
    assert draw.compared(y) == (3 * size[0] * size[1] * 5, 0)


@pytest.mark.parametrize("padding, strides, dilations, size, activation", WINDOWS)
@pytest.mark.parametrize("dtype", KINDS)
def test_convolutions_in_depth(seed, dtype, padding, strides, dilations, size, activation):
    """Each channel has two results."""
    draw = Draw(seed, dtype)
    x, y = draw.input(3, 7, 6, 4), draw.output(3, *size, 8, **draw.scheme(8 if activation in (NONE, RELU) else 2))
    w = draw.weight((1, 3, 2, 8), axis=None if dtype == np.uint8 or seed == 1 else 3)
    options = window_options(padding, strides, dilations, activation, depthMultiplier=2)
    bias = draw.bias(8, x, w, dtype == np.int16)
    draw.net.op("DEPTHWISE_CONV_2D", [x, w, bias], y, "DepthwiseConv2DOptions", **options)
    assert draw.compared(y) == (3 * size[0] * size[1] * 8, 0)


@pytest.mark.parametrize("dtype", BYTES)
def test_scales_of_convolutions(seed, dtype):
    """Sums in the middle between two codes, where it counts whether a product of scales was rounded to binary32."""
    draw = Draw(seed, dtype)
    x_scale, w_scale, channels = np.float32([0.0123, 0.0171, 0.0217][seed]), np.float32(0.0456), 250
    y_scale = float(np.float32(x_scale * w_scale * 2**19))
    zero = int(draw.ends.min)
    x, y = (
        draw.input(1, 1, 1, 1, scale=float(x_scale), zero=zero),
        draw.output(1, 1, 1, channels, scale=y_scale, zero=zero),
    )
    draw.values[0][:] = zero
    w = draw.net.constant(np.ones((channels, 1, 1, 1), dtype), scale=w_scale)
    middles = (np.arange(channels) + 0.5) * y_scale / (float(x_scale) * float(w_scale))
    bias = draw.net.constant(np.rint(middles).astype(np.int32), scale=float(x_scale * w_scale))
    draw.net.op("CONV_2D", [x, w, bias], y, "Conv2DOptions", **window_options(VALID, (1, 1), (1, 1), NONE))
    assert draw.compared(y) == (channels, 0)


def test_convolutions_in_groups(seed):
    draw = Draw(seed, np.int8)
    x, y = draw.input(3, 5, 5, 6), draw.output(3, 5, 5, 4, **draw.scheme(20))
    options = window_options(SAME, (1, 1), (1, 1), NONE)
    w = draw.weight((4, 3, 3, 3), axis=0)
    draw.net.op("CONV_2D", [x, w, draw.bias(4, x, w)], y, "Conv2DOptions", **options)
    assert draw.compared(y) == (300, 0)


def test_convolutions_of_16_bits_with_a_bias_of_32(seed):
    """Accumulators have 32 bits, and products are rounded twice."""
    draw = Draw(seed, np.int16)
    x, y = draw.input(3, 5, 5, 2), draw.output(3, 5, 5, 4, **draw.scheme(20))
    options = window_options(SAME, (1, 1), (1, 1), NONE, quantizedBiasType=INT32)
    w = draw.weight((4, 1, 1, 2), axis=0)
    draw.net.op("CONV_2D", [x, w, draw.bias(4, x, w)], y, "Conv2DOptions", **options)
    assert draw.compared(y) == (300, 0)


@pytest.mark.parametrize("activation", [NONE, RELU, RELU6])
@pytest.mark.parametrize("dtype", KINDS)
def test_dense_layers(seed, dtype, activation):
    """The reference kernel multiplies in binary64."""
    draw = Draw(seed, dtype)
    x, y = draw.input(40, 2, 15), draw.output(40, 12, **draw.scheme(20))
    w = draw.weight((12, 30), axis=0 if dtype != np.uint8 and seed == 1 else None)
    operands = [x, w, draw.bias(12, x, w, dtype == np.int16)] if seed < 2 else [x, w]
    draw.net.op("FULLY_CONNECTED", operands, y, "FullyConnectedOptions", fusedActivationFunction=activation)
    assert draw.compared(y) == (480, 0)


def test_rows_of_dense_layers(seed):
    draw = Draw(seed, np.int8)
    x, y = draw.input(3, 4, 6), draw.output(3, 4, 5, **draw.scheme(9))
    draw.net.op("FULLY_CONNECTED", [x, draw.weight((5, 6))], y, "FullyConnectedOptions", keepNumDims=True)
    assert draw.compared(y) == (60, 0)


@pytest.mark.parametrize("name", ["ADD", "SUB"])
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape, activation", [((1, 2, 3, 50), NONE), ((1, 1, 1, 50), RELU), ((50,), RELU6)])
def test_sums(seed, name, dtype, shape, activation):
    draw = Draw(seed, dtype)
    a, y = draw.input(5, 2, 3, 50), draw.output(5, 2, 3, 50, **draw.scheme(2))
    b = draw.input(5, 2, 3, 50) if shape[1:2] == (2,) else draw.net.constant(draw.codes(shape), **draw.scheme())
    options = {"fusedActivationFunction": activation, "potScaleInt16": False}
    draw.net.op(name, [a, b], y, f"{name.title()}Options", **options)
    count, different = draw.compared(y)
    assert count >= 1500 and different == 0


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("activation", [NONE, RELU, RELU_N1_TO_1])
def test_products(seed, dtype, activation):
    """Of two tensors, one of which has one row for each sample."""
    draw = Draw(seed, dtype)
    a, b = draw.input(5, 2, 3, 50), draw.input(5, 1, 1, 50)
    y = draw.output(5, 2, 3, 50, **draw.scheme(1.5))
    draw.net.op("MUL", [a, b], y, "MulOptions", fusedActivationFunction=activation)
    assert draw.compared(y) == (1500, 0)


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(
    "padding, strides, size", [(SAME, (1, 2), (7, 3)), (VALID, (2, 1), (3, 5)), (SAME, (3, 3), (3, 2))]
)
def test_pools(seed, name, dtype, padding, strides, size):
    draw = Draw(seed, dtype)
    scheme = draw.scheme()
    x, y = draw.input(4, 7, 6, 3, **scheme), draw.output(4, *size, 3, **scheme)
    options = {"padding": padding, "strideH": strides[0], "strideW": strides[1], "filterHeight": 3, "filterWidth": 2,
               "fusedActivationFunction": RELU if seed == 1 else NONE}  # fmt: skip
    draw.net.op(name, [x], y, "Pool2DOptions", **options)
    assert draw.compared(y) == (4 * size[0] * size[1] * 3, 0)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(
    "axes, kept, shape", [((1, 2), True, (4, 1, 1, 9)), ((2, 1), False, (4, 9)), ((-1,), False, (4, 5, 7))]
)
def test_means(seed, dtype, axes, kept, shape):
    draw = Draw(seed, dtype)
    x, y = draw.input(4, 5, 7, 9), draw.output(*shape, **draw.scheme(0.3))
    draw.net.op("MEAN", [x, draw.net.constant(np.int32(axes))], y, "ReducerOptions", keepDims=kept)
    assert draw.compared(y) == (int(np.prod(shape)), 0)


@pytest.mark.parametrize("dtype, made", [(np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.int16)])
@pytest.mark.parametrize("size", [2, 10, 300])
def test_softmax(seed, dtype, made, size):
    """Scales from those of nearly equal powers to those of which one is all, which leave out some."""
    draw = Draw(seed, dtype)
    scheme = draw.scheme([0.1, 1, 30][seed])
    x = draw.input(60, size, **scheme)
    draw.values[0] = (draw.values[0] // (1 + np.arange(60)[:, None])).astype(dtype)
    ends = np.iinfo(made)
    y = draw.output(60, size, dtype=made, scale=2.0**-ends.bits, zero=int(ends.min))
    draw.net.op("SOFTMAX", [x], y, "SoftmaxOptions", beta=1.0 if seed else 0.7)
    assert draw.compared(y) == (60 * size, 0)


#: Operators of one code, options, and the scale and the zero point over the least code of the result, if fixed.
FUNCTIONS = [("RELU", None, {}, None), ("RELU6", None, {}, None), ("RELU_N1_TO_1", None, {}, None),
             ("RELU_0_TO_1", None, {}, None), ("LEAKY_RELU", "LeakyReluOptions", {"alpha": 0.3}, None),
             ("LEAKY_RELU", "LeakyReluOptions", {"alpha": -0.3}, None),
             ("HARD_SWISH", None, {}, None), ("LOGISTIC", None, {}, (1 / 256, 0)), ("TANH", None, {}, (1 / 128, 128)),
             ("QUANTIZE", None, {}, None)]  # fmt: skip


def all_codes(dtype):
    ends = np.iinfo(dtype)
    return np.arange(ends.min, ends.max + 1).astype(dtype)[None]


@pytest.mark.parametrize("name, options, values, fixed", FUNCTIONS, ids=[name for name, *_ in FUNCTIONS])
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("seed", range(5))
def test_functions_of_all_codes(seed, name, options, values, fixed, dtype):
    draw = Draw(seed, dtype)
    x = draw.input(1, 256, **draw.scheme(1.7))
    draw.values[0] = all_codes(dtype)
    scheme = draw.scheme(1.5) if fixed is None else {"scale": fixed[0], "zero": int(np.iinfo(dtype).min + fixed[1])}
    y = draw.output(1, 256, **scheme)
    draw.net.op(name, [x], y, options, **values)
    assert draw.compared(y) == (256, 0)


@pytest.mark.parametrize("name, options, values", [
    ("RELU", None, {}), ("LEAKY_RELU", "LeakyReluOptions", {"alpha": 0.3}), ("QUANTIZE", None, {}),
])  # fmt: skip
def test_functions_of_16_bits(seed, name, options, values):
    draw = Draw(seed, np.int16)
    x = draw.input(1, 65536)
    draw.values[0] = all_codes(np.int16)
    y = draw.output(1, 65536)
    draw.net.op(name, [x], y, options, **values)
    assert draw.compared(y) == (65536, 0)


@pytest.mark.parametrize("size", [1, 2, 10, 3000])
@pytest.mark.parametrize("scale", [1e-5, 2.0**-12, 1e-3, 0.03, 2.0])
def test_softmax_of_16_bits(scale, size):
    draw = Draw(size, np.int16)
    x = draw.input(60, size, scale=scale, zero=0)
    draw.values[0] = (draw.values[0] // (1 + np.arange(60)[:, None])).astype(np.int16)
    y = draw.output(60, size, scale=2.0**-15, zero=0)
    draw.net.op("SOFTMAX", [x], y, "SoftmaxOptions", beta=1.0 if size > 2 else 0.7)
    assert compared_codes(draw.net.bytes([x], [y]), *draw.values) == (60 * size, 0)


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [1e-5, 2.0**-13, 2.0**-12, 1.0005 * 2.0**-12, 2.0**-11, 3e-4, 1e-3, 0.01, 0.3, 2.6])
def test_sigmoids_of_16_bits(name, scale):
    """All codes; a scale that is nearly a power of two is taken for it."""
    draw = Draw(0, np.int16)
    x = draw.input(1, 65536, scale=scale, zero=0)
    draw.values[0] = all_codes(np.int16)
    y = draw.output(1, 65536, scale=2.0**-15, zero=0)
    draw.net.op(name, [x], y)
    assert compared_codes(draw.net.bytes([x], [y]), *draw.values) == (65536, 0)


@pytest.mark.parametrize(
    "source, target", [(np.int8, np.uint8), (np.uint8, np.int8), (np.int8, np.int16), (np.int16, np.int8)]
)
def test_conversions(seed, source, target):
    """QUANTIZE between types."""
    draw, other = Draw(seed, source), Draw(seed + 5, target)
    values = all_codes(source)
    x = draw.input(1, values.size)
    draw.values[0] = values
    y = draw.output(1, values.size, dtype=target, **other.scheme())
    draw.net.op("QUANTIZE", [x], y)
    assert draw.compared(y) == (values.size, 0)


@pytest.mark.parametrize("dtype", BYTES)
def test_floats_at_both_ends(seed, dtype):
    """QUANTIZE of an input and DEQUANTIZE of an output, with numbers in the middle between two codes."""
    draw = Draw(seed, dtype)
    x = draw.net.tensor([1, 4000])
    scheme = draw.scheme() | ({"scale": 0.125} if seed == 0 else {})
    q, r, s = draw.output(1, 4000, **scheme), draw.output(1, 4000, **scheme), draw.output(1, 4000)
    y = draw.net.tensor([1, 4000])
    values = draw.rng.integers(-600, 600, (1, 4000)) / 2 * scheme["scale"]
    draw.net.op("QUANTIZE", [x], q)
    draw.net.op("RELU", [q], r)
    draw.net.op("QUANTIZE", [r], s)
    draw.net.op("DEQUANTIZE", [s], y)
    assert compared_codes(draw.net.bytes([x], [y]), values.astype(np.float32)) == (3 * 4000, 0)


@pytest.mark.parametrize("seed", range(8))
def test_dequantised_and_quantised_again(seed):
    draw = Draw(seed, np.int8)
    x, f, y = draw.input(1, 256), draw.net.tensor([1, 256]), draw.output(1, 256)
    draw.values[0] = all_codes(np.int8)
    draw.net.op("DEQUANTIZE", [x], f)
    draw.net.op("QUANTIZE", [f], y)
    assert draw.compared(y) == (256, 0)


@pytest.mark.parametrize("dtype", KINDS)
def test_moves(seed, dtype):
    """Shapes, order, padding and concatenation."""
    draw = Draw(seed, dtype)
    scheme = draw.scheme()
    x = draw.input(3, 4, 5, **scheme)
    shapes = [(3, 5, 4), (3, 2, 10), (3, 1, 2, 10), (3, 2, 10), (3, 6, 8), (3, 6, 8), (3, 12, 8)]
    turned, flat, deep, squeezed, around, beside, joined = (draw.output(*shape, **scheme) for shape in shapes)
    order, shape, axis = (draw.net.constant(np.int32(values)) for values in ([0, 2, 1], [3, 2, -1], [1]))
    widths = [draw.net.constant(np.int32(values)) for values in ([[0, 0], [1, 1], [0, 3]], [[0, 0], [2, 0], [0, 3]])]
    value = draw.net.constant(draw.codes([1]), **scheme)
    draw.net.op("TRANSPOSE", [x, order], turned)
    draw.net.op("RESHAPE", [turned, shape], flat)
    draw.net.op("EXPAND_DIMS", [flat, axis], deep)
    draw.net.op("SQUEEZE", [deep], squeezed, "SqueezeOptions", squeezeDims=[1])
    draw.net.op("PAD", [x, widths[0]], around)
    draw.net.op("PADV2", [x, widths[1], value], beside)
    draw.net.op("CONCATENATION", [around, beside], joined, "ConcatenationOptions", axis=-2)
    assert draw.compared([joined, squeezed]) == (3 * (20 * 4 + 48 * 2 + 96), 0)


def test_parts_with_scales_of_their_own(seed):
    """CONCATENATION of codes of uint8."""
    draw = Draw(seed, np.uint8)
    parts, y = [draw.input(1, 256), draw.input(1, 256)], draw.output(1, 512)
    draw.values[:] = [all_codes(np.uint8)] * 2
    draw.net.op("CONCATENATION", parts, y, "ConcatenationOptions", axis=1)
    assert draw.compared(y) == (512, 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_operators_that_become_several(seed, dtype):
    count, different = compared_codes(*tflite_draws.lowered_operators(seed, dtype))
    assert count > 2500 and different == 0


def test_a_rounding_of_shares_counts():
    """Halves of an image that grows by two are rounded away from zero."""
    net = Net()
    x = net.tensor((1, 1, 2, 1), np.int8, **ANY)
    sizes = net.constant(np.int32([1, 4]))
    y = net.op("RESIZE_BILINEAR", [x, sizes], net.tensor((1, 1, 4, 1), np.int8, **ANY), "ResizeBilinearOptions")
    codes = np.int8([[[[-3], [0]]], [[[4], [3]]]])
    (made,) = load(net.bytes([x], [y])).run({"tensor0": codes}).values()
    assert made.ravel().tolist() == [-3, -2, 0, 0, 4, 4, 3, 3]
