"""TensorFlow Lite files as ONNX, beside the interpreter of LiteRT."""

import numpy as np
import onnx
import onnxruntime
import pytest

import concord
from concord.frontend import UnsupportedModel
from support.frameworks import missing, needs

if missing("tflite"):
    pytest.skip(missing("tflite"), allow_module_level=True)

from concord.frameworks.from_tflite import exported_tflite
from support.tflite_models import Net, interpreted
from support.trained import DATA, needs_data

pytestmark = needs("tflite")

RNG = np.random.default_rng(7)
SAME, VALID = 0, 1
NONE, RELU, RELU_N1_TO_1, RELU6, TANH = range(5)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def reference(proto):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto, options)


def results(data, *inputs):
    """What ONNX Runtime computes of the model that it becomes."""
    proto = exported_tflite(data)
    onnx.checker.check_model(onnx.load_model_from_string(proto), full_check=True)
    session = reference(proto)
    return session.run(None, {value.name: x for value, x in zip(session.get_inputs(), inputs, strict=True)})


def of_floats(shapes, write):
    """A file whose inputs have these shapes; ``write`` adds operators and returns the outputs."""
    net = Net()
    inputs = [net.tensor(shape) for shape in shapes]
    outputs = write(net, *inputs)
    return net.bytes(inputs, [outputs] if isinstance(outputs, int) else outputs)


def one(name, out, options=None, constants=(), **values):
    """A file with one operator."""

    def write(net, *inputs):
        return net.op(name, [*inputs, *map(net.constant, constants)], net.tensor(out), options, **values)

    return write


def conv(kernel, out, constant=True, name="CONV_2D", options="Conv2DOptions", **values):
    values = {"strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1} | values
    return one(name, out, options, (floats(*kernel), floats(out[3])), **values)


def transposed(net, x):
    """The size of the result comes first, and the image last."""
    operands = [indices(1, 12, 13, 5), floats(5, 3, 3, 3)]
    operands = [*map(net.constant, operands), x, net.constant(floats(5))]
    output = net.tensor((1, 12, 13, 5))
    return net.op("TRANSPOSE_CONV", operands, output, "TransposeConvOptions", padding=SAME, strideH=2, strideW=2)


def indices(*values):
    return np.array(values, np.int32)


def lstm(time_major=False, peephole=False):
    """A layer as converters write it, with states that the interpreter keeps."""

    def write(net, x):
        units, (features, *_) = 4, reversed(net.graph.tensors[x].shape)
        weights = [net.constant(floats(units, n)) for n in (features, units) for _ in range(4)]
        biases = [net.constant(floats(units)) for _ in range(4)]
        states = [net.tensor((1, units)) for _ in range(2)]
        for state in states:
            net.graph.tensors[state].isVariable = True
        beside = [net.constant(floats(units)) if peephole else -1] * 3
        operands = [x, *weights, *beside, *biases, -1, -1, *states, -1, -1, -1, -1]
        shape = (*net.graph.tensors[x].shape[:2], units)
        return net.op("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, net.tensor(shape), "UnidirectionalSequenceLSTMOptions",
                      fusedActivationFunction=TANH, cellClip=10.0, timeMajor=time_major)  # fmt: skip

    return write


IMAGE = (1, 6, 7, 3)
CASES = {
    "conv": ([IMAGE], conv((5, 3, 3, 3), (1, 6, 7, 5), padding=SAME)),
    "conv of strides": ([IMAGE], conv((5, 3, 2, 3), (1, 3, 3, 5), padding=SAME, strideH=2, strideW=3,
                                      fusedActivationFunction=RELU6)),
    "conv of dilations": ([IMAGE], conv((5, 2, 3, 3), (1, 4, 3, 5), padding=VALID, dilationHFactor=2, dilationWFactor=2,
                                        fusedActivationFunction=RELU)),
    "conv of groups": ([(1, 6, 7, 4)], conv((6, 3, 3, 2), (1, 6, 7, 6), padding=SAME)),
    "depthwise": ([IMAGE], conv((1, 3, 3, 6), (1, 3, 4, 6), name="DEPTHWISE_CONV_2D", options="DepthwiseConv2DOptions",
                                padding=SAME, depthMultiplier=2, strideH=2, strideW=2)),
    "transposed conv": ([IMAGE], transposed),
    "dense": ([(1, 6)], one("FULLY_CONNECTED", (1, 4), "FullyConnectedOptions", (floats(4, 6), floats(4)),
                            fusedActivationFunction=RELU)),
    "dense of an image": ([IMAGE], one("FULLY_CONNECTED", (1, 4), "FullyConnectedOptions", (floats(4, 126),))),
    "dense of rows": ([(1, 5, 6)], one("FULLY_CONNECTED", (1, 5, 4), "FullyConnectedOptions", (floats(4, 6), floats(4)),
                                       keepNumDims=True)),
    "average": ([IMAGE], one("AVERAGE_POOL_2D", (1, 3, 4, 3), "Pool2DOptions", padding=SAME, strideH=2, strideW=2,
                             filterHeight=3, filterWidth=3)),
    "maximum": ([IMAGE], one("MAX_POOL_2D", (1, 3, 3, 3), "Pool2DOptions", padding=VALID, strideH=2, strideW=2,
                             filterHeight=2, filterWidth=2)),
    "mean of an image": ([IMAGE], one("MEAN", (1, 3), "ReducerOptions", (indices(1, 2),))),
    "mean that keeps axes": ([IMAGE], one("MEAN", (1, 1, 1, 3), "ReducerOptions", (indices(1, -2),), keepDims=True)),
    "sum of channels": ([IMAGE], one("SUM", (1, 6, 7), "ReducerOptions", (indices(3),))),
    "greatest": ([(1, 5, 4)], one("REDUCE_MAX", (1, 4), "ReducerOptions", (indices(1),))),
    "add": ([IMAGE, IMAGE], one("ADD", IMAGE, "AddOptions", fusedActivationFunction=RELU)),
    "add of channels": ([IMAGE], one("ADD", IMAGE, "AddOptions", (floats(3),))),
    "difference": ([(1, 4), (1, 4)], one("SUB", (1, 4), "SubOptions")),
    "product": ([(1, 4), (1, 4)], one("MUL", (1, 4), "MulOptions")),
    "squared difference": ([(1, 4), (1, 4)], one("SQUARED_DIFFERENCE", (1, 4), "SquaredDifferenceOptions")),
    "softmax": ([(1, 5)], one("SOFTMAX", (1, 5), "SoftmaxOptions", beta=2.0)),
    "log softmax": ([(1, 5)], one("LOG_SOFTMAX", (1, 5), "LogSoftmaxOptions")),
    "leaky": ([(1, 5)], one("LEAKY_RELU", (1, 5), "LeakyReluOptions", alpha=0.2)),
    "gelu": ([(1, 5)], one("GELU", (1, 5), "GeluOptions", approximate=False)),
    "hard swish": ([(1, 5)], one("HARD_SWISH", (1, 5), "HardSwishOptions")),
    "concat": ([IMAGE, IMAGE], one("CONCATENATION", (1, 6, 7, 6), "ConcatenationOptions", axis=-1)),
    "pad": ([IMAGE], one("PAD", (1, 9, 8, 3), "PadOptions", (np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32),))),
    "transpose": ([(1, 2, 3)], one("TRANSPOSE", (1, 3, 2), "TransposeOptions", (indices(0, 2, 1),))),
    "reshape": ([IMAGE], one("RESHAPE", (1, 126), "ReshapeOptions", (indices(1, 126),), newShape=[1, 126])),
    "slice": ([(1, 5, 4)], one("SLICE", (1, 2, 4), "SliceOptions", (indices(0, 1, 0), indices(1, 2, -1)))),
    "strided slice": ([(1, 6, 4)], one("STRIDED_SLICE", (1, 3), "StridedSliceOptions",
                                       (indices(0, -1, 1), indices(1, 0, 9), indices(1, 1, 1)), beginMask=1,
                                       shrinkAxisMask=2)),
    "nearest": ([IMAGE], one("RESIZE_NEAREST_NEIGHBOR", (1, 12, 14, 3), "ResizeNearestNeighborOptions",
                             (indices(12, 14),), halfPixelCenters=True)),
    "bilinear": ([IMAGE], one("RESIZE_BILINEAR", (1, 9, 11, 3), "ResizeBilinearOptions", (indices(9, 11),),
                              alignCorners=True)),
    "prelu": ([IMAGE], one("PRELU", IMAGE, None, (floats(1, 1, 3),))),
    "prelu of a convolution": ([IMAGE], lambda net, x: net.op("PRELU", [
        conv((3, 3, 3, 3), IMAGE, padding=SAME)(net, x), net.constant(floats(1, 1, 3))], net.tensor(IMAGE))),
    "gather": ([(1, 5, 4)], one("GATHER", (1, 3, 4), "GatherOptions", (indices(3, 0, 3),), axis=1)),
    "mirror": ([IMAGE], one("MIRROR_PAD", (1, 8, 8, 3), "MirrorPadOptions",
                            (np.array([[0, 0], [1, 1], [0, 1], [0, 0]], np.int32),))),
    "depth to space": ([(1, 3, 2, 8)], one("DEPTH_TO_SPACE", (1, 6, 4, 2), "DepthToSpaceOptions", blockSize=2)),
    "space to depth": ([(1, 4, 6, 3)], one("SPACE_TO_DEPTH", (1, 2, 3, 12), "SpaceToDepthOptions", blockSize=2)),
    "lstm": ([(1, 5, 3)], lstm()),
    "lstm of steps": ([(5, 1, 3)], lstm(time_major=True)),
    "selection": ([(1, 5), (1, 5)], lambda net, x, y: net.op("SELECT_V2", [
        net.op("GREATER", [x, y], net.tensor((1, 5), np.bool_)), x, net.constant(floats(5))], net.tensor((1, 5)))),
    "matrices": ([(1, 2, 3), (1, 4, 3)], one("BATCH_MATMUL", (1, 2, 4), "BatchMatMulOptions", adjY=True)),
}  # fmt: skip
for _name in ("RELU", "RELU6", "RELU_N1_TO_1", "ELU", "LOGISTIC", "TANH", "EXP", "ABS", "NEG", "SQUARE", "SIN", "COS"):
    CASES[_name.lower()] = ([(1, 5)], one(_name, (1, 5)))


@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_floats(name):
    shapes, write = CASES[name]
    data = of_floats(shapes, write)
    inputs = [3 * floats(*shape) for shape in shapes]
    for got, want in zip(results(data, *inputs), interpreted(data, *inputs), strict=True):
        assert got.shape == want.shape and np.abs(got - want).max() < 1e-4 * max(np.abs(want).max(), 1)


def coded(net, shape, scale=0.05, zero=3, dtype=np.int8):
    return net.tensor(shape, dtype, scale, zero)


def quantised_image(dtype=np.int8):
    """Convolutions with a scale per channel, a sum, a pool, a dense layer and a softmax of codes."""
    net = Net()
    x = coded(net, (1, 8, 8, 3), dtype=dtype)
    middle = np.dtype(dtype).kind == "u" and 128

    def weights(shape, axis, count):
        scales, codes = RNG.uniform(0.01, 0.03, count), RNG.integers(-127, 128, shape).astype(np.int8)
        return net.constant(codes, scale=scales, axis=axis), scales

    def bias(scales, of, count=8):
        return net.constant(RNG.integers(-500, 500, count).astype(np.int32), scale=of * scales)

    w, scales = weights((8, 3, 3, 3), 0, 8)
    first = net.op(
        "CONV_2D",
        [x, w, bias(scales, 0.05)],
        coded(net, (1, 8, 8, 8), 0.1, middle - 128, dtype),
        "Conv2DOptions",
        padding=SAME,
        strideH=1,
        strideW=1,
        dilationHFactor=1,
        dilationWFactor=1,
        fusedActivationFunction=RELU,
    )
    w, scales = weights((1, 3, 3, 8), 3, 8)
    second = net.op(
        "DEPTHWISE_CONV_2D",
        [first, w, bias(scales, 0.1)],
        coded(net, (1, 8, 8, 8), 0.2, middle, dtype),
        "DepthwiseConv2DOptions",
        padding=SAME,
        strideH=1,
        strideW=1,
        depthMultiplier=1,
        dilationHFactor=1,
        dilationWFactor=1,
    )
    total = net.op("ADD", [first, second], coded(net, (1, 8, 8, 8), 0.2, middle, dtype), "AddOptions")
    pooled = net.op(
        "AVERAGE_POOL_2D",
        [total],
        coded(net, (1, 1, 1, 8), 0.2, middle, dtype),
        "Pool2DOptions",
        padding=VALID,
        strideH=8,
        strideW=8,
        filterHeight=8,
        filterWidth=8,
    )
    flat = net.op(
        "RESHAPE",
        [pooled, net.constant(indices(1, 8))],
        coded(net, (1, 8), 0.2, middle, dtype),
        "ReshapeOptions",
        newShape=[1, 8],
    )
    w = net.constant(RNG.integers(-127, 128, (5, 8)).astype(np.int8), scale=0.02)
    scores = net.op(
        "FULLY_CONNECTED",
        [flat, w, bias(np.full(1, 0.02), 0.2, 5)],
        coded(net, (1, 5), 0.1, middle, dtype),
        "FullyConnectedOptions",
    )
    out = net.op("SOFTMAX", [scores], coded(net, (1, 5), 1 / 256, middle - 128, dtype), "SoftmaxOptions", beta=1.0)
    return net, x, (first, second, total, flat, scores, out)


def meaning(codes, scale, zero):
    return ((codes.astype(np.float64) - zero) * scale).astype(np.float32)


def test_codes_are_those_of_the_interpreter():
    """It adds up integers, and rounds its own way: codes may be one apart, and behind others that are, some more."""
    net, x, outputs = quantised_image()
    data = net.bytes([x], outputs)
    same = []
    for _ in range(5):
        codes = RNG.integers(-128, 128, (1, 8, 8, 3)).astype(np.int8)
        for k, got, want in zip(outputs, results(data, meaning(codes, 0.05, 3)), interpreted(data, codes), strict=True):
            codes_of = net.graph.tensors[k].quantization
            steps = np.abs(got - meaning(want, codes_of.scale[0], codes_of.zeroPoint[0])) / codes_of.scale[0]
            assert steps.max() < (1.1 if k == outputs[0] else 10)
            same.append((steps < 0.1).mean())
    assert np.mean(same) > 0.9


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_codes_are_kept(dtype):
    """Tensors and weights are codes in the model, and the compiler knows them as such."""
    net, x, outputs = quantised_image(dtype)
    data = net.bytes([x], outputs[-1:])
    proto = onnx.load_model_from_string(exported_tflite(data))
    assert [node.op_type for node in proto.graph.node].count(
        "QuantizeLinear"
    ) == 7  # the reshaped tensor has those in front
    kept = {onnx.helper.tensor_dtype_to_np_dtype(item.data_type) for item in proto.graph.initializer}
    assert {np.dtype(np.int8), np.dtype(np.int32), np.dtype(dtype)} <= kept
    network = concord.compile(data, preset="ecp5-85f")
    codes = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (1, 8, 8, 3)).astype(dtype)
    got, want = network(meaning(codes, 0.05, 3)), results(data, meaning(codes, 0.05, 3))[0]
    assert got.shape == (1, 5) and np.abs(got - want).max() < 0.05
    assert any("quantised model" in line for line in network.warnings)
    assert network.source == "TensorFlow Lite, converted with its codes"


def test_halves_are_weights():
    """As converters write them: a constant in binary16, and an operator that makes floats of it."""
    net = Net()
    x, w = net.tensor((1, 8, 8, 3)), net.constant(floats(4, 3, 3, 3).astype(np.float16))
    wide = net.op("DEQUANTIZE", [w], net.tensor((4, 3, 3, 3)), "DequantizeOptions")
    y = net.op("CONV_2D", [x, wide, net.constant(floats(4))], net.tensor((1, 8, 8, 4)), "Conv2DOptions",
               padding=SAME, strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)  # fmt: skip
    data, image = net.bytes([x], [y]), floats(1, 8, 8, 3)
    assert np.allclose(results(data, image)[0], interpreted(data, image)[0], atol=1e-4)
    assert [node.op_type for node in onnx.load_model_from_string(exported_tflite(data)).graph.node] == [
        "Transpose",
        "Conv",
        "Transpose",
        "Identity",
    ]


def test_layouts_change_where_they_must():
    """Behind an image that goes in, and in front of what does not know channels."""
    net, x, outputs = quantised_image()
    ops = [
        node.op_type for node in onnx.load_model_from_string(exported_tflite(net.bytes([x], outputs[-1:]))).graph.node
    ]
    assert ops.count("Transpose") == 1


def test_the_command_and_python_take_a_file(tmp_path):
    from support.commands import run

    data = of_floats(*CASES["conv"])
    (tmp_path / "net.tflite").write_bytes(data)
    code, text = run("compile", tmp_path / "net.tflite", "--preset", "ecp5-85f", "-o", tmp_path / "net")
    assert code == 0, text
    loaded, image = concord.load(tmp_path / "net"), floats(*IMAGE)
    network = concord.compile(tmp_path / "net.tflite", preset="ecp5-85f")
    assert network.model == loaded.model and network.image.program == loaded.image.program
    (want,) = interpreted(data, image)
    assert np.abs(network(image) - want).max() < 0.05 * np.abs(want).max()


def test_an_embedding_takes_whole_numbers():
    """Negative ones are made positive in the file, as Keras writes it."""
    net = Net()
    x, table = net.tensor((1, 4), np.int32, name="x"), net.constant(floats(6, 3))
    below = net.op("LESS", [x, net.constant(np.int32(0))], net.tensor((1, 4), np.bool_), "LessOptions")
    above = net.op("ADD", [x, net.constant(np.int32(6))], net.tensor((1, 4), np.int32), "AddOptions")
    places = net.op("SELECT_V2", [below, above, x], net.tensor((1, 4), np.int32))
    y = net.op("GATHER", [table, places], net.tensor((1, 4, 3)), "GatherOptions")
    data, words = net.bytes([x], [y]), np.int32([[3, -1, 0, 5]])
    (got,), (want,) = results(data, words), interpreted(data, words)
    assert got.shape == want.shape and np.array_equal(got, want)


@pytest.mark.parametrize(
    "write, reason",
    [
        (one("MIRROR_PAD", (1, 8, 7, 3), "MirrorPadOptions", (np.int32([[0, 0], [1, 1], [0, 0], [0, 0]]),), mode=1),
         "its mode must be REFLECT, not SYMMETRIC"),
        (lambda net, x: lstm(peephole=True)(net, net.op("RESHAPE", [x], net.tensor((1, 42, 3)))), "without peepholes"),
        (lambda net, x: net.op("PRELU", [x, x], net.tensor(IMAGE)), "its slopes must be constant, not computed"),
        (one("GATHER", IMAGE, "GatherOptions", (indices(0, 1),), batchDims=1), "must have no batch dimensions"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_written(write, reason):
    with pytest.raises(UnsupportedModel, match=reason):
        exported_tflite(of_floats([IMAGE], write))


def test_weights_of_an_input_that_is_always_zero():
    """Converters divide by its scale, 0."""
    net = Net()
    x, w = net.tensor((1, 4), np.int16, 0.01), net.constant(np.zeros((2, 4), np.int8), scale=[np.inf, 0.1])
    y = net.op("FULLY_CONNECTED", [x, w], net.tensor((1, 2), np.int16, 0.01), "FullyConnectedOptions")
    with pytest.raises(UnsupportedModel, match="scales of 'tensor1' must be finite, not inf, as for inputs that are"):
        exported_tflite(net.bytes([x], [y]))


def test_codes_of_16_bits_compile():
    """A bias of 64 bits is what its integers mean; the NPU computes in its own formats."""
    net = Net()
    x = coded(net, (1, 8), 1e-4, 0, np.int16)
    scales = RNG.uniform(0.005, 0.01, 4)
    w = net.constant(RNG.integers(-127, 128, (4, 8)).astype(np.int8), scale=scales)
    bias = net.constant(RNG.integers(-(10**6), 10**6, 4), scale=1e-4 * scales)
    y = net.op("FULLY_CONNECTED", [x, w, bias], coded(net, (1, 4), 2e-4, 0, np.int16), "FullyConnectedOptions")
    data, codes = net.bytes([x], [y]), RNG.integers(-32767, 32768, (1, 8)).astype(np.int16)
    want = meaning(interpreted(data, codes)[0], 2e-4, 0)
    got = concord.compile(data, preset="ecp5-85f")(meaning(codes, 1e-4, 0))
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


def test_operators_that_are_not_there_are_named():
    def write(net, x):
        first = net.op("CUMSUM", [x, net.constant(indices(1))], net.tensor((1, 5)), "CumsumOptions")
        return net.op("FLOOR", [first], net.tensor((1, 5)))

    with pytest.raises(UnsupportedModel) as caught:
        exported_tflite(of_floats([(1, 5)], write))
    assert len(caught.value.reasons) == 2
    assert caught.value.reasons[0].startswith("CUMSUM 'tensor2': operator is not supported")
    tanh = conv((5, 3, 3, 3), (1, 6, 7, 5), padding=SAME, fusedActivationFunction=TANH)
    with pytest.raises(UnsupportedModel, match="its activation must be RELU, RELU_N1_TO_1 or RELU6"):
        exported_tflite(of_floats([IMAGE], tanh))


def test_damaged_files_are_one_message():
    """Cut off, or with a byte changed: a model, or one line."""
    net, x, outputs = quantised_image()
    data = net.bytes([x], outputs[-1:])
    refused = 0
    for k in range(0, len(data), 37):
        changed = bytearray(data)
        changed[k] ^= 0x81
        for given in (data[: max(k, 8)], bytes(changed)):
            try:
                exported_tflite(given)
            except ValueError:
                refused += 1
    assert refused > 50


def test_what_is_no_network_is_refused():
    net = Net()
    x = net.tensor((1, 4))
    net.model.subgraphs.append(net.model.subgraphs[0])
    with pytest.raises(ValueError, match="must have one network, not 2"):
        exported_tflite(net.bytes([x], [x]))
    large = Net()
    x = large.tensor((1, 1 << 25))
    with pytest.raises(ValueError, match="'tensor0' must have at most 16777216 elements"):
        exported_tflite(large.bytes([x], [x]))


#: Official networks of MLPerf Tiny in int8, the samples to go with them, and which axes these have there.
OFFICIAL = {
    "ic_resnet8_int8": ("ic_cifar10", (0, 2, 3, 1)),
    "kws_dscnn_int8": ("kws_mfcc_int8", (0, 2, 3, 1)),
}


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("name", OFFICIAL)
def test_official_networks_decide_as_the_interpreter(name):
    """Its results are among the data; the model computes the same codes but for roundings of its own."""
    samples, order = OFFICIAL[name]
    arrays = np.load(DATA / "data" / f"{samples}.npz")
    want = arrays["ref_int8_tflite"][:60].reshape(60, -1)
    proto = exported_tflite((DATA / "models" / "tflite_int8" / f"{name}.tflite").read_bytes())
    x = (arrays["x"][:60].astype(np.float32) - arrays["zero_point"]) * arrays["scale"]
    session = reference(proto)
    rows = np.transpose(x.reshape(60, *arrays["x"].shape[1:]), order).astype(np.float32)
    got = np.concatenate([session.run(None, {session.get_inputs()[0].name: row[None]})[0] for row in rows])
    assert (got.argmax(axis=1) == want.argmax(axis=1)).mean() > 0.98
    assert np.abs(got - (want.astype(float) + 128) / 256).mean() < 0.01
