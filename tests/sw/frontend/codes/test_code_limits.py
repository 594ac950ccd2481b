"""Clip of codes: networks of few bits in the form of Brevitas, beside ONNX Runtime."""

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from concord.frontend.codes import UnquantisedModel, load
from concord.transfer import CodeRange
from support.few_bits import in_few_bits
from support.integer_nets import SHAPE, compared, quantised, small_network
from support.onnx_models import model, node
from support.trained import DATA, needs_data
from sw.frontend.codes.test_networks import TRAINED, trained_input

KINDS = {"UINT8": QuantType.QUInt8, "INT8": QuantType.QInt8}


def quantised_in(bits, proto, samples, folder, kind):
    """A network in few bits, its activations of a type."""
    options = {"quant_format": QuantFormat.QDQ, "activation_type": KINDS[kind], "weight_type": QuantType.QInt8}
    return in_few_bits(quantised(folder, proto, samples, **options), bits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7])
def test_all_codes_of_few_bits(bits, kind, tmp_path):
    samples = np.random.default_rng(bits).normal(size=(16, *SHAPE)).astype(np.float32)
    proto = quantised_in(bits, small_network(), samples, tmp_path, kind)
    count, different = compared(proto, {"x": samples}, kind)
    assert count > 16 * (8 * 8 * 8 + 8 * 4 * 4) and different == 0
    graph = load(proto).graph
    assert {scheme.bits for scheme in graph.schemes.values()} == {bits}


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 5])
@pytest.mark.parametrize("name, file", TRAINED, ids=[name for name, _ in TRAINED])
def test_all_codes_of_trained_networks_in_few_bits(name, file, bits, tmp_path):
    x, few = trained_input(name, file)
    proto = quantised_in(bits, onnx.load(DATA / "models" / f"{name}.onnx"), few, tmp_path, "UINT8")
    count, different = compared(proto, {proto.graph.input[0].name: x}, "UINT8")
    print(f"{name} {bits} bits: {count} codes compared, {different} different")
    assert count >= 510 and different == 0


def clipped(low, high, *more, outputs=("y",), constants=None):
    """A Clip of codes between the codes of the input ``q`` and its numbers."""
    ends = {"low": np.int8(low), "high": np.int8(high), "s": np.float32(0.1), "z": np.int8(-2)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("Clip", ["q", "low", "high"], ["c"], name="limits"),
        node("DequantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    return model([*nodes, *more], {"x": ["N", 257]}, outputs, ends | (constants or {}))


NUMBERS = {"x": np.linspace(-20, 20, 257, dtype=np.float32)[None]}


@pytest.mark.parametrize(
    "low, high, bits, codes",
    [
        (-16, 15, 5, CodeRange.SIGNED),
        (-15, 15, 5, CodeRange.SYMMETRIC),
        (-128, 127, 8, CodeRange.SIGNED),
        (-10, 13, 8, CodeRange.SIGNED),
        (-2, 1, 2, CodeRange.SIGNED),
        (-2, 3, 8, CodeRange.SIGNED),
    ],
)
def test_ends_of_codes(low, high, bits, codes):
    """Those of a number of bits are a scheme; others limit codes of the type."""
    network = load(clipped(low, high))
    scheme = network.scheme("y")
    assert (scheme.bits, scheme.range) == (bits, codes)
    assert compared(clipped(low, high), NUMBERS, "INT8")[1] == 0
    made = network.run(NUMBERS)["y"]
    assert (made.min(), made.max()) == (low, high) and made.dtype == np.int8


def test_codes_that_do_not_have_the_zero_point_are_of_the_type():
    network = load(clipped(0, 15))
    assert network.scheme("y").bits == 8
    assert (network.run(NUMBERS)["y"].min(), network.run(NUMBERS)["y"].max()) == (0, 15)


def test_codes_in_front_of_the_limits_are_read_as_well():
    """One QuantizeLinear has two readers: its codes are those of its type."""
    proto = clipped(-16, 15, node("DequantizeLinear", ["q", "s", "z"], ["d"]), outputs=("y", "d"))
    network = load(proto)
    made = network.run(NUMBERS)
    assert (network.scheme("y").bits, network.scheme("d").bits) == (5, 8)
    assert made["d"].max() == 127 and np.array_equal(made["d"].clip(-16, 15), made["y"])


def test_limits_of_limits():
    """The second Clip reads codes of 5 bits."""
    more = [node("Clip", ["c", "less", ""], ["e"]), node("DequantizeLinear", ["e", "s", "z"], ["d"])]
    proto = clipped(-16, 15, *more, outputs=("d",), constants={"less": np.int8(-8)})
    network = load(proto)
    made = network.run(NUMBERS)["d"]
    assert (made.min(), made.max(), network.scheme("d").bits) == (-8, 15, 5)


@pytest.mark.parametrize("low, high", [(5, 4), (-128, -128)])
def test_limits_that_are_in_no_order_or_leave_nothing(low, high):
    more = [node("Clip", ["c", "less", "more"], ["e"]), node("DequantizeLinear", ["e", "s", "z"], ["d"])]
    constants = {"less": np.int8(low), "more": np.int8(high)}
    with pytest.raises(UnquantisedModel, match=r"Clip 'e': min and max must be in order and leave some"):
        load(clipped(-16, 15, *more, outputs=("d",), constants=constants))


def test_limits_that_vary_are_refused():
    proto = clipped(-16, 15)
    del proto.graph.initializer[[item.name for item in proto.graph.initializer].index("low")]
    proto.graph.input.append(onnx.helper.make_tensor_value_info("low", onnx.TensorProto.INT8, []))
    with pytest.raises(UnquantisedModel, match="min must be a constant, not 'low'"):
        load(proto)


def test_sums_of_few_bits_in_the_middle():
    """Integer kernels of ONNX Runtime are those of the type, wherever Clip stands."""
    scheme = {"s": np.float32(0.1), "z": np.uint8(5), "t": np.float32(0.2), "low": np.uint8(0), "high": np.uint8(15)}
    nodes = []
    for x, y, scale in (("x", "a", "s"), ("v", "b", "s"), ("sum", "y", "t")):
        if x == "sum":
            nodes.append(node("Add", ["a", "b"], ["sum"]))
        nodes += [node("QuantizeLinear", [x, scale, "z"], [f"{y}q"]), node("Clip", [f"{y}q", "low", "high"], [f"{y}c"]),
                  node("DequantizeLinear", [f"{y}c", scale, "z"], [y])]  # fmt: skip
    proto = model(nodes, {"x": ["N", 16], "v": ["N", 16]}, constants=scheme)
    codes = np.arange(-5, 11)
    inputs = {"x": np.tile(codes, (16, 1)), "v": np.tile(codes[:, None], 16)}
    inputs = {name: (part * np.float32(0.1)).astype(np.float32) for name, part in inputs.items()}
    count, different = compared(proto, inputs, "UINT8")
    assert count > 16 * 16 and different == 0
