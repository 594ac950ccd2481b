"""Networks of TensorFlow Lite in files for NumPy, PyTorch and ONNX Runtime: fixed point in operations on arrays."""

import numpy as np
import pytest

from concord import integer
from support.exact_files import LIBRARIES, different
from support.frameworks import missing
from support.trained import DATA, needs_data

if missing("tflite"):
    pytest.skip(missing("tflite"), allow_module_level=True)

from support.tflite_models import Net

SAME, VALID = 0, 1
NONE, RELU, RELU6 = 0, 1, 3


@pytest.fixture(params=LIBRARIES)
def library(request):
    return request.param


class Draw:
    """A network that grows, with random schemes and constants."""

    def __init__(self, seed, dtype):
        self.rng, self.dtype, self.ends, self.net = np.random.default_rng(seed), np.dtype(dtype), np.iinfo(dtype), Net()

    def scheme(self, factor=1.0):
        scale = float(np.float32(np.exp(self.rng.uniform(-0.7, 0.7)) * 0.03 * factor))
        if self.dtype == np.int16:
            return {"scale": scale / 200, "zero": 0}
        return {"scale": scale, "zero": int(self.ends.min + self.rng.integers(90, 170))}

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
    """A network with every operation that is computed in fixed point, and codes for its input."""
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
    if dtype != np.int16:
        ends = np.iinfo(dtype)
        shares = net.tensor((5, 10), dtype, scale=1 / 256, zero=int(ends.min))
        outputs.append(net.op("SOFTMAX", [dense], shares, "SoftmaxOptions", beta=1.0))
    codes = draw.rng.integers(draw.ends.min, draw.ends.max + 1, (5, 8, 6, 4)).astype(dtype)
    return integer.load(net.bytes([x], outputs)), codes


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("seed", range(3))
def test_every_operation(seed, dtype, library, tmp_path):
    network, codes = every_operation(seed, dtype)
    (name,) = network.graph.inputs
    assert different(network, library, tmp_path, {name: codes}) == 0
    less, mean, flat, dense, *_ = network.run({name: codes}).values()
    assert min(len(np.unique(values)) for values in (less, mean, flat, dense)) > 8  # not all of them are saturated


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name, file", [("ic_resnet8", "ic_cifar10"), ("kws_dscnn", "kws_mfcc_int8"),
                                        ("vww_mobilenetv1_025", "vww_coco")])  # fmt: skip
def test_official_files(name, file, library, tmp_path):
    network = integer.load(DATA / "models" / "tflite_int8" / f"{name}_int8.tflite")
    (tensor,) = network.graph.inputs
    shape = network.graph.shapes[tensor][1:]
    codes = np.random.default_rng(0).integers(-128, 128, (2, *shape)).astype(np.int8)
    assert different(network, library, tmp_path, {tensor: codes}) == 0
