"""Models that are quantised already: scales are honoured, and what cannot be held exactly is named."""

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner

from concord.cli import main
from concord.compiler.formats import choose_formats, emulate
from concord.compiler.model import compile_graph, recompile
from concord.compiler.quantized import exponents_of, static_exponent_of
from concord.compiler.tensor_formats import Formats
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.ir import Quantization
from concord.report import Analysis, analyse, render
from concord.spec.presets import TINY, with_mantissas
from onnx_models import model, node


def network(scale=2.0**-5, dtype=np.int8, zero=0, weight_scale=2.0**-7, most=127):
    """Two products with a quantised tensor between them, all weights quantised; the results are quantised, too."""
    rng = np.random.default_rng(12)
    constants = {
        "v": rng.integers(-most, most + 1, (6, 8)).astype(np.int8),
        "w": rng.integers(-most, most + 1, (8, 4)).astype(np.int8),
        "vs": np.float32(weight_scale), "ws": np.full(4, weight_scale, np.float32), "wz": np.zeros(4, np.int8),
        "xs": np.float32(2.0**-4), "xz": np.int8(0), "as": np.float32(scale), "az": dtype(zero),
    }  # fmt: skip
    constants["v"][0, 0] = constants["w"][0, 0] = -most
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]), node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        node("DequantizeLinear", ["v", "vs"], ["vd"]), node("MatMul", ["xd", "vd"], ["m"], name="first"),
        node("Relu", ["m"], ["a"]),
        node("QuantizeLinear", ["a", "as", "az"], ["aq"]), node("DequantizeLinear", ["aq", "as", "az"], ["ad"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1),
        node("MatMul", ["ad", "wd"], ["y"], name="second"),
    ]  # fmt: skip
    return model(nodes, {"x": ["N", 6]}, constants=constants)


def known(scale=0.5, zero=0, bits=8, signed=True, axis=None):
    return Quantization(np.asarray(scale, float), np.asarray(zero), bits, signed, axis)


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


def test_report_and_folder(tmp_path):
    (tmp_path / "net.onnx").write_bytes(network(dtype=np.uint8, zero=100).SerializeToString())
    result = CliRunner().invoke(main, ["compile", str(tmp_path / "net.onnx"), "--preset", "tiny"])
    assert result.exit_code == 0
    line = "a (uint8, zero point 100, scale 0.03125): needs mantissas of 9 bits, not 8; relative error 0."
    assert f"not exact: {line}" in result.output
    assert f"not exact: {line}" in CliRunner().invoke(main, ["inspect", str(tmp_path / "net")]).output
    compiled = recompile(tmp_path / "net")
    analysis = analyse(compiled, {"x": np.random.default_rng(13).normal(0, 1, (4, 6))})
    assert analysis.inexact == compiled.inexact and Analysis.from_json(analysis.to_json()) == analysis
    page = render(analysis)
    assert "<h2>Not exact</h2>" in page and "needs mantissas of 9 bits, not 8" in page
    exact = analyse(compile_graph(import_model(network()), TINY), {"x": np.random.default_rng(13).normal(0, 1, (4, 6))})
    assert "Not exact" not in render(exact)
