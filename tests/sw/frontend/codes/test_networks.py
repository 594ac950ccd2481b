"""Quantised networks as they are: every code of every tensor is ONNX Runtime's."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantFormat, QuantType

from concord.frontend.codes import UnquantisedModel, load
from concord.integer.operations import CodeTable
from support.integer_nets import SHAPE, compared, quantised, small_network
from support.onnx_models import info, ints, model, node, onnxruntime_results
from support.quantised_nets import CODES, QdqMaker
from support.trained import DATA, needs_data

#: The type of activations, its name in ONNX, and the forms in which ONNX Runtime has integer kernels for it.
KINDS = [(QuantType.QUInt8, "UINT8", QuantFormat.QDQ), (QuantType.QInt8, "INT8", QuantFormat.QOperator),
         (QuantType.QUInt8, "UINT8", QuantFormat.QOperator)]  # fmt: skip
IDS = ["qdq-uint8", "operators-int8", "operators-uint8"]
#: Trained networks and their data.
TRAINED = [("ic_resnet8", "ic_cifar10"), ("kws_dscnn", "kws_mfcc_int8"), ("vww_mobilenetv1_025", "vww_coco"),
           ("sww_dscnn1d", "sww_logmel"), ("ad_fc_autoencoder", "ad_toycar"), ("digits_cnn", "digits"),
           ("mnist_cnn", "mnist"), ("digits_mlp", "digits")]  # fmt: skip


@pytest.fixture(scope="module")
def samples():
    return np.random.default_rng(1).normal(size=(16, *SHAPE)).astype(np.float32)


@pytest.fixture(scope="module", params=KINDS, ids=IDS)
def case(request, samples, tmp_path_factory):
    """A small quantised network, and the name of the type of its codes."""
    kind, name, form = request.param
    folder = tmp_path_factory.mktemp("small")
    options = {"quant_format": form, "activation_type": kind, "weight_type": QuantType.QInt8}
    return quantised(folder, small_network(), samples, **options), name


def test_all_codes_of_a_small_network(case, samples):
    proto, kind = case
    count, different = compared(proto, {"x": samples}, kind)
    assert count > 16 * (8 * 8 * 8 + 8 * 4 * 4) and different == 0


def test_tables_of_a_small_network(case, samples):
    """Composed or not, results are the same; a changed entry is seen."""
    network = load(case[0])
    (output,) = network.run({"x": samples}).values()
    plain = load(case[0], compose=False).run({"x": samples})
    assert np.array_equal(output, *plain.values())
    assert network.tables.report().sites == 2 and "2 sites, 2 tables" in network.report()
    network.tables.check()
    last = network.graph.operations[-1]
    assert isinstance(last, CodeTable) and network.scheme(next(iter(plain))).bits == 8
    table = last.table
    read = network.run({"x": samples}, every=True)[last.inputs[0]]
    entries = table.entries.copy()
    entries[int(read.flat[0]) - table.source.low] ^= 1
    object.__setattr__(table, "entries", entries)
    assert not np.array_equal(*network.run({"x": samples}).values(), output)


def trained_input(name, file):
    """Samples of a trained network, and those for its calibration."""
    data = np.load(DATA / "data" / f"{file}.npz")
    if name == "ad_fc_autoencoder":  # windows of five frames
        return [np.stack([data[key][0, k : k + 5].ravel() for k in range(0, 196, 8)]) for key in ("x", "x_calib")]
    few = data["x_calib"] if "x_calib" in data else data["x_train"]
    parts = (((part.astype(np.float32) - data["zero_point"]) * data["scale"]) for part in (data["x"][:3], few[:24]))
    return [part.astype(np.float32)[:, None] if name == "digits_cnn" else part.astype(np.float32) for part in parts]


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("kind, code, form", KINDS[:2], ids=IDS[:2])
@pytest.mark.parametrize("name, file", TRAINED, ids=[name for name, _ in TRAINED])
def test_all_codes_of_trained_networks(name, file, kind, code, form, tmp_path):
    x, few = trained_input(name, file)
    options = {"quant_format": form, "activation_type": kind, "weight_type": QuantType.QInt8}
    proto = quantised(tmp_path, onnx.load(DATA / "models" / f"{name}.onnx"), few, **options)
    count, different = compared(proto, {proto.graph.input[0].name: x}, code)
    print(f"{name} {code}: {count} codes compared, {different} different")
    assert count >= 510 and different == 0


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name, file, sites", [(*TRAINED[0], 7), (*TRAINED[1], 9), (*TRAINED[2], 27), (*TRAINED[4], 9)])
def test_tables_of_trained_networks_are_shared(name, file, sites, tmp_path):
    """With zero points of 0 every Relu is a table, and all of them are the same."""
    x, few = trained_input(name, file)
    options = {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QInt8,
               "weight_type": QuantType.QInt8, "extra_options": {"ActivationSymmetric": True}}  # fmt: skip
    proto = quantised(tmp_path, onnx.load(DATA / "models" / f"{name}.onnx"), few, **options)
    count, different = compared(proto, {proto.graph.input[0].name: x}, "INT8")
    tables = load(proto).tables
    print(f"{name} symmetric: {count} codes compared, {different} different; {tables.report()}")
    assert count > 80000 and different == 0
    assert (tables.report().sites, tables.report().tables) == (sites, 1)
    tables.check()


def pairs(*nodes, constants=None, inputs=None, outputs=("y",), **options):
    """A model of nodes between ``q`` (codes of the input) and its outputs, with scale ``s`` and zero point ``z``."""
    scheme = {"s": np.float32(0.1), "z": np.uint8(3)}
    first = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"])]
    return model([*first, *nodes], inputs or {"x": ["N", 4]}, outputs, scheme | (constants or {}), **options)


def quantise(x, y="y", scale="s", zero="z"):
    """The codes of a tensor, and the floats that they stand for."""
    return [node("QuantizeLinear", [x, scale, zero], [f"{y}q"]), node("DequantizeLinear", [f"{y}q", scale, zero], [y])]


#: A dense layer's weight.
DENSE = [node("DequantizeLinear", ["w", "t"], ["v"])]


@pytest.mark.parametrize(
    "nodes, reason",
    [
        ([node("LRN", ["d"], ["a"], size=1, name="last"), *quantise("a")], "LRN 'last': is not an operator on codes"),
        ([node("Softmax", ["d"], ["y"])], "output 'y': must be codes"),
        (
            [node("Add", ["d", "d"], ["a"]), node("Sigmoid", ["a"], ["b"], name="gate"), *quantise("b")],
            "Sigmoid 'gate': must read codes, not what a product or a sum makes",
        ),
        ([node("MatMul", ["d", "d"], ["a"], name="two"), *quantise("a")], "MatMul 'two': operands must be matrices"),
        ([node("Relu", ["d"], ["a"]), *quantise("a", scale="many")], "activations must have one scale"),
        ([node("Relu", ["d"], ["a"]), *quantise("a", zero="wide")], "at most 16 bits, not int32"),
        ([node("DequantizeLinear", ["q", "t", "z"], ["y"])], "must be those of QuantizeLinear"),
        (
            [node("DequantizeLinear", ["w", "t", "more"], ["v"]), node("MatMul", ["d", "v"], ["a"]), *quantise("a")],
            "DequantizeLinear 'v': zero point must be a constant, not 'more'",
        ),
        (
            [node("Flatten", ["more"], ["a"], name="flat"), node("DequantizeLinear", ["a", "s", "z"], ["y"])],
            "Flatten 'flat': must read what DequantizeLinear makes of the input 'more'; move it behind that",
        ),
        *[([*DENSE, node("DequantizeLinear", [f"bias of {shape}", "product"], ["c"]),
           node("Gemm", ["d", "v", "c"], ["a"], name="dense"), *quantise("a")],
           f"Gemm 'dense': bias must be one number for each of 3 channels, not of shape {shape}")
          for shape in ([3, 1], [2, 3], [2])],
    ],
)  # fmt: skip
def test_what_is_not_on_codes_is_refused(nodes, reason):
    constants = {"many": np.float32([1, 2]), "wide": np.int32(0), "t": np.float32(0.2), "w": np.ones((4, 3), np.int8),
                 "product": np.float32(0.1) * np.float32(0.2)}  # fmt: skip
    constants |= {f"bias of {[*shape]}": np.zeros(shape, np.int32) for shape in ((3, 1), (2, 3), (2,))}
    proto = pairs(*nodes, constants=constants)
    if any("more" in item.input for item in nodes):
        proto.graph.input.append(info("more", [], TensorProto.INT8))
    with pytest.raises(UnquantisedModel, match="cannot be executed in integers") as refusal:
        load(proto)
    assert [reason in text for text in refusal.value.reasons] == [True]


@pytest.mark.parametrize("kind, low, high", [("UINT2", 0, 3), ("INT2", -2, 1), ("UINT4", 0, 15), ("INT4", -8, 7),
                                             ("UINT16", 0, 65535), ("INT16", -32768, 32767)])  # fmt: skip
def test_codes_of_all_widths(kind, low, high):
    zero = helper.make_tensor("z", getattr(TensorProto, kind), [], [1])
    proto = pairs(node("Relu", ["d"], ["a"]), *quantise("a"), opset=25 if "T2" in kind else 21)
    position = [item.name for item in proto.graph.initializer].index("z")
    del proto.graph.initializer[position]
    proto.graph.initializer.append(zero)
    network = load(proto)
    assert network.scheme("y").bits == int(kind.rpartition("T")[2]) and network.tables.report().sites == 1
    codes = network.run({"x": np.float32([[1e9, -1e9, 0, 0.1]])}, every=True)
    assert codes["q"].tolist() == [[high, low, 1, min(2, high)]]
    assert codes["yq"].tolist() == [[high, 1, 1, min(2, high)]]


def test_pairs_of_onnxruntime():
    """Those of its own domain, which had 16 bits before ONNX did."""
    nodes = [node("DequantizeLinear", ["c", "s", "w"], ["y"], domain="com.microsoft")]
    nodes.insert(0, node("QuantizeLinear", ["d", "s", "w"], ["c"], domain="com.microsoft"))
    network = load(pairs(*nodes, constants={"w": np.uint16(40000)}, domains=("com.microsoft",)))
    assert network.run({"x": np.float32([[1, -1, 0, 99]])})["y"].tolist() == [[40010, 39997, 40000, 40252]]


@pytest.mark.parametrize("seed", range(6))
def test_widths_between_layers(seed):
    """ONNX Runtime computes most of it in floats, as it has no integer kernels; codes may be neighbours."""
    rng = np.random.default_rng(seed)
    maker, x = QdqMaker((12,), rng), rng.normal(0, 1, (24, 12)).astype(np.float32)
    t = maker.fitted("x", str(rng.choice(list(CODES))), x)
    for k, op in enumerate(("Relu", "Tanh", "LeakyRelu")):
        t = maker.fitted(maker.product(t, 12, 12, axis=1 if k == 1 else None), str(rng.choice(list(CODES))), x)
        t = maker.add(op, t)
        for _ in range(2):
            t = maker.fitted(t, str(rng.choice(list(CODES))), x)
    proto = maker.model([t])
    network, composed = load(proto, compose=False), load(proto)
    assert network.tables.report().sites > composed.tables.report().sites == 3
    own = network.run({"x": x}, every=True)
    assert np.array_equal(*composed.run({"x": x}).values(), *network.run({"x": x}).values())
    floats = {item.output[0]: item.input[0] for item in proto.graph.node if item.input[0] in own}
    del proto.graph.output[:]
    proto.graph.output.extend(info(name, None) for name in floats)
    count = different = 0
    for codes, values in zip(floats.values(), onnxruntime_results(proto, {"x": x}), strict=True):
        scheme = network.scheme(codes)
        theirs = np.rint(values / np.float32(scheme.scale)).astype(int) + scheme.zero
        assert np.abs(theirs - own[codes]).max() <= 1
        count, different = count + theirs.size, different + int(np.sum(theirs != own[codes]))
    print(f"seed {seed}: {count} codes compared, {different} different")
    assert count == 2880 and different < 0.01 * count


def test_a_network_ends_where_it_is_asked_to():
    proto = pairs(node("Relu", ["d"], ["a"]), *quantise("a", "b"), node("Erf", ["b"], ["y"]))
    assert load(proto, ["bq"]).run({"x": np.float32([[1, -2, 0, 30]])})["bq"].tolist() == [[13, 3, 3, 255]]
    with pytest.raises(ValueError, match=r"outputs must be tensors of the model, not \['c'\]"):
        load(proto, ["c"])


def test_an_input_is_moved_before_it_is_quantised():
    """Twice in one way and once in another, with the scheme of each place; its codes are those of all."""
    scheme = {"s": np.float32(0.1), "z": np.uint8(3), "t": np.float32(0.2), "flat": ints(0, -1)}
    nodes = [node("Transpose", ["x"], ["a"], perm=[0, 2, 1]), node("Reshape", ["a", "flat"], ["b"]),
             *quantise("b", "c"), *quantise("a", "d"), node("Flatten", ["d"], ["e"]), node("Add", ["c", "e"], ["f"]),
             *quantise("f"), *quantise("x", "g")]  # fmt: skip
    proto = model(nodes, {"x": ["N", 2, 3]}, ("y", "g"), scheme)
    x = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    assert compared(proto, {"x": x}, "UINT8") == (5 * 6 * 4, 0)


def test_an_input_that_is_quantised_in_two_ways_is_wide():
    """Each reader converts it for itself, in front of movements and behind them."""
    scheme = {"s": np.float32(0.1), "z": np.uint8(3), "t": np.float32(0.2), "flat": ints(0, -1)}
    nodes = [node("Transpose", ["x"], ["a"], perm=[0, 2, 1]), node("Reshape", ["a", "flat"], ["b"]),
             *quantise("b", "c"), *quantise("x", "y", "t"), *quantise("a", "d", "t"), *quantise("x", "e")]  # fmt: skip
    proto = model(nodes, {"x": ["N", 2, 3]}, ("y", "c", "d", "e"), scheme)
    network, x = load(proto), np.random.default_rng(0).normal(0, 9, (5, 2, 3)).astype(np.float32)
    assert network.graph.is_wide(network.graph.inputs["x"])
    want = onnxruntime_results(proto, {"x": x})
    for (name, codes), numbers in zip(network.run({"x": x}).items(), want, strict=True):
        assert np.array_equal(
            (codes.astype(int) - 3).astype(np.float32) * np.float32(network.scheme(name).scale), numbers
        )


def test_inputs_are_codes_or_floats():
    network = load(pairs(node("Relu", ["d"], ["a"]), *quantise("a")))
    codes = np.array([[13, 0, 3, 255]], dtype=np.uint8)
    assert network.run({"x": codes})["y"].tolist() == [[13, 3, 3, 255]]
    for inputs, reason in (({}, r"inputs must be \['x'\]"), ({"x": [[256] * 4]}, "codes must be in 0..255"),
                           ({"x": [[np.nan] * 4]}, "must be numbers"),
                           ({"x": [1.0] * 4}, r"x must have shape \[samples, 4\], not \[4\]"),
                           ({"x": [[1.0] * 5]}, r"x must have shape \[samples, 4\], not \[1, 5\]")):  # fmt: skip
        with pytest.raises(ValueError, match=reason):
            network.run(inputs)
    for values in (codes.astype(bool), codes.astype(complex), codes.astype(str)):
        with pytest.raises(TypeError, match="x must be an array of floats or of codes, not of "):
            network.run({"x": values})


@pytest.mark.parametrize("kind, code", [("UINT8", np.uint8), ("INT8", np.int8)])
def test_codes_without_a_zero_point(kind, code):
    """Those of an input have its type."""
    proto = model([node("DequantizeLinear", ["x", "s"], ["d"]), node("Relu", ["d"], ["a"]), *quantise("a", zero="")],
                  {}, ("yq",), {"s": np.float32(0.1)})  # fmt: skip
    proto.graph.input.append(info("x", ["N", 3], getattr(TensorProto, kind)))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    assert load(proto).run({"x": np.array([[90, 7, 0]], code)})["yq"].tolist() == [[90, 7, 0]]


def test_nodes_of_one_name():
    """Names say nothing: the second node has a constant where the first one has a tensor."""
    nodes = [node("QLinearAdd", [a, "s", "z", b, "s", "z", "s", "z"], [y], name="sum", domain="com.microsoft")
             for a, b, y in (("q", "q", "r"), ("r", "c", "p"))]  # fmt: skip
    proto = pairs(*nodes, node("DequantizeLinear", ["p", "s", "z"], ["y"]), constants={"c": np.uint8([5, 6, 7, 8])},
                  domains=("com.microsoft",))  # fmt: skip
    x = np.uint8([[3, 4, 5, 6]])
    assert load(proto).run({"x": x})["y"].tolist() == [[5, 8, 11, 14]]


def test_tensors_may_be_called_like_those_that_are_made():
    nodes = [node("Relu", ["d"], ["r"]), node("QuantizeLinear", ["r", "s", "z"], ["m/codes"]),
             node("DequantizeLinear", ["m/codes", "s", "z"], ["e"]), node("MaxPool", ["d"], ["m"], kernel_shape=[1]),
             node("Add", ["m", "e"], ["a"]), *quantise("a")]  # fmt: skip
    proto = pairs(*nodes, inputs={"x": ["N", 1, 3]})
    assert load(proto).run({"x": np.uint8([[[3, 8, 0]]])})["y"].tolist() == [[[3, 13, 0]]]


def test_an_accumulator_that_may_overflow_is_named():
    constants = {"w": np.full((1 << 18, 1), 127, np.int8), "wz": np.int8(0)}
    nodes = [node("DequantizeLinear", ["w", "s", "wz"], ["v"]), node("MatMul", ["d", "v"], ["a"], name="wide")]
    proto = pairs(*nodes, *quantise("a"), constants=constants, inputs={"x": ["N", 1 << 18]})
    network = load(proto)
    assert network.wide_sums == {"wide": 127 * 252 << 18}
    assert "wide: accumulators may reach 8389656576, beyond 32 bits" in network.report()
    assert network.run({"x": np.zeros((1, 1 << 18), np.float32)})["y"].tolist() == [[3]]
    with pytest.raises(OverflowError, match="must fit 32 bits"):
        network.run({"x": np.full((1, 1 << 18), 9, np.float32)})
