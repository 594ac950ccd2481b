"""Quantised networks as they are: every code of every tensor is ONNX Runtime's."""

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from concord import integer
from concord.integer.operations import CodeTable
from support.integer_nets import SHAPE, compared, quantised, small_network
from support.onnx_models import model, node
from support.trained import DATA, needs_data

#: The type of activations, its name in ONNX, and the forms in which ONNX Runtime has integer kernels for it.
KINDS = [(QuantType.QUInt8, "UINT8", QuantFormat.QDQ), (QuantType.QInt8, "INT8", QuantFormat.QOperator),
         (QuantType.QUInt8, "UINT8", QuantFormat.QOperator)]  # fmt: skip
IDS = ["qdq-uint8", "operators-int8", "operators-uint8"]
#: Trained networks and their data.
TRAINED = [("ic_resnet8", "ic_cifar10"), ("kws_dscnn", "kws_mfcc_int8"), ("vww_mobilenetv1_025", "vww_coco"),
           ("sww_dscnn1d", "sww_logmel"), ("ad_fc_autoencoder", "ad_toycar"), ("digits_cnn", "digits"),
           ("mnist_cnn", "mnist")]  # fmt: skip


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
    network = integer.load(case[0])
    (output,) = network.run({"x": samples}).values()
    plain = integer.load(case[0], compose=False).run({"x": samples})
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
    assert count > 4000 and different == 0


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
    tables = integer.load(proto).tables
    print(f"{name} symmetric: {count} codes compared, {different} different; {tables.report()}")
    assert count > 80000 and different == 0
    assert (tables.report().sites, tables.report().tables) == (sites, 1)
    tables.check()


def pairs(*nodes, constants=None, inputs=None, outputs=("y",)):
    """A model of nodes between ``q`` (codes of the input) and its outputs, with scale ``s`` and zero point ``z``."""
    scheme = {"s": np.float32(0.1), "z": np.uint8(3)}
    first = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"])]
    return model([*first, *nodes], inputs or {"x": ["N", 4]}, outputs, scheme | (constants or {}))


def quantise(x, y="y", scale="s", zero="z"):
    """The codes of a tensor, and the floats that they stand for."""
    return [node("QuantizeLinear", [x, scale, zero], [f"{y}q"]), node("DequantizeLinear", [f"{y}q", scale, zero], [y])]


@pytest.mark.parametrize(
    "nodes, reason",
    [
        ([node("LRN", ["d"], ["a"], size=1, name="last"), *quantise("a")], "LRN 'last': is not an operator on codes"),
        ([node("Add", ["x", "d"], ["a"], name="sum"), *quantise("a")], "Add 'sum': must read codes, not the floats"),
        ([node("Add", ["d", "d"], ["y"])], "output 'y': must be codes"),
        (
            [node("Add", ["d", "d"], ["a"]), node("Sigmoid", ["a"], ["b"], name="gate"), *quantise("b")],
            "Sigmoid 'gate': must read codes, not what a product or a sum makes",
        ),
        ([node("MatMul", ["d", "d"], ["a"], name="two"), *quantise("a")], "MatMul 'two': second operand must be const"),
        ([node("Relu", ["d"], ["a"]), *quantise("a", scale="many")], "activations must have one scale"),
        ([node("Relu", ["d"], ["a"]), *quantise("a", zero="wide")], "at most 16 bits, not int32"),
        ([node("DequantizeLinear", ["q", "t", "z"], ["y"])], "must be those of QuantizeLinear"),
    ],
)  # fmt: skip
def test_what_is_not_on_codes_is_refused(nodes, reason):
    constants = {"many": np.float32([1, 2]), "wide": np.int32(0), "t": np.float32(0.2)}
    with pytest.raises(integer.UnquantisedModel, match="cannot be executed in integers") as refusal:
        integer.load(pairs(*nodes, constants=constants))
    assert [reason in text for text in refusal.value.reasons] == [True]


def test_a_network_ends_where_it_is_asked_to():
    proto = pairs(node("Relu", ["d"], ["a"]), *quantise("a", "b"), node("Erf", ["b"], ["y"]))
    assert integer.load(proto, ["bq"]).run({"x": np.float32([[1, -2, 0, 30]])})["bq"].tolist() == [[13, 3, 3, 255]]
    with pytest.raises(ValueError, match=r"outputs must be tensors of the model, not \['c'\]"):
        integer.load(proto, ["c"])


def test_inputs_are_codes_or_floats():
    network = integer.load(pairs(node("Relu", ["d"], ["a"]), *quantise("a")))
    codes = np.array([[13, 0, 3, 255]], dtype=np.uint8)
    assert network.run({"x": codes})["y"].tolist() == [[13, 3, 3, 255]]
    for inputs, reason in (({}, r"inputs must be \['x'\]"), ({"x": [[256]]}, "codes must be in 0..255"),
                           ({"x": [[np.nan]]}, "must be numbers")):  # fmt: skip
        with pytest.raises(ValueError, match=reason):
            network.run(inputs)


def test_an_accumulator_that_may_overflow_is_named():
    constants = {"w": np.full((1 << 18, 1), 127, np.int8), "wz": np.int8(0)}
    nodes = [node("DequantizeLinear", ["w", "s", "wz"], ["v"]), node("MatMul", ["d", "v"], ["a"], name="wide")]
    proto = pairs(*nodes, *quantise("a"), constants=constants, inputs={"x": ["N", 1 << 18]})
    network = integer.load(proto)
    assert network.wide_sums == {"wide": 127 * 252 << 18}
    assert "wide: accumulators may reach 8389656576, beyond 32 bits" in network.report()
    assert network.run({"x": np.zeros((1, 1 << 18), np.float32)})["y"].tolist() == [[3]]
    with pytest.raises(OverflowError, match="must fit 32 bits"):
        network.run({"x": np.full((1, 1 << 18), 9, np.float32)})
