"""Channels of different scales: powers of two that products and the host take over, from samples and from weights."""

import numpy as np
import pytest

from concord.api.compiling import CompileRequest, compile_network
from concord.compiler.calibration import equalisation
from concord.compiler.calibration.block_losses import product_losses
from concord.compiler.calibration.calibration import relative_error
from concord.compiler.calibration.equalisation import AS_THEY_ARE, for_samples, for_weights
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.graph.channels import channels
from concord.graph.equalised import ChannelScale
from concord.graph.passes import scales
from concord.networks.calibrated import calibration_of, emulate
from concord.networks.layer_errors import measured_errors
from concord.overflow.compiled import analyse_machine
from concord.program.flags import FlagDiagnostic
from concord.prove.derived import Subject
from concord.report import analyse
from concord.spec.compile_options import CompileOptions
from concord.spec.formats import BINARY16_MAX
from concord.spec.presets import ECP5_85F, TINY
from concord_bench.feature_scales import deviations, perceptron, rows
from support.derived_backends import every, networks
from support.derived_modules import same
from support.expressions import ROOMY, concat, network, tensor

FEATURES = (8, 16, 40)


def error(compiled, x, graph):
    return relative_error(emulate(compiled, x)["y"], execute.run(graph, x)["y"])


def compiled_error(graph, x, samples=None, config=ECP5_85F):
    compiled = compile_network(CompileRequest(graph, CompileOptions(), samples), config).compiled
    return error(compiled, x, graph), compiled


@pytest.mark.slow
@pytest.mark.parametrize("features", FEATURES)
def test_features_of_different_scales_with_samples_and_without(features):
    sizes = deviations(features)
    graph, x = perceptron(sizes), rows(sizes, 100)
    assert error(compile_graph(graph, ECP5_85F), x, graph) > 0.08
    assert compiled_error(graph, x, rows(sizes, 60, seed=2))[0] < 0.015
    assert compiled_error(graph, x)[0] < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("with_samples", [True, False])
def test_features_far_from_zero_behind_a_scaler(with_samples):
    """Binary16 holds 2000 +- 1 in steps of 1; the host takes the 2000 off before it rounds."""
    sizes = deviations(12, (0.5, 2.0))
    graph, x = perceptron(sizes, 2000.0, scaler=True), rows(sizes, 100, 2000.0)
    assert error(compile_graph(graph, ECP5_85F), x, graph) > 0.05
    found, compiled = compiled_error(graph, x, rows(sizes, 60, 2000.0, seed=2) if with_samples else None)
    assert found < 0.015
    assert compiled.package.arrangement.channel_scales["x"].offsets == (2000.0,) * 12
    assert {layer.name for layer in compiled.lowered.layers} == {"first", "second"}, "no chain for the scaler"


@pytest.mark.slow
def test_features_far_from_zero_that_the_weights_know():
    sizes = deviations(12, (0.5, 2.0))
    graph, x = perceptron(sizes, 2000.0), rows(sizes, 100, 2000.0)
    found, compiled = compiled_error(graph, x, rows(sizes, 60, 2000.0, seed=2))
    assert found < 0.015
    offsets = np.array(compiled.package.arrangement.channel_scales["x"].offsets)
    assert (np.abs(offsets - 2000) < 1).all()


def test_small_and_large_weights_tell_without_samples():
    sizes = deviations(8)
    graph, x = perceptron(sizes), rows(sizes, 50)
    assert error(compile_graph(graph, ECP5_85F), x, graph) > 0.2
    assert compiled_error(graph, x)[0] < 0.03


@pytest.mark.slow
def test_numbers_that_are_far_apart():
    """The host divides before it rounds."""
    sizes = deviations(8, (0.01, 1e4))
    graph, x = perceptron(sizes), rows(sizes, 60)
    assert compiled_error(graph, x, x)[0] < 0.015


@pytest.mark.slow
def test_a_feature_that_nothing_reads_costs_the_others_nothing():
    sizes = deviations(8, (1.0, 1.0))
    graph, x = perceptron(sizes), rows(sizes, 60)
    graph.nodes[0].attrs["weight"][:, 3] = 0
    x["x"][:, 3] *= 1e4
    assert error(compile_graph(graph, ECP5_85F), x, graph) > 0.5
    assert compiled_error(graph, x, x)[0] < 0.015


@pytest.mark.slow
def test_channels_between_products():
    """What the first product computes differs in scale, and the second one's weights do in the other direction."""
    graph = perceptron(deviations(8, (1.0, 1.0)), hidden=32)
    sizes = np.exp2(np.random.default_rng(4).permutation(np.linspace(-5, 5, 32)))
    for node, factor in ((graph.nodes[0], sizes[:, None]), (graph.nodes[2], 1 / sizes)):
        node.attrs["weight"] = node.attrs["weight"] * factor
    graph.nodes[0].attrs["bias"] *= sizes
    x = rows(np.ones(8), 100)
    assert error(compile_graph(graph, ECP5_85F), x, graph) > 0.1
    for samples in (rows(np.ones(8), 60, seed=2), None):
        found, compiled = compiled_error(graph, x, samples)
        assert found < 0.02 and set(compiled.package.formats.channel_scales) == {"h"}


def layer(op, x, outputs, size, name):
    """A product, its weights and those that read it of one size each."""
    rng, inputs = np.random.default_rng(len(name) + ord(name[-1])), x.shape[1]
    shape = (outputs, inputs) if op == "Dense" else (outputs, inputs, 3, 3)
    weight = rng.normal(size=shape) * np.asarray(size).reshape(1, -1, *[1] * (len(shape) - 2)) / 3
    return x.dense(weight, name=name) if op == "Dense" else x.conv(weight, pads=1, name=name)


def branches(op, widths, ratio, residual=False):
    """Branches whose numbers differ by a ratio side by side, and a product that reads all of them alike.

    The width 0 is the input itself; ``residual`` adds the result of another product to the last branch.
    """
    shape = (1, 12) if op == "Dense" else (1, 3, 8, 8)
    sizes = [ratio ** -(k / (len(widths) - 1)) for k in range(len(widths))]
    x, parts = tensor(*shape), []
    for k, (width, size) in enumerate(zip(widths, sizes, strict=True)):
        parts.append(layer(op, x, width, size, f"a{k}").relu() if width else x)
    if residual:
        parts[-1] = layer(op, parts[0], widths[-1], sizes[-1], "r") + parts[-1]
    each = np.repeat(1 / np.array(sizes), [width or shape[1] for width in widths])
    graph = network(layer(op, concat(1, *parts), 5, each, "y"))
    scales.run(graph)
    return graph, {"x": np.random.default_rng(9).normal(size=(40, *shape[1:]))}


BRANCHES = {
    "products": ("Dense", (8, 8)),
    "aligned": ("Dense", (16, 16)),
    "three": ("Dense", (7, 9, 16)),
    "of other widths": ("Dense", (5, 40)),
    "an input": ("Dense", (0, 10)),
    "convolutions": ("Conv", (5, 7)),
    "a residual": ("Dense", (8, 8), True),
}


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1, 256, 1024, 4096])
@pytest.mark.parametrize("name", BRANCHES)
def test_branches_of_different_sizes_side_by_side(name, ratio):
    """Small numbers beside large ones keep their bits: those of the branch, and those of the weights that read it."""
    op, widths, *residual = BRANCHES[name]
    graph, x = branches(op, widths, ratio, *residual)
    assert compiled_error(graph, x, x)[0] < 0.02
    assert compiled_error(graph, x)[0] < (0.02 if ratio <= 256 else 0.04)


@pytest.mark.parametrize(("size", "gains"), [(2.0**-12, True), (1.0, False)])
def test_rows_of_small_weights_gain_by_being_multiplied(size, gains):
    """Weights of 2**-12 have the unit of the least exponent, 2**-15; they grow as their result is multiplied."""
    graph = network(layer("Dense", layer("Dense", tensor(1, 12), 5, size, "a"), 5, 1.0, "y"))
    values = execute.run(graph, {"x": np.random.default_rng(9).normal(size=(40, 12))}, keep="all")
    first, _ = product_losses(graph, channels(graph), ECP5_85F, values, {})
    plain, divided = (first.cost(first.blocks[0], np.zeros(12, int), np.full(5, power)) for power in (0, -3))
    assert divided == pytest.approx(plain, rel=1e-9) if not gains else divided < plain / 10


def test_a_branch_of_small_numbers_is_found_without_a_measurement():
    """Weights of 2**-10 and less lose bits in any block, also one of their own; so the branch is multiplied."""
    graph, x = branches("Dense", (16, 32), 4096)
    (name,) = (name for name in for_samples(graph, ECP5_85F, x) if name != "x")
    chosen = for_samples(graph, ECP5_85F, x)[name]
    assert name.startswith("a1") and max(chosen.exponents) < 0


def test_nothing_is_done_where_nothing_is_gained():
    graph, x = perceptron(np.ones(16)), rows(np.ones(16), 60)
    del graph.nodes[1:]
    graph.outputs, graph.batched = ["h"], {"x", "h"}
    assert for_samples(graph, ECP5_85F, x) == {} == for_weights(graph, ECP5_85F, {})
    compilation = compile_network(CompileRequest(graph, CompileOptions(), x), ECP5_85F)
    assert "equalised" not in compilation.compiled.image.metadata
    assert not any(AS_THEY_ARE in one.label for one in compilation.formats.candidates)


def test_weights_that_are_small_because_a_feature_says_little():
    """All features have one size, though weights look as if they did not: it costs little that this was not known."""
    sizes = deviations(16)
    graph, x = perceptron(sizes), rows(np.ones(16), 100)
    plain, (found, compiled) = error(compile_graph(graph, ECP5_85F), x, graph), compiled_error(graph, x)
    assert compiled.package.formats.channel_scales and found < 2 * plain + 0.01


def test_a_given_range_is_believed():
    """Then small weights are features that say little."""
    sizes = deviations(16)
    graph = perceptron(sizes)
    powers = for_weights(graph, ECP5_85F, {"x": (-3.0, 3.0)}).get("x", ChannelScale((1, 1), (0,))).exponents
    free = for_weights(graph, ECP5_85F, {})["x"].exponents
    assert np.ptp(powers) < np.ptp(free)


def test_codes_are_worth_more_than_a_little_error():
    """An image in bytes travels in bytes, though one channel is darker."""
    weight = np.random.default_rng(1).normal(size=(8, 3, 3, 3)) * np.array([1.0, 2, 1]).reshape(1, 3, 1, 1)
    graph = network(tensor(1, 3, 8, 8).conv(weight, np.ones(8), pads=1))
    x = {"x": np.random.default_rng(2).integers(0, 256, (40, 3, 8, 8)) // np.array([1, 2, 1]).reshape(1, 3, 1, 1)}
    x = {"x": x["x"].astype(float)}
    assert for_samples(graph, ECP5_85F, x) == {}


@pytest.fixture(scope="module")
def table():
    sizes = deviations(10)
    samples = rows(sizes, 40, 300.0)
    graph = perceptron(sizes, 300.0, scaler=True, hidden=8)
    compiled = compile_graph(graph, ROOMY, Formats(channel_scales=for_samples(graph, TINY, samples)))
    assert {"x"} <= set(compiled.package.formats.channel_scales)
    return graph, compiled, samples


@every
@pytest.mark.parametrize("batch", [1, 3])
def test_derived_software_prepares_inputs_with_the_same_bits(table, backend, batch, tmp_path):
    graph, compiled, _ = table
    made = compile_graph(graph, ROOMY, compiled.package.formats, batch=batch)
    networks(made.package, backend, tmp_path, 5)


def test_results_are_those_of_the_network_with_its_scales(table):
    """The graph that a compiled network says it computes is the one that was given."""
    graph, compiled, samples = table
    want, got = execute.run(graph, samples)["y"], execute.run(compiled.graph, samples)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    again = compile_graph(graph, ROOMY, Formats.from_dict(compiled.package.formats.to_dict()))
    same(emulate(again, samples), emulate(compiled, samples))


def test_layers_are_compared_in_their_own_units(table):
    _, compiled, samples = table
    found = measured_errors(compiled, samples)
    assert max(one.relative for one in (*found.layers, *found.own)) < 0.05
    layers = analyse(compiled, samples).layers
    assert len(layers) == len(compiled.lowered.layers)


def test_random_samples_of_a_proof_are_within_binary16_when_prepared(table):
    _, compiled, _ = table
    subject = Subject("table", compiled.image, compiled.package)
    x = subject.random_samples(64, 0)
    ports = compiled.package.arrangement.pack(x)["x"]
    assert np.abs(ports).max() <= BINARY16_MAX and np.abs(ports).max() > 100


def test_bounds_on_accumulators_know_what_the_host_does(table):
    """Ranges are those of the input as it is given."""
    _, compiled, samples = table
    low, high = float(samples["x"].min()), float(samples["x"].max())
    wide = 300 - 64 * (300 - low), 300 + 64 * (high - 300)
    found = analyse_machine(compiled.package, samples, ranges={"x": (low, high)})
    wider = analyse_machine(compiled.package, samples, ranges={"x": wide})
    bits = [one.layers[0].stages[-1].bound for one in (found, wider)]
    assert bits[0] < bits[1] <= bits[0] + 7


@pytest.mark.slow
def test_metadata_and_evidence_say_what_was_done():
    sizes = deviations(8)
    graph, x = perceptron(sizes), rows(sizes, 40)
    compilation = compile_network(CompileRequest(graph, CompileOptions(), x), ECP5_85F)
    texts = compilation.compiled.image.metadata["equalised"]
    assert any(text.startswith("x: divided by 2**-") and text.endswith("by the host") for text in texts)
    plain = [one for one in compilation.formats.candidates if one.label == f"dynamic exponents, {AS_THEY_ARE}"]
    assert len(plain) == 1 and plain[0].error > 4 * compilation.formats.chosen.error


@pytest.mark.slow
def test_scales_that_the_emulator_does_not_like_are_left(monkeypatch):
    """An estimate is no measurement."""
    sizes = np.ones(8)
    graph, x = perceptron(sizes), rows(sizes, 40)
    bad = {"x": ChannelScale((1, 8), tuple(range(-4, 4)))}
    monkeypatch.setattr(equalisation, "for_samples", lambda *_: bad)
    assert not compile_network(
        CompileRequest(graph, CompileOptions(), x), ECP5_85F
    ).compiled.package.formats.channel_scales


def test_scales_that_raise_flags_have_to_be_clearly_better():
    """Half of the error is worth flags, five sixths are not."""
    sizes = deviations(8)
    graph, x = perceptron(sizes), rows(sizes, 40)
    flag = FlagDiagnostic("fc", 0, "", "SATURATED", "", "")

    def run(compiled, given, share):
        scaled = bool(compiled.package.formats.channel_scales)
        outputs = execute.run(graph, given)
        error = 0.01 * (share if scaled else 1.0)
        return {name: values * (1 + error) for name, values in outputs.items()}, [flag] if scaled else []

    for share, taken in ((0.85, False), (0.5, True)):
        calibration = calibration_of(graph, x, lambda compiled, given, share=share: run(compiled, given, share))
        found, compared = equalisation.better(calibration, ECP5_85F, {})
        assert bool(found.channel_scales) == bool(compared) == taken


@pytest.mark.slow
def test_narrow_mantissas_chosen_with_scales():
    sizes = deviations(8)
    graph, x = perceptron(sizes), rows(sizes, 40)
    options = CompileOptions(mantissa="auto", budget="5%")
    compilation = compile_network(CompileRequest(graph, options, x), ECP5_85F)
    assert compilation.mantissas.met and compilation.compiled.package.formats.channel_scales
