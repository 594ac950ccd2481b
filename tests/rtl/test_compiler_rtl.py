"""Compiled networks on the Verilated core: every bit of every layer as on the emulator."""

import re
from pathlib import Path

import numpy as np
import pytest

from concord.compiler.ir.table_segments import divided, sample
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph.execute import run
from concord.host import connect
from concord.networks.calibrated import choose_formats
from concord.report.prefixes import cycles, prefixes
from concord.spec.presets import ECP5_85F_256, TINY
from concord_bench.tasks import TASKS, calibration, folder, load
from support.compiled_nets import (
    attention,
    exchanged_axes,
    graph_convolution,
    group_normalised,
    grouped_softmax,
    gru,
    heads,
    joined_maps,
    large_windows,
    magnitudes,
    normalised,
    perceptron,
    residual,
    scaled_functions,
)
from support.onnx_models import onnxruntime_results
from support.quantised_nets import network
from support.row_tiled_nets import separable
from support.rtl_configs import BY_MANTISSA, FED, NAMED, WRITABLE
from support.trained import needs_data


def check(graph, config, formats=DEFAULT, tolerance=0.1):
    """The same bits on both, close to double precision."""
    compiled = compile_graph(graph, config, formats)
    rng = np.random.default_rng(5)
    x = {name: rng.normal(0, 1, (3, *graph.sample_shape(name))) for name in graph.inputs}
    results = []
    for back_end in ("emulator", "rtl"):
        with connect(back_end, config) as device:
            device.load(compiled.image)
            results.append(compiled.run(device, x))
    for name, want in run(graph, x).items():
        np.testing.assert_array_equal(results[0][name], results[1][name])
        assert np.abs(results[0][name] - want).max() < tolerance * np.abs(want).max()


def two_functions():
    return perceptron(7, 9, 6, 3, functions=["relu", "tanh", None])


def neighbours():
    ring = np.eye(5) / 2 + np.roll(np.eye(5), 1, axis=1) / 4 + np.roll(np.eye(5), -1, axis=1) / 4
    return graph_convolution(ring, 3, 5, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        residual,
        gru,
        attention,
        grouped_softmax,
        lambda: grouped_softmax(seen=True),
        lambda: separable(24),
        scaled_functions,
        normalised,
        exchanged_axes,
        group_normalised,
        joined_maps,
        neighbours,
    ],
    ids=[
        "residual",
        "gru",
        "attention",
        "softmax",
        "softmax apart",
        "row tiles",
        "functions",
        "normalisation",
        "axes",
        "groups",
        "maps",
        "graph",
    ],
)
def test_emulator_and_rtl_agree(make):
    check(make(), TINY)


@pytest.mark.slow
def test_windows_in_stages():
    """Means and maxima over 67 positions, of which a window has 63."""
    check(large_windows(), FED)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mant",
    [pytest.param(m, marks=() if config in NAMED else pytest.mark.deep) for m, config in BY_MANTISSA.items()],
)
def test_other_mantissas(mant):
    """An NPU of any width is generated, and computes what the emulator does."""
    assert (BY_MANTISSA[mant].act_mant, BY_MANTISSA[mant].wgt_mant) == (mant, mant)
    check(residual(), BY_MANTISSA[mant], tolerance=0.05 + 2.0 ** (1 - mant))


@pytest.mark.slow
def test_narrow_weights_of_a_layer():
    check(residual(), TINY, Formats(mantissas={"first": 5, "dense": 4}))


@pytest.mark.slow
def test_codes_of_a_quantised_model():
    """Its input is rounded and limited to codes, all of which are exact: the results are those of onnxruntime."""
    proto = network(scale=2.0**-9, most=15)
    compiled = compile_graph(import_model(proto), TINY)
    x = {"x": np.clip(np.random.default_rng(15).normal(0, 5, (20, 6)), -127 / 16, None)}
    (want,) = onnxruntime_results(proto, x)
    for back_end in ("emulator", "rtl"):
        with connect(back_end, TINY) as device:
            device.load(compiled.image)
            np.testing.assert_array_equal(compiled.run(device, x)["y"], want.astype(np.float16))


@pytest.mark.slow
def test_a_function_by_several_tables():
    parts = divided((("sqrt", ()),), sample(np.exp2(np.linspace(-12, 5, 200))), 3, TINY.table_depth)
    assert len(parts) == 3
    check(magnitudes(), TINY, Formats(table_segments={"root": parts}))


@pytest.mark.slow
@pytest.mark.parametrize("make", [two_functions, residual, gru, attention])
def test_every_layer(make):
    graph = make()
    compiled = compile_graph(graph, TINY)
    rng = np.random.default_rng(6)
    ports = compiled.package.arrangement.pack(
        {name: rng.normal(0, 1, (2, *graph.sample_shape(name))) for name in graph.inputs}
    )
    with connect("emulator", TINY) as emulator, connect("rtl", TINY) as rtl:
        for prefix in prefixes(compiled):
            emulator.load(prefix.image)
            rtl.load(prefix.image)
            want, got = emulator.run(ports), rtl.run(ports)
            assert list(got) == list(want) and want
            for name, values in want.items():
                assert got[name].tobytes() == values.tobytes(), (prefix.parts[0].tensor, name)
            assert rtl.flags() == emulator.flags() == {}


@pytest.mark.slow
def test_cycles_of_attention():
    """Those of the page."""
    page = (Path(__file__).parents[2] / "docs" / "operators.md").read_text()
    compiled = compile_graph(attention(), TINY)
    for part in ("scores", "softmax", "mix"):
        (figure,) = re.findall(rf"^\| {part} \| (\d+) \|$", page, re.M)
        layers = zip(compiled.lowered.layers, cycles(compiled), strict=True)
        found = sum(count for layer, count in layers if layer.name.split("/")[0] == part)
        assert abs(found - int(figure)) <= 0.1 * int(figure)


@pytest.mark.slow
@pytest.mark.parametrize("tokens, stack, width, shared", [(6, 1, 8, 1), (4, 2, 4, 1), (5, 2, 4, 2)])
def test_attention_whose_matrices_the_program_writes(monkeypatch, tokens, stack, width, shared):
    """Causal: one head, heads in one product, and heads with the same keys."""
    monkeypatch.setattr("concord.compiler.lowering.tensor_products.cycles", lambda lowering, node: 0)
    mask = np.triu(np.full((tokens, tokens), -30000.0), 1)
    graph = heads(tokens, stack, width, shared, mask)
    assert any(layer.rows for layer in compile_graph(graph, WRITABLE).lowered.layers)
    check(graph, WRITABLE)


@needs_data
@pytest.mark.slow
def test_a_trained_network_on_pairs_of_rows():
    """DS-CNN with its depthwise and pointwise layers, on the preset in which two rows share their multipliers."""
    task = next(task for task in TASKS if task.model == "kws_dscnn")
    graph, inputs, _ = load(task, folder())
    compiled = choose_formats(graph, ECP5_85F_256, calibration(task, graph, folder())).chosen.compiled
    results = []
    for back_end in ("emulator", "rtl"):
        with connect(back_end, ECP5_85F_256) as device:
            device.load(compiled.image)
            results.append(compiled.run(device, {graph.inputs[0]: inputs[:2]})[graph.outputs[0]])
    np.testing.assert_array_equal(*results)
    assert np.ptp(results[0]) > 0.5
