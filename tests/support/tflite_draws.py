"""Random networks of TensorFlow Lite: one with every operation in fixed point, one of tables and movements."""

import numpy as np

from support.tflite_models import Net

SAME, VALID = 0, 1
NONE, RELU, RELU6 = 0, 1, 3


class Draw:
    """A network that grows, with random schemes and constants."""

    def __init__(self, seed, dtype):
        self.rng, self.dtype, self.ends, self.net = np.random.default_rng(seed), np.dtype(dtype), np.iinfo(dtype), Net()

    def scheme(self, factor=1.0):
        scale = float(np.float32(np.exp(self.rng.uniform(-0.7, 0.7)) * 0.03 * factor))
        if self.dtype == np.int16:
            return {"scale": scale / 200, "zero": 0}
        return {"scale": scale, "zero": int(self.ends.min + self.rng.integers(90, 170))}

    def from_0_to_1(self):
        """The scheme of shares."""
        if self.dtype == np.int16:
            return {"scale": 2.0**-15, "zero": 0}
        return {"scale": 1 / 256, "zero": int(self.ends.min)}

    def tensor(self, *shape, factor=1.0):
        return self.net.tensor(shape, self.dtype, **self.scheme(factor))

    def product(self, name, options, x, shape, weight, axis, factor, **values):
        """A product with weights, which have a scale for each channel if codes have a sign."""
        dtype = np.uint8 if self.dtype == np.uint8 else np.int8
        ends, count = np.iinfo(dtype), None if dtype == np.uint8 or axis is None else weight[axis]
        codes = self.rng.integers(ends.min, ends.max + 1, weight).astype(dtype)
        scale = np.float32(np.exp(self.rng.uniform(-0.7, 0.7, count)) * 0.01)
        w = self.net.constant(codes, scale=scale, zero=121 if dtype == np.uint8 else 0, axis=axis or 0)
        channels, wide = weight[axis or 0], self.dtype == np.int16
        bias = self.rng.integers(-4000, 4000, channels).astype(np.int64 if wide else np.int32)
        source = np.float32(self.net.graph.tensors[x].quantization.scale)
        b = self.net.constant(bias, scale=source * np.float32(self.net.graph.tensors[w].quantization.scale))
        y = self.tensor(*shape, factor=factor)
        return self.net.op(name, [x, w, b], y, options, **values)


def windows(padding=SAME, strides=(1, 1), activation=NONE, **more):
    return {"padding": padding, "strideH": strides[0], "strideW": strides[1], "dilationHFactor": 1,
            "dilationWFactor": 1, "fusedActivationFunction": activation, **more}  # fmt: skip


def every_operation(seed, dtype):
    """The file of a network with every operation that is computed in fixed point, and codes for its input."""
    draw = Draw(seed, dtype)
    net, x = draw.net, draw.tensor(5, 8, 6, 4)
    conv = draw.product("CONV_2D", "Conv2DOptions", x, (5, 8, 6, 8), (8, 3, 2, 4), 0, 12, **windows())
    deep = draw.product("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", conv, (5, 8, 6, 8), (1, 3, 3, 8), 3, 5,
                        **windows(activation=RELU, depthMultiplier=1))  # fmt: skip
    total = net.op("ADD", [conv, deep], draw.tensor(5, 8, 6, 8, factor=2), "AddOptions", potScaleInt16=False)
    less = net.op("SUB", [total, deep], draw.tensor(5, 8, 6, 8, factor=2), "SubOptions", potScaleInt16=False)
    scaled = net.op("MUL", [less, total], draw.tensor(5, 8, 6, 8, factor=4), "MulOptions", fusedActivationFunction=RELU)
    scheme = {"scale": net.graph.tensors[scaled].quantization.scale[0],
              "zero": net.graph.tensors[scaled].quantization.zeroPoint[0]}  # fmt: skip
    pooled = net.op("MAX_POOL_2D", [scaled], net.tensor((5, 4, 3, 8), dtype, **scheme), "Pool2DOptions", padding=VALID,
                    strideH=2, strideW=2, filterHeight=2, filterWidth=2)  # fmt: skip
    mean = net.op("AVERAGE_POOL_2D", [pooled], net.tensor((5, 4, 2, 8), dtype, **scheme), "Pool2DOptions", padding=SAME,
                  strideH=1, strideW=2, filterHeight=3, filterWidth=2)  # fmt: skip
    axes = net.constant(np.int32([1, 2]))
    flat = net.op("MEAN", [x, axes], draw.tensor(5, 4, factor=0.3), "ReducerOptions", keepDims=False)
    dense = draw.product("FULLY_CONNECTED", "FullyConnectedOptions", flat, (5, 10), (10, 4), None, 3)
    outputs = [less, mean, flat, dense]
    shares = net.tensor((5, 10), dtype, **draw.from_0_to_1())
    outputs.append(net.op("SOFTMAX", [dense], shares, "SoftmaxOptions", beta=1.0))
    codes = draw.rng.integers(draw.ends.min, draw.ends.max + 1, (5, 8, 6, 4)).astype(dtype)
    return net.bytes([x], outputs), codes


def tables_and_moves(seed, dtype):
    """The file of a network of what is looked up, and of what only moves, and codes for its input."""
    draw = Draw(seed, dtype)
    net, scheme = draw.net, draw.scheme()

    def alike(*shape):
        return net.tensor(shape, dtype, **scheme)

    def table(name, x, options=None, scheme=None, **values):
        shape = net.graph.tensors[x].shape
        y = net.tensor(shape, dtype, **(scheme or draw.scheme()))
        return net.op(name, [x], y, options, **values)

    def integers(*values):
        return net.constant(np.int32(values))

    x = alike(3, 4, 5, 2)
    turned = net.op("TRANSPOSE", [x, integers(0, 3, 1, 2)], alike(3, 2, 4, 5))
    flat = net.op("RESHAPE", [turned, integers(3, 8, 5)], alike(3, 8, 5))
    deep = net.op("EXPAND_DIMS", [flat, integers(1)], alike(3, 1, 8, 5))
    squeezed = net.op("SQUEEZE", [deep], alike(3, 8, 5), "SqueezeOptions", squeezeDims=[1])
    around = net.op("PAD", [squeezed, integers([0, 0], [1, 1], [0, 3])], alike(3, 10, 8))
    value = net.constant(np.full(1, draw.ends.min + 7, dtype), **scheme)
    beside = net.op("PADV2", [squeezed, integers([0, 0], [0, 0], [2, 1]), value], alike(3, 8, 8))
    joined = net.op("CONCATENATION", [around, beside], alike(3, 18, 8), "ConcatenationOptions", axis=1)
    limited = table("RELU", joined)
    leaky = table("LEAKY_RELU", limited, "LeakyReluOptions", alpha=0.3)
    outputs = [joined, leaky, table("QUANTIZE", leaky)]
    outputs += [table(name, x) for name in ("RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")]
    shares = draw.from_0_to_1()
    signed = shares if dtype == np.int16 else {"scale": 1 / 128, "zero": int(draw.ends.min) + 128}
    outputs += [table("LOGISTIC", x, scheme=shares), table("TANH", x, scheme=signed)]
    if dtype != np.int16:
        outputs.append(table("HARD_SWISH", x))
    codes = draw.rng.integers(draw.ends.min, draw.ends.max + 1, (3, 4, 5, 2)).astype(dtype)
    return net.bytes([x], outputs), codes


def lowered_operators(seed, dtype):
    """The file of a network of every operator that becomes several others, or is moved to places; codes for its input.

    Kernels for uint8 are other ones, or there are none, for some of them; there are fewer for int16.
    """
    draw = Draw(seed, dtype)
    net, shape = draw.net, (3, 4, 6, 4)
    scheme = draw.scheme()

    def alike(*sizes):
        return net.tensor(sizes, dtype, **scheme)

    def integers(*values):
        return net.constant(np.int32(values))

    x = alike(*shape)
    wide = dtype == np.int16
    outputs = []
    for padding, strides, kernel, size in ((SAME, (2, 3), (3, 4), (8, 18)), (VALID, (1, 2), (2, 1), (5, 11))):
        codes = draw.rng.integers(-127, 128, (3, *kernel, 4)).astype(np.uint8 if dtype == np.uint8 else np.int8)
        scales = np.float32(draw.rng.uniform(0.003, 0.01, None if dtype == np.uint8 else 3))
        w = net.constant(codes, scale=scales, zero=121 if dtype == np.uint8 else 0)
        bias = draw.rng.integers(-4000, 4000, 3).astype(np.int64 if wide else np.int32)
        b = net.constant(bias, scale=np.float32(scheme["scale"]) * scales)
        made = draw.tensor(3, *size, 3, factor=4)
        net.op("TRANSPOSE_CONV", [integers(3, *size, 3), w, x, b], made, "TransposeConvOptions", padding=padding,
               strideH=strides[0], strideW=strides[1])  # fmt: skip
        outputs.append(made)
    sizes = [(False, True, (8, 12)), (True, False, (7, 9)), (False, False, (8, 3))]
    if not wide:  # whose shares have 20 bits
        sizes += [(False, True, (10, 13)), (True, False, (6, 7)), (False, False, (3, 11))]
    for aligned, centred, size in sizes:
        corners = {"alignCorners": aligned, "halfPixelCenters": centred}
        if dtype != np.uint8:
            outputs.append(net.op("RESIZE_BILINEAR", [x, integers(*size)], alike(3, *size, 4), "ResizeBilinearOptions",
                                  **corners))  # fmt: skip
        outputs.append(net.op("RESIZE_NEAREST_NEIGHBOR", [x, integers(*size)], alike(3, *size, 4),
                              "ResizeNearestNeighborOptions", **corners))  # fmt: skip
    reverse = net.op("REVERSE_V2", [x, integers(1)], alike(*shape))
    outputs.append(net.op("MAXIMUM", [x, reverse], alike(*shape)))
    outputs.append(net.op("MINIMUM", [x, reverse], alike(*shape)))
    limit = net.constant(np.full((), draw.ends.min + 110, dtype), **scheme)
    outputs.append(net.op("MINIMUM", [limit, x], alike(*shape)))
    outputs.append(net.op("REDUCE_MAX", [x, integers(1, 2)], alike(3, 4), "ReducerOptions", keepDims=False))
    outputs.append(net.op("REDUCE_MIN", [x, integers(-2)], alike(3, 4, 1, 4), "ReducerOptions", keepDims=True))
    outputs.append(net.op("GATHER", [x, integers(3, 0, 3)], alike(3, 4, 3, 4), "GatherOptions", axis=2))
    outputs.append(net.op("GATHER", [x, net.constant(np.int32(1))], alike(3, 4, 4), "GatherOptions", axis=2))
    mirrored = [[0, 0], [1, 2], [0, 3], [0, 0]]
    outputs.append(net.op("MIRROR_PAD", [x, integers(*mirrored)], alike(3, 7, 9, 4), "MirrorPadOptions", mode=seed % 2))
    if dtype != np.uint8:
        turned = net.op(
            "BATCH_MATMUL", [x, reverse], draw.tensor(3, 4, 6, 6, factor=20), "BatchMatMulOptions", adjY=True
        )
        outputs += [
            turned,
            net.op("BATCH_MATMUL", [turned, x], draw.tensor(3, 4, 6, 4, factor=200), "BatchMatMulOptions"),
        ]
    if not wide:
        blocks = {"options": "DepthToSpaceOptions", "blockSize": 2}
        outputs.append(net.op("DEPTH_TO_SPACE", [x], alike(3, 8, 12, 1), **blocks))
        blocks["options"] = "SpaceToDepthOptions"
        outputs.append(net.op("SPACE_TO_DEPTH", [x], alike(3, 2, 3, 16), **blocks))
        slopes = draw.rng.integers(draw.ends.min, draw.ends.max + 1, (1, 1, 4)).astype(dtype)
        slopes = net.constant(slopes, **draw.scheme(0.5))
        outputs.append(net.op("PRELU", [x, slopes], draw.tensor(*shape)))
    if dtype == np.int8:
        other = net.constant(draw.rng.integers(-128, 128, 4).astype(dtype), **draw.scheme())
        outputs.append(net.op("SQUARED_DIFFERENCE", [x, other], draw.tensor(*shape, factor=3)))
        outputs.append(net.op("ABS", [x], draw.tensor(*shape)))
        square = net.op("MUL", [x, x], net.tensor(shape, dtype, scale=0.1, zero=-128), "MulOptions")
        outputs.append(net.op("RSQRT", [square], draw.tensor(*shape)))
        outputs.append(net.op("EXP", [x], draw.tensor(*shape)))
        outputs.append(net.op("LOG", [square], draw.tensor(*shape)))
        outputs.append(net.op("GELU", [x], draw.tensor(*shape), "GeluOptions", approximate=bool(seed % 2)))
        number = net.op("DEQUANTIZE", [x], net.tensor(shape))
        for name in ("NEG", "SQUARE", "ABS", "SQRT", "SIN", "COS"):
            number = net.op(name, [number], net.tensor(shape))
        outputs.append(net.op("QUANTIZE", [number], draw.tensor(*shape)))
    codes = draw.rng.integers(draw.ends.min, draw.ends.max + 1, shape).astype(dtype)
    return net.bytes([x], outputs), codes
