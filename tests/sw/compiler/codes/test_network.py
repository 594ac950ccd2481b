"""Networks on codes on an NPU: every code is that of the definition, and what is not computed there is named."""

import dataclasses
import json

import numpy as np
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

import concord
from concord.compiler.codes import package as codes_package
from concord.compiler.codes.operations import WeightedPair, WindowSums
from concord.compiler.codes.package import compile_codes
from concord.compiler.codes.rewriting import NotOnNpu
from concord.frontend.codes import load
from concord.host import connect
from concord.integer.shapes import fixed_sizes
from concord.networks.folder import load_codes, load_package, save_package
from concord.program.allocator import CapacityError
from concord.report import analyse
from concord.report.facts import NetworkFacts
from concord.spec.memmap import RegionId
from concord.spec.operations import Op
from concord.spec.presets import ECP5_85F, TINY
from support.commands import run
from support.few_bits import in_few_bits
from support.frameworks import needs
from support.integer_nets import SHAPE, quantised, small_network
from support.onnx_models import floats, model, node
from support.quantised_nets import relu_of_codes
from support.rtl_configs import FED_SCALING
from support.trained import DATA, needs_data

TYPES = {"int8": (QuantType.QInt8, False), "uint8": (QuantType.QUInt8, False), "symmetric": (QuantType.QInt8, True)}

#: Contents of a model that nobody reads.
MODEL = b"a model"
#: What ``--json`` says of results on codes.
CODE_KEYS = {"shape", "type", "scale", "zero"}


@pytest.fixture(scope="module")
def samples():
    return np.random.default_rng(1).normal(size=(4, *SHAPE)).astype(np.float32)


@pytest.fixture(scope="module", params=TYPES)
def network(request, samples, tmp_path_factory):
    kind, symmetric = TYPES[request.param]
    options = {"quant_format": QuantFormat.QDQ, "activation_type": kind, "weight_type": QuantType.QInt8}
    extra = {"ActivationSymmetric": symmetric}
    folder = tmp_path_factory.mktemp("small")
    return load(quantised(folder, small_network(), samples, extra_options=extra, **options))


def results(codes, inputs, config):
    with connect("emulator", config) as device:
        device.load(codes.image)
        found = codes.run(device, inputs)
        return found, device.flags()


def equal(found, wanted):
    return found.keys() == wanted.keys() and all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_too_large_a_network_is_told_what_takes_it(network):
    small = FED_SCALING.replace(matrix_depth=16)
    with pytest.raises(CapacityError, match=r"has 16 words, .*; block floating point .*: compile without") as error:
        compile_codes(network, small)
    assert error.value.short[RegionId.MATRIX][0] == 16


def test_every_code_is_that_of_the_definition(network, samples):
    codes = compile_codes(network, FED_SCALING)
    found, flags = results(codes, {"x": samples}, FED_SCALING)
    wanted, exact = codes.package.expected({"x": samples}), network.run({"x": samples})
    assert equal(found, wanted) and not flags
    assert found["y"].dtype == exact["y"].dtype
    assert np.abs(found["y"].astype(int) - exact["y"].astype(int)).max() <= 2
    assert codes.package.split.host == []


@pytest.mark.slow
@pytest.mark.parametrize("kind, bits", [(QuantType.QUInt8, 4), (QuantType.QInt8, 5)])
def test_codes_of_few_bits(kind, bits, samples, tmp_path):
    """Mantissas of few bits hold them, and every code is that of the definition."""
    options = {"quant_format": QuantFormat.QDQ, "activation_type": kind, "weight_type": QuantType.QInt8}
    proto = in_few_bits(quantised(tmp_path, small_network(), samples, **options), bits)
    config = FED_SCALING.replace(act_mant=6)
    codes = compile_codes(load(proto, pairs=False), config)
    found, flags = results(codes, {"x": samples}, config)
    assert equal(found, codes.package.expected({"x": samples})) and not flags
    assert len(np.unique(found["y"])) > 3
    if bits == 4:  # the sum of two tensors is a table with two indices elsewhere
        source = tmp_path / "few.onnx"
        source.write_bytes(proto.SerializeToString())
        code, output = run("compile", source, "--exact", "--preset", "ecp5-85f", "-o", tmp_path / "net")
        assert code == 0, output
        with pytest.raises(NotOnNpu, match="tables with two indices are not on the NPU; load the network with pairs=F"):
            compile_codes(load(proto), config)


def test_codes_at_the_ends_of_their_range(network):
    scheme = network.graph.schemes[network.graph.inputs["x"]]
    x = np.random.default_rng(2).choice([scheme.low, scheme.low + 1, scheme.zero, scheme.high], (6, *SHAPE))
    codes = compile_codes(network, FED_SCALING)
    found, flags = results(codes, {"x": x}, FED_SCALING)
    assert equal(found, codes.package.expected({"x": x})) and not flags
    stored = codes.package.split.stored[network.graph.inputs["x"]]
    text = f"x: {stored.low} to {stored.high}, less {stored.origin}"
    assert codes.image.metadata["codes"] == [text]
    assert not {"input", "offset", "not exact"} & codes.image.metadata.keys()


def test_a_difference_is_noticed(network, samples):
    codes = compile_codes(network, FED_SCALING)
    k = next(k for k, part in enumerate(codes.package.split.npu.operations) if isinstance(part, WeightedPair))
    part = codes.package.split.npu.operations[k]
    weights = (part.weights[0] // 2, part.weights[1])
    codes.package.split.npu.operations[k] = dataclasses.replace(part, weights=weights)
    found, _ = results(codes, {"x": samples}, FED_SCALING)
    assert not equal(found, codes.package.expected({"x": samples}))


def test_a_requantisation_and_the_functions_behind_it_are_one_table(network):
    codes = compile_codes(network, FED_SCALING)
    kinds = [type(part).__name__ for part in codes.package.split.npu.operations]
    assert kinds.count("CodeTable") >= 2
    layers = codes.lowered.layers
    assert len(layers) == len(kinds) - kinds.count("CodeTable") - kinds.count("CodeMovement")
    assert all(len(layer.table_specs) <= 1 for layer in layers)


def test_what_the_host_computes_is_at_the_end(samples, tmp_path):
    constants = {"w": floats(6, 3, 3, 3) / 5, "v": floats(6 * 36, 4) / 9, "flat": np.array([0, -1])}
    nodes = [
        node("Conv", ["x", "w"], ["a"]), node("Reshape", ["a", "flat"], ["b"]), node("MatMul", ["b", "v"], ["c"]),
        node("Softmax", ["c"], ["y"], axis=-1),
    ]  # fmt: skip
    options = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    proto = model(nodes, {"x": ["N", *SHAPE]}, constants=constants)
    codes = compile_codes(load(quantised(tmp_path, proto, samples, **options)), FED_SCALING)
    assert [type(part).__name__ for part in codes.package.split.host] == ["CodeSoftmax"]
    found, _ = results(codes, {"x": samples}, FED_SCALING)
    assert equal(found, codes.package.expected({"x": samples}))


def test_codes_that_may_be_further_away_are_named(network, monkeypatch):
    codes = compile_codes(network, FED_SCALING)
    assert codes.warnings == []
    monkeypatch.setattr(codes_package, "_LARGE_ERROR", 1e-3)
    lines = codes.warnings
    assert lines and all(": scales of its channels differ by a factor of " in line for line in lines)
    assert all(", and 16 bits hold the least with " in line for line in lines)


@pytest.mark.slow
def test_accumulators_that_the_npu_does_not_hold(network):
    """They are named at once. Without a flag every code is that of the definition; with one, that is an error."""
    assert not any("accumulators" in line for line in compile_codes(network, FED_SCALING).warnings)
    config = FED_SCALING.replace(acc_width=FED_SCALING.acc_width - FED_SCALING.scaled_bits + 23)
    codes = compile_codes(network, config)
    (pair,) = (part for part in codes.package.split.npu.operations if isinstance(part, WeightedPair))
    (line,) = (line for line in codes.warnings if "accumulators" in line)
    assert line.startswith(f"{pair.output}: accumulators may reach {pair.largest_sum}, and the NPU holds 23 bits: ")
    assert (
        f"{pair.name}: accumulators may reach {pair.largest_sum}, beyond 23 bits" in codes.package.arithmetic.report()
    )
    scheme = network.graph.schemes[network.graph.inputs["x"]]
    rng, fits = np.random.default_rng(3), 0
    for k in range(24):
        reach = max(1, (scheme.high - scheme.low) * (k + 1) // 48)
        x = np.clip(scheme.zero + rng.integers(-reach, reach + 1, (1, *SHAPE)), scheme.low, scheme.high)
        found, flags = results(codes, {"x": x}, config)
        if flags:
            with pytest.raises(OverflowError, match=r"^accumulators must fit 23 bits, not be in "):
                codes.package.expected({"x": x})
        else:
            fits += 1
            assert equal(found, codes.package.expected({"x": x}))
    assert 0 < fits < 24


# What is refused ------------------------------------------------------------------------------------------------


def test_other_configurations_are_refused(network):
    with pytest.raises(ValueError, match=r"^configuration must have code_scaling to compute on codes, unlike 'tiny'$"):
        compile_codes(network, TINY)


def test_codes_that_mantissas_do_not_hold_are_named(network):
    narrow = FED_SCALING.replace(act_mant=6)
    with pytest.raises(NotOnNpu, match=r"x_.* has 25[56] codes, and mantissas hold 63; behind that"):
        compile_codes(network, narrow)


def test_weights_that_mantissas_do_not_hold_are_named(network):
    with pytest.raises(NotOnNpu, match=r"weights reach 12\d; mantissas hold 63"):
        compile_codes(network, FED_SCALING.replace(wgt_mant=7))


def test_products_behind_the_host_are_named(samples, tmp_path):
    constants = {"w": floats(6, 3, 3, 3) / 5, "v": floats(6, 4) / 2, "flat": np.array([0, -1])}
    nodes = [
        node("Conv", ["x", "w"], ["a"]), node("Softmax", ["a"], ["s"], axis=1), node("GlobalAveragePool", ["s"], ["p"]),
        node("Reshape", ["p", "flat"], ["b"]), node("MatMul", ["b", "v"], ["y"]),
    ]  # fmt: skip
    options = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    proto = model(nodes, {"x": ["N", *SHAPE]}, constants=constants)
    network = load(quantised(tmp_path, proto, samples, **options))
    with pytest.raises(
        NotOnNpu,
        match=r"CodeSoftmax is not computed on codes .* stand products .*; block floating point",
    ):
        compile_codes(network, FED_SCALING)


# Folders and commands -------------------------------------------------------------------------------------------


def test_a_folder_gives_the_same_codes(network, samples, tmp_path):
    codes = compile_codes(network, FED_SCALING)
    save_package(codes.package, tmp_path / "net", MODEL)
    loaded = load_package(tmp_path / "net")
    assert loaded.image.program == codes.image.program
    found, _ = results(loaded, {"x": samples}, FED_SCALING)
    assert equal(found, codes.package.expected({"x": samples})) and equal(loaded.expected({"x": samples}), found)
    own = load_codes(tmp_path / "net").run({"x": samples})
    assert equal(own, network.run({"x": samples}))


def test_a_folder_of_a_removed_preset(network, samples, tmp_path):
    codes = compile_codes(network, FED_SCALING.replace(name="ecp5-85f-int8", board="ulx3s-85f"))
    save_package(codes.package, net := tmp_path / "net", MODEL)
    np.savez(tmp_path / "x.npz", x=samples)
    assert run("run", net, "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz")[0] == 0
    assert equal(dict(np.load(tmp_path / "y.npz")), codes.package.expected({"x": samples}))
    code, output = run("flash", net, "--build", tmp_path)
    assert code == 1 and "a preset that was removed: ecp5-85f takes its place" in output
    again = f"`concord compile {net}/model.onnx --exact --preset ecp5-85f -o {net}`, with the options of then"
    assert again in output


def test_python_compiles_them_as_the_command_does(samples, tmp_path):
    """Results are codes; what a network on codes has nothing for is refused."""
    proto = relu_of_codes()
    network = concord.compile(proto, exact=True, config=FED_SCALING)
    x = np.float32([[1, -1, 0, 99]])
    (found,) = network.run({"x": x}).values()
    assert found.dtype == np.uint8 and np.array_equal(found, load(proto).run({"x": x})["y"])
    network.save(tmp_path / "net")
    assert (tmp_path / "net" / "model.onnx").read_bytes() == proto.SerializeToString()
    assert np.array_equal(concord.load(tmp_path / "net")(x[0]), found[0])
    for options, why in (
        ({}, "exact must be given with preset or config: concord.frontend.codes.load needs no NPU"),
        ({"preset": "ecp5-85f", "batch": 2, "calibrate": x}, "a network on codes must be given without --batch, --cal"),
        ({"board": "ulx3s-85f"}, "--exact must be given with --preset or --config for a --board and a --link"),
    ):
        with pytest.raises(ValueError, match=f"^{why}"):
            concord.compile(proto, exact=True, **options)
    with pytest.raises(ValueError, match=r"^--rounding must be given with --exact"):
        concord.compile(proto, rounding="onnx")


def test_a_report_compares_every_layer_with_the_definition(network, samples):
    """Also where the host pads an input, takes off an offset, or leaves out a code."""
    codes = compile_codes(network, FED_SCALING)
    facts = analyse(codes, {"x": samples})
    assert facts.error == 0 and len(facts.layers) > 4
    assert {part.largest for layer in facts.layers for part in (layer.error, layer.own_error)} == {0.0}
    assert all(layer.work.cycles > 0 for layer in facts.layers) and not facts.inexact
    wrong = dataclasses.replace(codes, definition=codes.graph)
    assert not codes.package.arrangement.input_offsets or analyse(wrong, {"x": samples}).error > 0


@pytest.mark.slow
def test_commands(samples, tmp_path):
    options = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    proto = quantised(tmp_path, small_network(), samples, **options)
    np.savez(tmp_path / "x.npz", x=samples)
    net, wanted = tmp_path / "net", load(proto)
    words = ("compile", tmp_path / "quantised.onnx", "--exact", "--preset", "ecp5-85f", "-o", net)
    code, output = run(*words)
    assert code == 0, output
    assert f"{net}: 6 layers, 58 instructions" in output
    assert "samples/s in a batch" in output
    code, output = run("run", net, "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    assert code == 0, output
    assert " of 20 codes are others than with the scales of the network" in output and "no flags were raised" in output
    codes = compile_codes(wanted, ECP5_85F)
    assert np.array_equal(np.load(tmp_path / "y.npz")["y"], codes.package.expected({"x": samples})["y"])
    code, output = run("run", net, "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz", "--json")
    facts = json.loads(output)
    assert code == 0 and facts["flags"] == [] and facts["results"]["y"].keys() == CODE_KEYS | {"different", "most"}
    apart = np.load(tmp_path / "y.npz")["y"].astype(int) - wanted.run({"x": samples})["y"]
    assert facts["results"]["y"]["different"] == np.count_nonzero(apart)
    assert facts["results"]["y"]["most"] == np.abs(apart).max()
    code, output = run("compile", tmp_path / "quantised.onnx", "--exact", "--preset", "ecp5-85f", "--json")
    facts, end = json.JSONDecoder().raw_decode(output)
    assert "mantissas 255 numbers" in facts["warnings"][0] and facts["warnings"][0] in output[end:]
    assert code == 0 and facts["npu"]["name"] == "ecp5-85f" and facts["layers"] == 6 and facts["rates"]
    code, output = run("run", net, "--exact", "-i", tmp_path / "x.npz", "-o", tmp_path / "z.npz")
    assert code == 0, output
    assert np.array_equal(np.load(tmp_path / "z.npz")["y"], wanted.run({"x": samples})["y"])
    code, output = run("inspect", net)
    assert code == 0 and "9 operations" in output and "Rates at" in output and "IntegerConvolution" in output, output
    code, output = run("report", net, "-i", tmp_path / "x.npz")
    assert code == 0 and "6 layers, agreement 100.0 %, error of the result 0.00 %, no flags" in output, output
    facts = json.loads((net / "report.json").read_text())
    assert facts["codes"]["operations"][0]["used"]["sizes"] == [4, 8, 8, 8] and len(facts["layers"]) == 6
    assert NetworkFacts.from_json((net / "report.json").read_text()).codes.samples == 4
    page = (net / "report.html").read_text()
    assert "at the ends" in page and "samples/s" in page
    code, output = run(*words[:3], "--board", "ulx3s-85f", "-o", net)
    assert code == 1 and "--exact must be given with --preset or --config for a --board and a --link" in output
    code, output = run(*words[:4], "ecp5-85f-256", "-o", net)
    assert code == 1 and "configuration must have code_scaling to compute on codes, unlike 'ecp5-85f-256'" in output


# Networks that others have trained ------------------------------------------------------------------------------

OFFICIAL = ["ic_resnet8", "kws_dscnn", "sww_dscnn1d", "vww_mobilenetv1_025"]


@needs_data
@needs("tflite")
@pytest.mark.slow
@pytest.mark.parametrize("name", OFFICIAL)
def test_networks_of_mlperf_tiny(name):
    network = load(DATA / "models" / "tflite_int8" / f"{name}_int8.tflite")
    codes = compile_codes(network, ECP5_85F)
    rng = np.random.default_rng(1)
    graph = network.graph
    inputs = {
        name: rng.integers(graph.schemes[tensor].low, graph.schemes[tensor].high + 1, (2, *fixed_sizes(graph, name)))
        for name, tensor in graph.inputs.items()
    }
    found, flags = results(codes, inputs, ECP5_85F)
    assert equal(found, codes.package.expected(inputs)) and not flags
    assert any(isinstance(part, WindowSums) for part in codes.package.split.npu.operations) or name == "sww_dscnn1d"


@needs_data
@needs("tflite")
@pytest.mark.slow
def test_what_lacks_for_a_network_whose_weights_are_many():
    network = load(DATA / "models" / "tflite_int8" / "ad_fc_autoencoder_int8.tflite")
    why = "matrix memory has 2048 words, but 2208 are needed .*; weights of 1 layer are there twice, as products read"
    with pytest.raises(CapacityError, match=why) as error:
        compile_codes(network, ECP5_85F.without(Op.COPY))
    assert error.value.short == {RegionId.MATRIX: (2048, 2208)}
    assert RegionId.DRAM in compile_codes(network, ECP5_85F).image.loaded(), "copies make it fit"
