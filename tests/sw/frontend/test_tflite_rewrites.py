"""Networks of TensorFlow Lite in the forms that its converter writes, as floats and as codes."""

import numpy as np
import onnxruntime
import pytest

from concord.frontend.codes import UnquantisedModel, load
from support.frameworks import missing, needs

if missing("tflite"):
    pytest.skip(missing("tflite"), allow_module_level=True)

from concord.frameworks.from_tflite import exported_tflite
from concord.frontend.tflite_rewrites import read_network
from concord.frontend.tflite_rewriting import live_operators
from support.tflite_models import Net, compared_codes, interpreted

pytestmark = needs("tflite")

VALID, INT32 = 1, 2
SHARES, SIGNED = {"scale": 1 / 256, "zero": -128}, {"scale": 1 / 128, "zero": 0}


class Written:
    """A network of floats, or of codes of int8 with random scales, whose batch is open."""

    def __init__(self, coded, seed=5):
        self.net, self.coded, self.rng = Net(), coded, np.random.default_rng(seed)

    def scheme(self, factor=1.0):
        return {
            "scale": 0.03 * factor * float(np.exp(self.rng.uniform(-0.5, 0.5))),
            "zero": int(self.rng.integers(-20, 20)),
        }

    def tensor(self, *shape, scheme=None, factor=1.0):
        if not self.coded:
            return self.net.tensor(shape)
        return self.net.tensor(shape, np.int8, **(scheme or self.scheme(factor)))

    def alike(self, index, *shape):
        """A tensor with the codes of another one."""
        codes = self.net.graph.tensors[index].quantization
        return self.tensor(*shape, scheme=codes and {"scale": codes.scale[0], "zero": codes.zeroPoint[0]})

    def integers(self, *values):
        return self.net.constant(np.int32(values))

    def constant(self, *shape):
        if not self.coded:
            return self.net.constant(self.rng.normal(0, 0.5, shape).astype(np.float32))
        return self.net.constant(self.rng.integers(-127, 128, shape).astype(np.int8), **self.scheme())

    def weight(self, *shape, axis=0):
        if not self.coded:
            return self.net.constant(self.rng.normal(0, 0.5, shape).astype(np.float32))
        scale = np.float32(self.rng.uniform(0.003, 0.01, shape[axis]))
        return self.net.constant(self.rng.integers(-127, 128, shape).astype(np.int8), scale=scale, axis=axis)

    def op(self, name, inputs, output, options=None, **values):
        return self.net.op(name, inputs, output, options, **values)

    def whole(self, *shape):
        return self.net.tensor(shape, np.int32)

    def samples(self, x, rank):
        """The number of samples, as a tensor."""
        sizes = self.op("SHAPE", [x], self.whole(rank), "ShapeOptions", outType=INT32)
        bounds = [self.integers(0), self.integers(1), self.integers(1)]
        return self.op("STRIDED_SLICE", [sizes, *bounds], self.whole(), "StridedSliceOptions", shrinkAxisMask=1)

    def packed(self, parts):
        return self.op("PACK", parts, self.whole(len(parts)), "PackOptions", valuesCount=len(parts))

    def convolution(self, x, weight, output, depthwise=False):
        """A bias of zeros, as that of the layer is added elsewhere."""
        steps = {"padding": VALID, "strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
        channels = self.net.graph.tensors[output].shape[-1]
        operands = [x, weight, self.net.constant(np.zeros(channels, np.int32 if self.coded else np.float32))]
        if depthwise:
            return self.op("DEPTHWISE_CONV_2D", operands, output, "DepthwiseConv2DOptions", depthMultiplier=1, **steps)
        return self.op("CONV_2D", operands, output, "Conv2DOptions", **steps)

    def dense(self, x, channels, features, *shape):
        return self.op("FULLY_CONNECTED", [x, self.weight(channels, features)], self.tensor(*shape, factor=3),
                       "FullyConnectedOptions")  # fmt: skip


def flattened(at):
    """Flatten, whose shape follows from the number of samples."""
    x = at.tensor(1, 3, 4, 2)
    shape = at.packed([at.samples(x, 4), at.net.constant(np.int32(24))])
    flat = at.op("RESHAPE", [x, shape], at.alike(x, 1, 24), "ReshapeOptions")
    return x, at.dense(flat, 5, 24, 1, 5)


def rows(at):
    """A dense layer of a sequence: its rows are those of a matrix of a size that is computed."""
    x = at.tensor(1, 6, 4)
    sizes = at.op("SHAPE", [x], at.whole(3), "ShapeOptions", outType=INT32)
    front = at.op("GATHER", [sizes, at.integers(0, 1)], at.whole(2), "GatherOptions")
    count = at.op("REDUCE_PROD", [front, at.integers(0)], at.whole(), "ReducerOptions")
    shape = at.packed([count, at.net.constant(np.int32(4))])
    matrix = at.op("RESHAPE", [x, shape], at.alike(x, 1, 1), "ReshapeOptions")
    product = at.dense(matrix, 5, 4, 1, 5)
    back = at.op("CONCATENATION", [front, at.integers(5)], at.whole(3), "ConcatenationOptions")
    y = at.op("RESHAPE", [product, back], at.alike(product, 1, 6, 5), "ReshapeOptions")
    return x, at.op("ADD", [y, at.constant(5)], at.tensor(1, 6, 5, factor=3), "AddOptions")


def image(block, pads, crops, kernel, made, depthwise=False):
    """A dilated convolution of an image."""

    def write(at):
        x = at.tensor(1, 9, 8, 3)
        padded = [size + sum(pair) for size, pair in zip((9, 8), pads, strict=True)]
        small = [size // by for size, by in zip(padded, block, strict=True)]
        out = [size - window + 1 for size, window in zip(small, kernel, strict=True)]
        operands = [x, at.integers(*block), at.integers(*pads)]
        batches = at.op("SPACE_TO_BATCH_ND", operands, at.alike(x, 1, *small, 3))
        weight = at.weight(1, *kernel, 3, axis=3) if depthwise else at.weight(4, *kernel, 3)
        channels = 3 if depthwise else 4
        y = at.convolution(batches, weight, at.tensor(1, *out, channels, factor=6), depthwise)
        y = at.op("BATCH_TO_SPACE_ND", [y, at.integers(*block), at.integers(*crops)], at.alike(y, 1, *made, channels))
        return x, at.op("ADD", [y, at.constant(channels)], at.tensor(1, *made, channels, factor=6), "AddOptions")

    return write


def sequence(at):
    """Two dilated convolutions of one sequence, whose products are combined: gates of a causal network."""
    x = at.tensor(1, 11, 3)
    padded = at.op("PAD", [x, at.integers([0, 0], [4, 0], [0, 0])], at.alike(x, 1, 15, 3), "PadOptions")
    block, pads = at.integers(2), at.integers([0, 1])
    batches = at.op("SPACE_TO_BATCH_ND", [padded, block, pads], at.alike(x, 1, 8, 3))
    wide = at.op("EXPAND_DIMS", [batches, at.net.constant(np.int32(-3))], at.alike(x, 1, 1, 8, 3))
    parts = []
    for name, scheme in (("TANH", SIGNED), ("LOGISTIC", SHARES)):
        y = at.convolution(wide, at.weight(4, 1, 3, 3), at.tensor(1, 1, 6, 4, factor=3))
        y = at.op("RESHAPE", [y, at.integers(-1, 6, 4)], at.alike(y, 1, 6, 4), "ReshapeOptions")
        y = at.op("BATCH_TO_SPACE_ND", [y, block, pads], at.alike(y, 1, 11, 4))
        parts.append(at.op(name, [y], at.tensor(1, 11, 4, scheme=scheme)))
    return x, at.op("MUL", parts, at.tensor(1, 11, 4, factor=0.2), "MulOptions")


def recurrent(at):
    """Steps of a transposed sequence, from a state that is filled with zeros, and a sequence of all states."""
    x = at.tensor(1, 4, 3)
    shape = at.packed([at.samples(x, 3), at.net.constant(np.int32(5))])
    turned = at.op("TRANSPOSE", [x, at.integers(1, 0, 2)], at.alike(x, 4, 1, 3), "TransposeOptions")
    steps = [at.alike(x, 1, 3) for _ in range(4)]
    at.op("UNPACK", [turned], steps, "UnpackOptions", num=4)
    scheme = SIGNED if at.coded else {}
    zero = at.net.constant(np.zeros((), np.int8 if at.coded else np.float32), **scheme)
    state = at.op("FILL", [shape, zero], at.tensor(1, 5, scheme=scheme), "FillOptions")
    inner, outer = at.weight(5, 5), at.weight(5, 3)
    states = []
    for step in steps:
        sums = [at.op("FULLY_CONNECTED", [of, w], at.tensor(1, 5, factor=2), "FullyConnectedOptions")
                for of, w in ((step, outer), (state, inner))]  # fmt: skip
        total = at.op("ADD", sums, at.tensor(1, 5, factor=2), "AddOptions")
        state = at.op("TANH", [total], at.tensor(1, 5, scheme=scheme))
        states.append(state)
    packed = at.op("PACK", states, at.tensor(4, 1, 5, scheme=scheme), "PackOptions", valuesCount=4)
    order = at.integers(1, 0, 2)
    return x, at.op("TRANSPOSE", [packed, order], at.tensor(1, 4, 5, scheme=scheme), "TransposeOptions")


def parts(at):
    """SPLIT, SPLIT_V, SLICE, REVERSE_V2 and masks of STRIDED_SLICE, put together."""
    x = at.tensor(1, 6, 4)
    first, second = at.alike(x, 1, 6, 2), at.alike(x, 1, 6, 2)
    at.op("SPLIT", [at.net.constant(np.int32(2)), x], [first, second], "SplitOptions", numSplits=2)
    third, fourth = at.alike(x, 1, 1, 4), at.alike(x, 1, 5, 4)
    at.op(
        "SPLIT_V", [x, at.integers(1, 5), at.net.constant(np.int32(1))], [third, fourth], "SplitVOptions", numSplits=2
    )
    back = at.op("REVERSE_V2", [second, at.integers(1)], at.alike(x, 1, 6, 2))
    cut = at.op("SLICE", [fourth, at.integers(0, 2, 1), at.integers(-1, 3, 2)], at.alike(x, 1, 3, 2), "SliceOptions")
    bounds = [at.integers(0, 5, 0), at.integers(0, 0, 2), at.integers(1, -2, 1)]
    odd = at.op("STRIDED_SLICE", [x, *bounds], at.alike(x, 1, 3, 2), "StridedSliceOptions", beginMask=1, endMask=3)
    row = at.op("STRIDED_SLICE", [third, at.integers(0, 0, 2), at.integers(0, 0, 4), at.integers(1, 1, 1)],
                at.alike(x, 1, 2), "StridedSliceOptions", beginMask=1, endMask=1, shrinkAxisMask=2)  # fmt: skip
    row = at.op("PACK", [row], at.alike(x, 1, 1, 2), "PackOptions", valuesCount=1, axis=1)
    joined = [first, back, cut, odd, row]
    return x, at.op("CONCATENATION", joined, at.alike(x, 1, 19, 2), "ConcatenationOptions", axis=1)


def repeated(at):
    """Elements that EXPAND_DIMS, TILE and RESHAPE repeat, and a tensor several times."""
    x = at.tensor(1, 4, 3)
    wide = at.op("EXPAND_DIMS", [x, at.net.constant(np.int32(2))], at.alike(x, 1, 4, 1, 3))
    tiled = at.op("TILE", [wide, at.integers(1, 1, 2, 1)], at.alike(x, 1, 4, 2, 3))
    longer = at.op("RESHAPE", [tiled, at.integers(-1, 8, 3)], at.alike(x, 1, 8, 3), "ReshapeOptions")
    return x, at.op("TILE", [longer, at.integers(1, 1, 2)], at.alike(x, 1, 8, 6))


FORMS = {
    "flatten": flattened,
    "rows": rows,
    "dilated": image((2, 2), ([2, 3], [2, 2]), ([0, 1], [0, 0]), (3, 3), (9, 8)),
    "dilated, valid": image((3, 2), ([0, 0], [0, 0]), ([0, 0], [0, 0]), (2, 3), (6, 4)),
    "dilated, causal": image((2, 2), ([4, 1], [1, 1]), ([0, 1], [0, 0]), (3, 2), (9, 8)),
    "dilated, cut": image((2, 2), ([2, 1], [0, 0]), ([3, 0], [1, 0]), (2, 2), (7, 5)),
    "dilated in depth": image((2, 2), ([2, 3], [2, 2]), ([0, 1], [0, 0]), (3, 3), (9, 8), depthwise=True),
    "sequence": sequence,
    "recurrent": recurrent,
    "parts": parts,
    "repeated": repeated,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_floats_are_those_of_the_interpreter(form):
    at = Written(coded=False)
    x, y = FORMS[form](at)
    data = at.net.bytes([x], [y])
    values = at.rng.normal(size=at.net.graph.tensors[x].shape).astype(np.float32)
    assert different_from_onnx(data, values) < 1e-5


def different_from_onnx(data, values):
    """The greatest difference between the interpreter and ONNX Runtime."""
    (want,) = interpreted(data, values)
    session = onnxruntime.InferenceSession(exported_tflite(data))
    (got,) = session.run(None, {session.get_inputs()[0].name: values})
    assert got.shape == want.shape
    return np.abs(got - want).max()


@pytest.mark.parametrize("form", [form for form in FORMS if form != "repeated"])
def test_codes_are_those_of_the_reference_kernels(form):
    """But for TILE of codes, of which the interpreter has none; several samples at once are those of one."""
    at = Written(coded=True)
    x, y = FORMS[form](at)
    data = at.net.bytes([x], [y])
    codes = at.rng.integers(-128, 128, (6, *at.net.graph.tensors[x].shape[1:])).astype(np.int8)
    count, different = compared_codes(data, codes, every=form != "rows")
    assert count > 30 and different == 0


def names(data):
    model = read_network(data)
    return [operator.name for operator in live_operators(model, model.outputs)]


def test_what_the_forms_become():
    at = Written(coded=False)
    assert names(at.net.bytes(*([index] for index in flattened(at)))) == ["RESHAPE", "FULLY_CONNECTED"]
    at = Written(coded=False)
    assert names(at.net.bytes(*([index] for index in FORMS["dilated"](at)))) == ["CONV_2D", "ADD"]
    at = Written(coded=False)
    assert names(at.net.bytes(*([index] for index in FORMS["dilated, causal"](at)))) == ["CONV_2D", "ADD"]


def test_blocks_that_are_no_dilation_are_refused():
    """Other blocks at both ends."""
    at = Written(coded=True)
    x = at.tensor(1, 8, 8, 3)
    zeros = at.integers([0, 0], [0, 0])
    y = at.op("SPACE_TO_BATCH_ND", [x, at.integers(2, 2), zeros], at.alike(x, 1, 4, 4, 3))
    y = at.convolution(y, at.weight(3, 1, 1, 3), at.tensor(1, 4, 4, 3))
    y = at.op("BATCH_TO_SPACE_ND", [y, at.integers(4, 1), zeros], at.alike(y, 1, 16, 4, 3))
    data = at.net.bytes([x], [y])
    with pytest.raises(UnquantisedModel, match="SPACE_TO_BATCH_ND 'tensor3': is not an operator on codes"):
        load(data)
    with pytest.raises(ValueError, match="SPACE_TO_BATCH_ND 'tensor3': operator is not supported"):
        exported_tflite(data)


def loop(turns=3, open_count=False, part=2):
    """WHILE that reads one row of a sequence after the other, as a recurrent layer of a fixed batch does it."""
    net = Net()
    x = net.tensor((1, 3, 4))
    steps = net.op("RESHAPE", [x, net.constant(np.int32([3, 1, 4]))], net.tensor((3, 1, 4)), "ReshapeOptions")
    state, first = net.constant(np.ones((1, 4), np.float32)), net.constant(np.int32(0))
    if open_count:
        first = net.op("CAST", [net.op("REDUCE_MAX", [x, net.constant(np.int32([0, 1, 2]))], net.tensor(()),
                                       "ReducerOptions")], net.tensor((), np.int32), "CastOptions")  # fmt: skip
    ends = [net.tensor((), np.int32), net.tensor((1, 4)), net.tensor((3, 1, 4))]
    net.op("WHILE", [first, state, steps], ends, "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=part)
    condition, body = Net(net), Net(net)
    for part in (condition, body):
        part.ends([part.tensor((), np.int32), part.tensor((1, 4)), part.tensor((3, 1, 4))], [])
    count = condition.op(
        "LESS", [0, condition.constant(np.int32(turns))], condition.tensor((), np.bool_), "LessOptions"
    )
    condition.graph.outputs = [count]
    after = body.op("ADD", [0, body.constant(np.int32(1))], body.tensor((), np.int32), "AddOptions")
    row = body.op("GATHER", [2, 0], body.tensor((1, 4)), "GatherOptions")
    made = body.op("SUB", [row, 1], body.tensor((1, 4)), "SubOptions")
    body.graph.outputs = [after, made, 2]
    return net.bytes([x], [ends[1]])


def test_a_loop_is_written_out():
    data = loop()
    values = np.random.default_rng(0).normal(size=(1, 3, 4)).astype(np.float32)
    assert different_from_onnx(data, values) < 1e-6
    assert names(data).count("SUB") == 3 and "WHILE" not in names(data)


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"open_count": True}, "must be repeated a number of times that follows from constants; convert recurrent"),
        ({"turns": 600}, "must be repeated at most 512 times"),
        ({"part": 7}, r"must have networks of the file as condition and body, not \[1, 7\]"),
        ({"part": 1}, "must have a body that makes what it reads"),
    ],
)
def test_loops_that_cannot_be_written_out(settings, reason):
    with pytest.raises(ValueError, match=reason):
        read_network(loop(**settings))
