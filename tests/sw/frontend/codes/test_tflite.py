"""Quantised TensorFlow Lite files as networks: tables, refusals, ends, and the command."""

import re

import numpy as np
import pytest

from concord.frameworks import onnx_bytes
from concord.frontend.codes import UnquantisedModel, load
from concord.utils import foreign
from support.commands import run
from support.frameworks import missing, needs

if missing("tflite"):
    pytest.skip(missing("tflite"), allow_module_level=True)

from support.tflite_models import Net, compared_codes

pytestmark = needs("tflite")

#: Scales and zero points: of the input, in the middle, of powers, and of probabilities.
FIRST, MIDDLE = {"scale": 0.02, "zero": -5}, {"scale": 0.05, "zero": 3}
SHARES, NARROW = {"scale": 1 / 256, "zero": -128}, {"scale": 0.01, "zero": 7}
SAME = 0


def weights(*shape, axis=None):
    rng = np.random.default_rng(11)
    scale = rng.uniform(0.002, 0.01, None if axis is None else shape[axis])
    codes = rng.integers(-127, 128, shape).astype(np.int8)
    return {"values": codes, "scale": np.float32(scale), "axis": axis or 0}


def small_network(batch=1):
    """A convolution, tables in a row and beside each other, a sum, a mean, a dense layer and a softmax; from floats."""
    net = Net()

    def made(*shape, dtype=np.int8, **scheme):
        return net.tensor([batch, *shape], dtype, **scheme)

    def constant(values, **codes):
        return net.constant(values, **codes)

    x = net.tensor([batch, 6, 6, 2], name="x")
    image, a, b, c, d, e, f = (
        made(6, 6, n, **s) for n, s in ((2, FIRST), *[(4, MIDDLE)] * 4, (4, NARROW), (4, MIDDLE))
    )
    bias = constant(np.int32([-250, 120, 300, 7]), scale=1e-4)
    net.op("QUANTIZE", [x], image)
    w = constant(**weights(4, 3, 3, 2, axis=0))
    net.op("CONV_2D", [image, w, bias], a, "Conv2DOptions", padding=SAME, strideH=1, strideW=1)
    net.op("LEAKY_RELU", [a], b, "LeakyReluOptions", alpha=0.25)
    net.op("RELU6", [b], c)
    net.op("RELU6", [a], d)
    net.op("RELU6", [d], e)
    net.op("ADD", [c, e], f, "AddOptions")
    mean, row, shares = made(4, **MIDDLE), made(3, **MIDDLE), made(3, **SHARES)
    net.op("MEAN", [f, constant(np.int32([1, 2]))], mean, "ReducerOptions")
    net.op("FULLY_CONNECTED", [mean, constant(**weights(3, 4))], row, "FullyConnectedOptions")
    net.op("SOFTMAX", [row], shares, "SoftmaxOptions", beta=1.0)
    y = net.tensor([batch, 3], name="y")
    net.op("DEQUANTIZE", [shares], y)
    return net.bytes([x], [y])


@pytest.fixture(scope="module")
def floats():
    return np.random.default_rng(3).normal(0, 1, (10, 6, 6, 2)).astype(np.float32)


def test_all_codes_of_a_small_network(floats):
    count, different = compared_codes(small_network(), floats)
    assert count > 10 * 36 * 20 and different == 0


def test_a_batch_of_the_file_is_any_number_of_samples(floats):
    for batch in (5, 10):
        assert compared_codes(small_network(batch), floats)[1] == 0
    data = small_network(4)
    whole = load(data).run({"x": floats})["y"]
    assert np.array_equal(np.concatenate([load(data).run({"x": x[None]})["y"] for x in floats]), whole)


def test_tables_are_composed_and_shared(floats):
    """The two in a row become one; of those that read ``a``, one leads to another scheme."""
    data = small_network()
    network, plain = load(data), load(data, compose=False)
    assert np.array_equal(network.run({"x": floats})["y"], plain.run({"x": floats})["y"])
    assert (plain.tables.report().sites, plain.tables.report().tables) == (4, 3)
    assert (network.tables.report().sites, network.tables.report().tables) == (2, 2)
    network.tables.check()
    plain.tables.check()
    assert network.scheme("y").scale == 1 / 256 and network.scheme("y").zero == -128


def test_every_rounding_of_inputs_is_that_of_quantize():
    """Halves away from zero."""
    network = load(small_network())
    x = np.full((1, 6, 6, 2), 0.01, np.float32)
    (name,) = network.graph.inputs.values()
    assert {*np.unique(network.run({"x": x}, every=True)[name])} == {-4}
    assert {*np.unique(network.run({"x": -x}, every=True)[name])} == {-6}
    assert {*np.unique(network.run({"x": x * np.inf}, every=True)[name])} == {127}


def of_codes(*names, shape=(1, 4), made=None, dtype=np.int8, **scheme):
    """A file with operators in a row, each of what the one in front makes."""
    net = Net()
    x = net.tensor(shape, dtype, **(scheme or FIRST))
    last = x
    for name in names:
        last = net.op(name, [last], net.tensor(made or shape, dtype, **MIDDLE))
    return net.bytes([x], [last])


def test_a_network_ends_where_it_is_asked_to():
    data = of_codes("RELU", "EXP", "SQRT")
    codes = np.int8([[-128, -5, 0, 127]])
    assert load(data, ["tensor1"]).run({"tensor0": codes})["tensor1"].tolist() == [[3, 3, 5, 56]]
    assert load(data, ["tensor0"]).run({"tensor0": codes})["tensor0"].tolist() == codes.tolist()
    with pytest.raises(ValueError, match=r"outputs must be tensors of the model, not \['none'\]"):
        load(data, ["none"])


def test_everything_in_the_way_is_refused_at_once():
    """Not what reads what is refused."""
    net = Net()
    x = net.tensor([1, 4], np.int8, **FIRST)
    ends = [net.tensor([1, 4], np.int8, **MIDDLE) for _ in range(4)]
    net.op("SQRT", [x], ends[0])
    net.op("RELU", [ends[0]], ends[1])
    net.op("LOGISTIC", [x], ends[2])
    net.op("RELU", [x], ends[3])
    with pytest.raises(UnquantisedModel, match="model cannot be executed in integers") as refusal:
        load(net.bytes([x], ends[1:]))
    assert refusal.value.reasons == [
        "SQRT 'tensor1': is not an operator on codes; end the network in front of it, with outputs=[...]",
        "LOGISTIC 'tensor3': scale of the result must be 1/256, not 0.0500000007; correct the model",
    ]


def refused(write, *, shape=(1, 2, 2, 4), dtype=np.int8, scheme=FIRST):
    """The only reason why a network is refused; ``write`` adds operators and returns the output."""
    net = Net()
    x = net.tensor(shape, dtype, **scheme, name="x")
    data = net.bytes([x], [write(net, x)])
    with pytest.raises(UnquantisedModel) as refusal:
        load(data)
    (reason,) = refusal.value.reasons
    return reason


def op(name, made, options=None, constants=(), dtype=np.int8, scheme=MIDDLE, **values):
    """One operator of the input and constants, whose result has a shape."""

    def write(net, x):
        operands = [net.constant(**c) if isinstance(c, dict) else net.constant(c) for c in constants]
        return net.op(name, [x, *operands], net.tensor(made, dtype, **scheme, name="y"), options, **values)

    return write


STEPS = {"strideH": 1, "strideW": 1}
SYMMETRIC, BIAS = weights(4, 1, 1, 4, axis=0), {"values": np.zeros(4, np.int32), "scale": 1e-4}
#: The shape of the input, and often of the result.
SAME_SHAPE = (1, 2, 2, 4)


def conv(weight=SYMMETRIC, bias=BIAS, scheme=MIDDLE, **values):
    return op("CONV_2D", SAME_SHAPE, "Conv2DOptions", [weight, bias], scheme=scheme, **STEPS | values)


def add(values, scheme=MIDDLE, **codes):
    return op("ADD", SAME_SHAPE, "AddOptions", [{"values": values, **codes}], scheme=scheme)


@pytest.mark.parametrize(
    "write, reason",
    [
        (conv(SYMMETRIC | {"zero": 1}), "weight must have zero points of 0"),
        (conv(SYMMETRIC | {"axis": 3}), "weight must have its scales along axis 0, not 1"),
        (conv(weights(4, 1, 1, 3)), "weight of shape [4, 1, 1, 3] must fit an image of shape [1, 2, 2, 4]"),
        (conv(strideH=0), "strides must be at least 1, not [0, 1]"),
        (conv(dilationHFactor=0), "dilations of at least 1, not [0, 1]"),
        (conv(bias={"values": np.zeros(4, np.int64)}), "bias must be 4 elements of INT32, not INT64 of shape [4]"),
        (conv(bias={"values": np.zeros(3, np.int32)}), "bias must be 4 elements of INT32, not INT32 of shape [3]"),
        (conv(fusedActivationFunction=4), "activation must be RELU, RELU_N1_TO_1 or RELU6, or an operator of its own"),
        (conv(scheme={"scale": 1e-20}), "scales must fit each other: multipliers must be in 0..2**30, not "),
        (add(np.zeros(4, np.int8), {"scale": 1e-9}, **FIRST), "scale of the result must be more than 3.81"),
        (add(np.zeros(4, np.uint8), scale=1.0), "must have one type, not INT8, UINT8, INT8; quantise it to int8"),
        (add(np.zeros(4, np.int8)), "'tensor1' must be codes of int8, uint8 or int16 with a scale, not int8"),
        (add(np.zeros((2, 2, 2, 4), np.int8), **FIRST), "must be one for all samples, not of shape [2, 2, 2, 4]"),
        (op("MAX_POOL_2D", (1, 1, 1, 4), "Pool2DOptions", filterHeight=2, filterWidth=2, **STEPS),
         "what it reads and makes must have one scale and zero point; put QUANTIZE behind it"),
        (op("MEAN", (2, 4), "ReducerOptions", [np.int32([0, 1])]), "without that of the samples, not (0, 1)"),
        (op("RESHAPE", (2, 8), None, [np.int32([2, 8])]), "'y' must be that of the samples, [1], not of [2, 8]"),
        (op("RESHAPE", (1, 15), None, [np.int32([1, 15])]), "shape must be known, not [1, 15]"),
        (op("TRANSPOSE", (2, 1, 2, 4), None, [np.int32([1, 0, 2, 3])]), "samples first, not be [1, 0, 2, 3]"),
        (op("PAD", (3, 2, 2, 4), None, [np.int32([[1, 1], [0, 0], [0, 0], [0, 0]])]), "must leave axis 0 as it is"),
        (op("SOFTMAX", SAME_SHAPE, "SoftmaxOptions", beta=1.0), "must be 1/256 and -128, not 0.0500000007 and 3"),
        (op("HARD_SWISH", SAME_SHAPE, scheme={"scale": 1e-9}), "scale of the result must be at least 0.00015"),
        (op("RELU", SAME_SHAPE, dtype=np.float32, scheme={}), "'y' must be codes of int8, uint8 or int16 with a"),
        (op("RELU", SAME_SHAPE, scheme={"scale": [0.1] * 4, "axis": 3}), "'y' must have one positive scale, not"),
        (op("CONCATENATION", SAME_SHAPE, "ConcatenationOptions", axis=0), "axis must not be that of the samples"),
        (op("CONCATENATION", SAME_SHAPE, "ConcatenationOptions", axis=3), "'x' must have the scale and the zero"),
        (op("MAXIMUM", SAME_SHAPE, None, [{"values": np.int8([1, 2, 3, 4]), **FIRST}], scheme=FIRST),
         "a constant operand must be one code for all elements"),
        (op("REDUCE_MAX", (2, 2, 4), "ReducerOptions", [np.int32([0])], scheme=FIRST), "samples, not (0,); compute"),
        (op("GATHER", (2, 2, 2, 4), "GatherOptions", [np.int32([0, 0])]), "must leave axis 0 as it is"),
        (op("SUM", (1, 2, 4), "ReducerOptions", [np.int32([1])]), "SUM 'y': is not an operator on codes; use MEAN"),
        (op("UNIDIRECTIONAL_SEQUENCE_LSTM", SAME_SHAPE), "is not an operator on codes; convert the layer"),
        (op("FULLY_CONNECTED", (1, 2), "FullyConnectedOptions",
            [{"values": np.zeros((2, 16), np.int8), "scale": [np.inf, 0.1]}]), "must be finite, not inf, as for"),
    ],
)  # fmt: skip
def test_what_kernels_do_not_do_is_refused(write, reason):
    assert reason in refused(write)


def test_bilinear_images_of_uint8_are_refused():
    bilinear = op("RESIZE_BILINEAR", (1, 4, 4, 4), "ResizeBilinearOptions", [np.int32([4, 4])], np.uint8)
    assert "its kernel for uint8 computes in floats" in refused(bilinear, dtype=np.uint8, scheme=MIDDLE)


def test_functions_of_numbers_end_in_codes():
    """They may be moved in front of QUANTIZE; a network does not end with them."""
    net = Net()
    x = net.tensor([1, 4], np.int8, **FIRST)
    number = net.op("NEG", [net.op("DEQUANTIZE", [x], net.tensor([1, 4]))], net.tensor([1, 4]))
    moved = net.op("RESHAPE", [number, net.constant(np.int32([1, 2, 2]))], net.tensor([1, 2, 2]))
    y = net.op("QUANTIZE", [moved], net.tensor([1, 2, 2], np.int8, **MIDDLE))
    codes = np.arange(-128, 128).astype(np.int8).reshape(-1, 4)
    assert compared_codes(net.bytes([x], [y]), codes) == (256, 0)
    with pytest.raises(UnquantisedModel, match="output 'tensor2': must be codes"):
        load(net.bytes([x], [number]))


def test_moved_codes_may_stand_for_other_numbers():
    """Kernels that move codes do not look at scales."""
    net = Net()
    x, y = net.tensor([1, 4], np.int8, **FIRST), net.tensor([1, 2, 2], np.int8, **MIDDLE)
    net.op("RESHAPE", [x, net.constant(np.int32([1, 2, 2]))], y)
    z = net.op("RELU", [y], net.tensor([1, 2, 2], np.int8, **MIDDLE))
    codes = np.arange(-128, 128).astype(np.int8).reshape(-1, 4)
    assert compared_codes(net.bytes([x], [y, z]), codes) == (512, 0)


@pytest.mark.parametrize(
    "name, x, y, reason",
    [
        ("LOGISTIC", {}, {"dtype": np.int8}, "must make codes of 16 bits, not 8; put QUANTIZE behind it"),
        ("LOGISTIC", {"scale": 2.7}, {}, "scale must be less than 8/3, not 2.7"),
        ("LOGISTIC", {"zero": 3}, {}, "zero points of 16 bits must be 0, not 3 and 0"),
        ("TANH", {}, {"scale": 2.0**-14}, "scale of the result must be 1/32768, not 6.1035"),
        ("SOFTMAX", {}, {"scale": 2.0**-14}, "the scale 1/32768 and the zero point 0, not 16 bits, 6.1035"),
        ("SOFTMAX", {"scale": 5.1}, {}, "scale must be less than 5.00007"),
    ],
)
def test_schemes_of_16_bits(name, x, y, reason):
    net, fixed = Net(), {"scale": 2.0**-15, "dtype": np.int16}
    tensors = net.tensor([1, 4], **{"scale": 0.01, "dtype": np.int16} | x), net.tensor([1, 4], **fixed | y)
    options = {"options": "SoftmaxOptions", "beta": 1.0} if name == "SOFTMAX" else {}
    net.op(name, tensors[:1], tensors[1], **options)
    with pytest.raises(UnquantisedModel, match=re.escape(reason)):
        load(net.bytes(tensors[:1], tensors[1:]))


def test_multipliers_of_wide_sums_are_below_128():
    net = Net()
    x = net.tensor([1, 1, 1, 1], np.int16, scale=1.0)
    w = net.constant(np.ones((1, 1, 1, 1), np.int8), scale=1.0)
    y = net.op("CONV_2D", [x, w], net.tensor([1, 1, 1, 1], np.int16, scale=1 / 128), "Conv2DOptions", **STEPS)
    with pytest.raises(UnquantisedModel, match="multipliers of sums of 48 bits must be below 128, not 128"):
        load(net.bytes([x], [y]))


def test_a_network_of_floats_is_refused():
    net = Net()
    x, y = net.tensor([1, 4], name="x"), net.tensor([1, 4], name="y")
    net.op("RELU", [x], y)
    with pytest.raises(UnquantisedModel) as refusal:
        load(net.bytes([x], [y]))
    (reason,) = refusal.value.reasons
    assert reason.startswith(
        "RELU 'y': 'x' must be codes of int8, uint8 or int16 with a scale, not floats; quantise the"
    )


def test_names_that_are_taken_twice_or_missing():
    net = Net()
    tensors = [net.tensor([1, 4], np.int8, **FIRST, name=name) for name in ("x", "x", "x")]
    net.op("RELU", tensors[:1], tensors[1])
    net.op("RELU", tensors[1:2], tensors[2])
    network = load(net.bytes(tensors[:1], tensors[1:]))
    assert [*network.run({"x": np.zeros((1, 4), np.int8)})] == ["x.1", "x.2"]


def test_a_damaged_file_is_refused():
    data = small_network()
    with pytest.raises(ValueError, match="must be whole"):
        load(data[: len(data) // 2])


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(foreign, "find_spec", lambda name: None)
    for read in (load, onnx_bytes):
        with pytest.raises(
            ValueError, match=r"is a TensorFlow Lite model: pip install 'concord-npu\[tflite\]', which reads"
        ):
            read(small_network())


def test_accumulators_that_may_overflow_are_named():
    """Those of codes of 16 bits have more bits."""
    net = Net()
    x, y = net.tensor([1, 1 << 17], np.int8, **FIRST), net.tensor([1, 1], np.int8, **MIDDLE, name="y")
    w = net.constant(np.full((1, 1 << 17), -128, np.int8), scale=0.01)
    net.op("FULLY_CONNECTED", [x, w], y, "FullyConnectedOptions")
    network = load(net.bytes([x], [y]))
    assert network.wide_sums == {"y": 128 * 132 << 17}
    assert "y: accumulators may reach 2214592512, beyond 32 bits" in network.report()


def test_the_command_writes_codes(tmp_path, floats):
    (tmp_path / "net.tflite").write_bytes(small_network())
    np.savez(tmp_path / "x.npz", x=floats)
    code, output = run("run", tmp_path / "net.tflite", "--exact", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    assert code == 0, output
    assert "net.tflite: 7 operations, 2 of them products" in output
    assert output.endswith("y.npz: y (10, 3) int8, zero point -128, scale 0.00390625\n")
    codes = load(tmp_path / "net.tflite").run({"x": floats})["y"]
    assert np.array_equal(np.load(tmp_path / "y.npz")["y"], codes)


def test_the_command_compiles_it(tmp_path, floats):
    """The folder needs neither the file nor its schema; part of a file is no ONNX, and is refused."""
    (tmp_path / "net.tflite").write_bytes(small_network())
    np.savez(tmp_path / "x.npz", x=floats)
    code, output = run("compile", tmp_path / "net.tflite", "--exact")
    assert code == 0 and "net.program, net.tables" in output, output
    (tmp_path / "net.tflite").unlink()
    code, output = run("run", tmp_path / "net", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    assert code == 0, output
    want = load(small_network()).run({"x": floats})["y"]
    assert np.array_equal(np.load(tmp_path / "y.npz")["y"], want)
    (tmp_path / "net.tflite").write_bytes(small_network())
    code, output = run("compile", tmp_path / "net.tflite", "--exact", "--outputs", "y")
    assert code == 1 and "--outputs and --fix if it is a TensorFlow Lite file" in output


def test_codes_of_16_bits_are_too_many_for_an_npu(tmp_path):
    """They run on the host; block floating point takes them."""
    net = Net()
    x, y = net.tensor([1, 4], np.int16, scale=0.01), net.tensor([1, 3], np.int16, scale=0.01, name="y")
    net.op("FULLY_CONNECTED", [x, net.constant(**weights(3, 4))], y, "FullyConnectedOptions")
    (tmp_path / "net.tflite").write_bytes(net.bytes([x], [y]))
    code, output = run("compile", tmp_path / "net.tflite", "--exact", "--preset", "ecp5-85f")
    assert code == 1 and "y: tensor0 has 65536 codes, and mantissas hold 255" in output
    assert "block floating point takes more: compile without --exact" in output
    assert run("compile", tmp_path / "net.tflite", "--preset", "ecp5-85f", "-o", tmp_path / "net")[0] == 0
