"""Models that are quantised already: scales are honoured, and what cannot be held exactly is named."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

from concord.compiler.calibration.calibration import relative_error
from concord.compiler.ir.arrangement import InputGrid
from concord.compiler.ir.quantized import exponents_of, grids_of, static_exponent_of
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.golden.codes import CodeRange, Codes
from concord.graph import execute
from concord.networks.calibrated import choose_formats, emulate
from concord.networks.folder import load_package, recompile, save_package
from concord.report import NetworkFacts, analyse, render
from concord.spec.presets import ECP5_85F, TINY, with_mantissas
from support.commands import run
from support.onnx_models import model, node, onnxruntime_results
from support.quantised_nets import QdqMaker, network
from support.trained import DATA, needs_data


def pair(zero):
    """The input ``x`` through codes of the type of ``zero``, as ``xd``."""
    return [node("QuantizeLinear", ["x", "s", "z"], ["xq"]), node("DequantizeLinear", ["xq", "s", "z"], ["xd"])]


def known(scale=0.5, zero=0, bits=8, signed=True, axis=None):
    return Codes(bits, scale, zero, CodeRange.of(signed), axis=axis)


@pytest.mark.parametrize(
    ("quantization", "mant", "want"),
    [
        (known(0.25), 8, -2),
        (known(0.25), 9, -2),
        (known(0.25), 5, 1),
        (known(0.25, signed=False), 8, -1),
        (known(0.25, signed=False), 9, -2),
        (known(0.25, 128, signed=False), 9, -2),
        (known(0.25, 3), 8, -1),
        (known(0.25, bits=4), 8, -2),
        (known(0.3), 8, None),
        (known([0.25, 0.5], [0, 0], axis=1), 8, None),
        (known(2.0**-30), 8, None),
        (known(2.0**30), 8, None),
    ],
)
def test_what_a_scale_means(quantization, mant, want):
    assert static_exponent_of(quantization, with_mantissas(TINY, mant)) == want


def test_scales_become_static_exponents():
    """The results are those of onnxruntime, which rounds and saturates to codes, but for their rounding to binary16."""
    proto = network(scale=2.0**-10, most=31)
    graph = import_model(proto)
    compiled = compile_graph(graph, TINY)
    assert compiled.inexact == () and "not exact" not in compiled.image.metadata
    assert compiled.package.formats.exponents == exponents_of(graph, TINY) == {"a": -10}
    x = np.random.default_rng(13).integers(-7, 8, (50, 6)) / 16
    hidden = execute.run(graph, {"x": x}, keep=["a"])["a"]
    assert (hidden > 127 * 2.0**-10).any() and (np.rint(hidden * 1024) != hidden * 1024).any()
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x.astype(np.float32)})
    np.testing.assert_array_equal(emulate(compiled, {"x": x})["y"], want.astype(np.float16))


@pytest.mark.parametrize(
    ("x", "mant", "grid"),
    [
        ((0.25, np.int8(0)), 8, InputGrid(-2, -127, 127)),
        ((0.25, np.int8(0)), 9, InputGrid(-2, -128, 127)),
        ((4.0, np.uint8(128)), 8, InputGrid(2, -128, 127)),
        ((4.0, np.uint8(0)), 8, InputGrid(2, 0, 255)),
        ((0.25, np.int16(-3)), 8, InputGrid(-2, -32765, 32770)),
        ((0.3, np.int8(0)), 8, None),
    ],
)
def test_what_inputs_are_rounded_to(x, mant, grid):
    graph = import_model(network(x=x))
    assert grids_of(graph, with_mantissas(TINY, mant)).get("x") == grid
    assert "x" not in exponents_of(graph, TINY)


@pytest.mark.parametrize(
    ("x", "mant", "largest"),
    [
        ((2.0**-4, np.int8(0)), 8, 127),
        ((2.0**-4, np.int8(0)), 9, 999),
        ((2.0**-4, np.int8(3)), 8, 121),
        ((2.0**-4, np.int8(3)), 9, 999),
        ((2.0**-4, np.uint8(100)), 8, 121),
        ((2.0**-4, np.uint8(100)), 9, 999),
        ((2.0**-4, np.uint8(0)), 9, 999),
    ],
)
def test_inputs_are_rounded_and_limited_to_codes(x, mant, largest):
    """As onnxruntime does, beyond the range, too, where the mantissas hold all codes; else up to those they hold."""
    proto = network(scale=2.0**-9, dtype=np.int8 if mant == 8 else np.uint8, most=15, x=x)
    compiled = compile_graph(import_model(proto), with_mantissas(TINY, mant))
    samples = np.random.default_rng(14).normal(0, 5, (400, 6))
    samples[0, :3] = [2.5 * 2.0**-4, 3.5 * 2.0**-4, -2.5 * 2.0**-4]
    samples = np.clip(samples, -largest * 2.0**-4, largest * 2.0**-4)
    codes = np.rint(samples * 16)
    assert (codes != samples * 16).any() and (largest < 999) == (np.abs(codes).max() <= 127)
    (want,) = onnxruntime_results(proto, {"x": samples})
    np.testing.assert_array_equal(emulate(compiled, {"x": samples})["y"], want.astype(np.float16))
    assert ("x" in {one.name for one in compiled.inexact}) == (mant == 8 and bool(x[1]))


def test_codes_beyond_the_mantissas_are_rounded_in_their_blocks():
    """Beside 200 in the same native vector a 3 becomes 4, else it stays 3. -128 of int8 becomes -127."""
    for x, values, want in (
        (np.uint8(0), [200, 3, 0, 0, 3, 0], [200, 4, 0, 0, 3, 0]),
        (np.int8(0), [-128, 3, 0, 0, 3, 0], [-127, 3, 0, 0, 3, 0]),
    ):
        constants = {"w": np.eye(6, dtype=np.float32), "s": np.float32(1), "z": x}
        graph = import_model(
            model([*pair(x), node("MatMul", ["xd", "w"], ["y"])], {"x": ["N", 6]}, constants=constants)
        )
        got = emulate(compile_graph(graph, TINY), {"x": np.array([values])})["y"]
        assert got.tolist() == [want]


def test_the_folder_keeps_what_inputs_are_rounded_to(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(network().SerializeToString())
    compiled = compile_graph(import_model(path), TINY)
    save_package(compiled.package, tmp_path / "net", path)
    assert (
        "input: x is rounded by the host to multiples of 2**-4 from -127 to 127" in run("inspect", tmp_path / "net")[1]
    )
    arrangement = load_package(tmp_path / "net").arrangement
    assert arrangement.grids == compiled.package.arrangement.grids == {"x": InputGrid(-4, -127, 127)}
    (port,) = arrangement.pack({"x": np.array([[0.1, -9.0, 9.0, 0.09375, 0.03125, 0.0]])}).values()
    assert port.reshape(-1)[:6].tolist() == [0.125, -127 / 16, 127 / 16, 0.125, 0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "mant", "said"),
    [
        ({"dtype": np.uint8}, 8, {"uint8, scale 0.03125": "needs mantissas of 9 bits, not 8"}),
        ({"zero": -7}, 8, {"int8, zero point -7, scale 0.03125": "needs mantissas of 9 bits, not 8"}),
        ({"dtype": np.uint8}, 9, {}),
        ({"zero": 5}, 8, {"int8, zero point 5, scale 0.03125": "needs mantissas of 9 bits, not 8"}),
        ({"scale": 0.03}, 8, {"int8, scale 0.03": "scales are rounded, being no powers of two"}),
        ({"weight_scale": 0.01}, 8, {"weights: int8, scale 0.01": "scales are rounded, being no powers of two"}),
        ({"most": 128}, 8, {"weights: int8, scale 0.0078125": "needs mantissas of 9 bits, not 8"}),
        ({"most": 128}, 9, {}),
    ],
)  # fmt: skip
def test_what_is_not_exact_is_named(options, mant, said):
    if options.get("most") == 128:
        options = options | {"most": 127}
        proto = network(**options)
        for tensor in proto.graph.initializer:
            if tensor.name in ("v", "w"):
                values = np.frombuffer(tensor.raw_data, np.int8).copy()
                values[:3] = -128, 127, 125
                tensor.raw_data = values.tobytes()
        graph = import_model(proto)
    else:
        graph = import_model(network(**options))
    found = compile_graph(graph, with_mantissas(TINY, mant)).inexact
    assert {f"{'weights: ' * one.weights}{one.codes}": one.reason for one in found} == said
    for one in found:
        assert 1e-4 < one.error < 0.02


def test_nine_bits_cost_less_than_eight():
    graph = import_model(network(scale=0.03, dtype=np.uint8, zero=100, weight_scale=0.01))
    errors = {
        m: {one.name: one.error for one in compile_graph(graph, with_mantissas(TINY, m)).inexact} for m in (7, 8, 9)
    }
    # Seven bits are not enough for the input, either, whose scale is a power of two.
    assert list(errors[7]) == ["x", "a", "first", "second"] and list(errors[8]) == ["a", "first", "second"]
    for narrow, wide in ((7, 8), (8, 9)):
        assert all(
            0.3 * errors[narrow][name] < error < 0.7 * errors[narrow][name] for name, error in errors[wide].items()
        )
    narrow = compile_graph(graph, TINY, Formats(mantissas={"first": 6})).inexact
    assert next(one.error for one in narrow if one.name == "first") > 3 * errors[8]["first"]
    assert "needs mantissas of 8 bits, not 6" in next(one.reason for one in narrow if one.name == "first")


def test_calibration_leaves_the_exponents_of_the_model():
    graph = import_model(network())
    x = {"x": np.random.default_rng(13).normal(0, 1, (16, 6))}
    for candidate in choose_formats(graph, TINY, x).candidates:
        assert candidate.compiled.package.formats.exponents.items() >= exponents_of(graph, TINY).items()


@pytest.mark.slow
def test_report_and_folder(tmp_path):
    (tmp_path / "net.onnx").write_bytes(network(dtype=np.uint8, zero=100).SerializeToString())
    code, output = run("compile", tmp_path / "net.onnx", "--preset", "tiny", "--verbose")
    assert code == 0
    line = "ad (uint8, zero point 100, scale 0.03125): needs mantissas of 9 bits, not 8; relative error 0."
    assert f"not exact: {line}" in output
    assert f"not exact: {line}" in run("inspect", tmp_path / "net")[1]
    compiled = recompile(tmp_path / "net")
    analysis = analyse(compiled, {"x": np.random.default_rng(13).normal(0, 1, (4, 6))})
    assert analysis.inexact == compiled.inexact and NetworkFacts.from_json(analysis.to_json()) == analysis
    page = render(analysis)
    assert "<h2>Not exact</h2>" in page and "needs mantissas of 9 bits, not 8" in page
    exact = analyse(compile_graph(import_model(network()), TINY), {"x": np.random.default_rng(13).normal(0, 1, (4, 6))})
    assert "Not exact" not in render(exact)


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize(("codes", "mant"), [(QuantType.QInt8, 8), (QuantType.QUInt8, 9)])
def test_a_network_that_onnxruntime_quantised(tmp_path, codes, mant):
    """With scales of tensors that are powers of two: the codes of the input are those of onnxruntime, and results near.

    What is left are scales of weights and sums in binary16 before they become codes.
    """
    with np.load(DATA / "data" / "digits.npz") as content:
        images, training = content["x"][:100, None] / 16, content["x_train"][:100, None] / 16
    images = np.clip(images + np.random.default_rng(16).normal(0, 0.05, images.shape), 0, 1).astype(np.float32)

    class Calibration(CalibrationDataReader):
        def __init__(self):
            self.left = iter([{"input": image[None].astype(np.float32)} for image in training])

        def get_next(self):
            return next(self.left, None)

    scales, path = {}, tmp_path / "quantised.onnx"
    for _ in range(2):
        options = {"ActivationSymmetric": mant == 8, "WeightSymmetric": True, "TensorQuantOverrides": scales}
        quantize_static(
            DATA / "models" / "digits_cnn.onnx", path, Calibration(), activation_type=codes, extra_options=options
        )
        proto = onnx.load(path)
        numbers = {item.name: numpy_helper.to_array(item) for item in proto.graph.initializer}
        found = {item.input[0]: item.input[1:] for item in proto.graph.node if item.op_type == "QuantizeLinear"}
        scales = {
            name: [{"scale": np.asarray(np.exp2(np.ceil(np.log2(numbers[scale])))), "zero_point": numbers[zero]}]
            for name, (scale, zero) in found.items()
        }
    graph = import_model(path)
    compiled = compile_graph(graph, with_mantissas(ECP5_85F, mant))
    assert list(compiled.package.arrangement.grids) == ["input"] and not any(
        one.name == "input" for one in compiled.inexact
    )
    want = np.concatenate([onnxruntime_results(proto, {"input": image[None]})[0] for image in images])
    plain = replace(compiled.package, arrangement=replace(compiled.package.arrangement, grids={}))
    errors = []
    for package in (compiled.package, plain):
        got = emulate(replace(compiled, package=package), {"input": images})["output"].reshape(want.shape)
        errors.append(relative_error(got, want))
        assert (got.argmax(axis=1) == want.argmax(axis=1)).mean() > 0.98
    assert errors[0] < 0.025 and errors[0] < 0.96 * errors[1]


def test_tensors_that_are_read_as_they_are_are_named():
    """A sum reads a tensor wide, without rounding to codes; a product beside it reads codes."""
    maker = QdqMaker((6,), np.random.default_rng(1))
    hidden = maker.add("MatMul", maker.pair("x", "INT8", 0.25), maker.weight((6, 6), exact=True))
    codes = maker.pair(hidden, "INT8", 0.5)
    product = maker.add("MatMul", codes, maker.weight((6, 6), exact=True))
    for result, named in ((maker.add("Add", product, codes), [hidden]), (product, [])):
        compiled = compile_graph(import_model(maker.model([result])), ECP5_85F)
        found = [one for one in compiled.inexact if "is read without being rounded to its codes" in one.reason]
        assert [one.name for one in found] == named == [one.name for one in compiled.inexact]
        assert all(
            one.error == pytest.approx(1 / np.sqrt(12) / np.sqrt(np.mean(np.arange(-127, 128.0) ** 2))) for one in found
        )
