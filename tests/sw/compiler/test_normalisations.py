"""Layer, instance and root-mean-square normalisation: of numbers of any size, with and without samples."""

import numpy as np
import pytest

from concord.compiler.calibration.calibration import relative_error
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.lowered import VarianceRange
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph import passes
from concord.graph.execute import run
from concord.host import connect
from concord.networks.calibrated import calibration_of, emulate
from concord.spec.formats import Flag
from concord.spec.presets import ECP5_85F
from support.expressions import ROOMY, network, tensor
from support.onnx_models import model, node

WIDE = ECP5_85F.replace(narrow_depth=8192, wide_depth=8192, matrix_depth=8192)
DEVIATIONS = (0.01, 0.1, 1, 10, 100, 1000)
#: Kind, shape and axes; ten channels leave lanes of a native vector that are no elements.
CASES = {
    "layer": ("layer", (1, 6, 32), (2,)),
    "layer10": ("layer", (1, 6, 10), (2,)),
    "layer192": ("layer", (1, 3, 192), (2,)),
    "rms": ("rms", (1, 6, 32), (2,)),
    "rms10": ("rms", (1, 6, 10), (2,)),
    "instance": ("instance", (1, 8, 8, 8), (2, 3)),
}


def decomposed(kind, shape, axes, epsilon=1e-5, root=(("rsqrt", {}),), gain=True):
    """As exporters write it."""
    x = tensor(*shape)
    m = x.reduce("Mean", *axes, name="m")
    c = x if kind == "rms" else x.combined("Sub", m, name="c")
    e = (c.combined("Mul", c, name="q").reduce("Mean", *axes, name="v")).combined("Add", epsilon, name="e")
    n = c.combined("Mul", e.then("Function", functions=root, name="r"), name="norm")
    if not gain:
        return network(n)
    rng, per = np.random.default_rng(0), (shape[1], 1, 1) if kind == "instance" else (shape[-1],)
    return network(n * rng.normal(1, 0.3, per) + rng.normal(0, 0.3, per))


def fused(*args, **more):
    graph = decomposed(*args, **more)
    passes.run(graph)
    graph.check()
    return graph


def error(compiled, graph, x):
    return relative_error(emulate(compiled, {"x": x})["y"], run(graph, {"x": x})["y"])


def samples(seed, count, deviation, offset, shape):
    return np.random.default_rng(seed).normal(offset * deviation, deviation, (count, *shape[1:]))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("config", [WIDE, ROOMY], ids=lambda config: config.name)
def test_without_samples_numbers_may_be_of_any_size(case, config):
    kind, shape, axes = CASES[case]
    graph = fused(kind, shape, axes)
    compiled = compile_graph(graph, config)
    assert compiled.lowered.variance_range is VarianceRange.ANY
    errors = [
        error(compiled, graph, samples(1, 4, deviation, offset, shape))
        for deviation in DEVIATIONS
        for offset in (0, 3, 10)
        if deviation * (offset + 5) < 65504 and not (kind == "rms" and deviation * offset > 5000)
    ]
    assert max(errors) < 0.01
    assert np.isfinite(emulate(compiled, {"x": np.zeros((1, *shape[1:]))})["y"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_with_samples_squares_are_scaled_by_a_power_of_two(case):
    kind, shape, axes = CASES[case]
    graph = fused(kind, shape, axes)
    for k, deviation in enumerate(DEVIATIONS):
        x = samples(2, 16, deviation, (0, 3, 10)[k % 3], shape)
        compiled = calibration_of(graph, {"x": x[:8]}).measure("with samples", WIDE, Formats()).compiled
        assert error(compiled, graph, x[8:]) < 0.005
        assert len(compiled.image.program) < 0.7 * len(compile_graph(graph, WIDE).image.program)


@pytest.mark.slow
def test_samples_of_different_sizes():
    """Deviations over one power of ten take two look-ups, over three of them what takes numbers of any size."""
    graph = fused(*CASES["layer192"])
    lengths = []
    for octaves in (0.2, 3, 10):
        x = samples(3, 64, 1, 0, (1, 3, 192)) * np.exp2(np.linspace(0, octaves, 64))[:, None, None]
        compiled = calibration_of(graph, {"x": x[::2]}).measure("with samples", WIDE, Formats()).compiled
        lengths.append(len(compiled.image.program))
        for own in np.split(x[1::2], 4):
            assert error(compiled, graph, own) < 0.005
    assert lengths == sorted(set(lengths))


def observed(compiled, x):
    """Results, and whether a flag was raised."""
    with connect("emulator", compiled.image.config) as device:
        device.load(compiled.image)
        results = compiled.run(device, {"x": x})["y"]
        raised = set(device.flags().values())
    assert raised <= {(Flag.TABLE_CLAMPED,)}
    return results, bool(raised)


@pytest.mark.slow
@pytest.mark.parametrize("octaves", [0.2, 1])
@pytest.mark.parametrize("case", CASES)
def test_quiet_vectors_among_those_of_the_samples_are_told(case, octaves):
    """By one look-up, and by two: what errs by more than 7 % raises a flag, what is like the samples does not."""
    kind, shape, axes = CASES[case]
    graph = fused(kind, shape, axes)
    size = np.exp2(np.linspace(0, octaves, 32)).reshape(-1, *[1] * (len(shape) - 1))
    x = samples(6, 32, 1, 0, shape) * size
    compiled = calibration_of(graph, {"x": x}).measure("with samples", WIDE, Formats()).compiled
    others = samples(7, 32, 1, 0, shape) * size
    assert not observed(compiled, others)[1]
    told = []
    for quiet in np.exp2(-np.arange(1.0, 13.0)):
        mixed = others.copy()
        mixed[:8] *= quiet
        got, raised = observed(compiled, mixed)
        wrong = relative_error(got[:8], run(graph, {"x": mixed})["y"][:8])
        assert raised or wrong < 0.07
        told.append(raised)
    assert told == sorted(told) and told[-1] and not told[0]


def test_constant_vectors_are_told_where_samples_have_none():
    """They come out right, but the NPU cannot know them from quiet ones."""
    graph = fused(*CASES["layer"])
    x = samples(8, 8, 1, 0, CASES["layer"][1])
    compiled = calibration_of(graph, {"x": x}).measure("with samples", WIDE, Formats()).compiled
    silent = np.concatenate([x[:4], np.zeros_like(x[:1])])
    got, raised = observed(compiled, silent)
    assert raised and relative_error(got, run(graph, {"x": silent})["y"]) < 0.01
    compiled = calibration_of(graph, {"x": silent}).measure("with samples", WIDE, Formats()).compiled
    got, raised = observed(compiled, silent)
    assert not raised and relative_error(got, run(graph, {"x": silent})["y"]) < 0.01


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 1.0])
def test_epsilon_counts_as_much_as_it_should(epsilon):
    """Also where it is all there is; the least numbers are far below what squares in binary16 hold."""
    graph = fused("layer", (1, 6, 32), (2,), epsilon)
    compiled = compile_graph(graph, WIDE)
    for deviation in (0.003, 0.03, 0.3, 3, 30):
        assert error(compiled, graph, samples(4, 4, deviation, 0, (1, 6, 32))) < 0.01


@pytest.mark.parametrize(
    "room, variance_range", [(512, VarianceRange.ANY), (70, VarianceRange.TWO_LOOKUPS), (50, VarianceRange.ONE_LOOKUP)]
)
@pytest.mark.parametrize("limit", [None, 200.0])
def test_a_small_program_memory_takes_fewer_instructions(room, variance_range, limit):
    """Variances around those to be expected of the inputs are covered, which is said."""
    graph = fused("layer", (1, 6, 32), (2,))
    formats = Formats(inputs={"x": (-limit, limit)} if limit else {})
    compiled = compile_graph(graph, WIDE.replace(program_depth=room), formats)
    assert compiled.lowered.variance_range is variance_range
    assert error(compiled, graph, samples(5, 8, limit / 2 if limit else 0.85, 0, (1, 6, 32))) < 0.01
    said = [one for one in compiled.assumptions if one.layer == "norm"]
    assert len(said) == (variance_range is not VarianceRange.ANY)
    for one in said:
        low, high = one.range
        for variance in (1.1 * low, 0.9 * high):
            x = samples(6, 8, 1, 0, (1, 6, 32))
            x = (x - x.mean(axis=2, keepdims=True)) / x.std(axis=2, keepdims=True) * np.sqrt(variance)
            assert error(compiled, graph, x) < 0.015


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("root", [(("rsqrt", {}),), (("sqrt", {}), ("reciprocal", {}))])
@pytest.mark.parametrize("gain", [False, True])
def test_a_decomposed_normalisation_is_one_node(kind, root, gain):
    args = (kind, (1, 3, 5), (2,))
    graph, plain = fused(*args, root=root, gain=gain), decomposed(*args, root=root, gain=gain)
    assert [node.op for node in graph.nodes] == ["Normalise"] + ["Add"] * gain
    x = {"x": np.random.default_rng(6).normal(0, 1, (2, 3, 5))}
    (got,), (want,) = run(graph, x).values(), run(plain, x).values()
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("seen", ["m.out", "c.out", "q.out", "v.out", "e.out", "r.out", "norm.out"])
def test_what_others_see_in_between_is_computed(seen):
    graph = decomposed("layer", (1, 3, 5), (2,))
    graph.outputs.append(seen)
    plain = run(graph, x := {"x": np.random.default_rng(7).normal(0, 1, (2, 3, 5))})
    passes.run(graph)
    graph.check()
    assert {name: values.shape for name, values in run(graph, x).items()} == {
        name: values.shape for name, values in plain.items()
    }
    for name, values in run(graph, x).items():
        np.testing.assert_allclose(values, plain[name], rtol=1e-12)


@pytest.mark.parametrize("op, shape", [("LayerNormalization", (1, 4, 6)), ("InstanceNormalization", (1, 4, 3, 5))])
def test_operators_of_onnx_become_one_node(op, shape):
    size = shape[-1] if op.startswith("Layer") else shape[1]
    constants = {"s": np.linspace(0.5, 1.5, size).astype(np.float32), "b": np.ones(size, np.float32)}
    graph = import_model(model([node(op, ["x", "s", "b"], ["y"])], {"x": shape}, ["y"], constants))
    assert [node.op for node in graph.nodes] == ["Normalise", "Add"]


def test_a_mean_of_large_numbers_does_not_overflow():
    """Its sum is beyond binary16."""
    graph = network(tensor(1, 512).reduce("Mean", 1, keep=False))
    x = np.random.default_rng(8).normal(1200, 100, (4, 512))
    assert error(compile_graph(graph, WIDE), graph, x) < 0.002


def test_an_average_of_large_numbers_does_not_overflow():
    graph = network(tensor(1, 4, 6, 6).pool("AveragePool", 3, pads=1, counted=(0,) * 4))
    x = np.random.default_rng(9).normal(20_000, 2000, (3, 4, 6, 6))
    assert error(compile_graph(graph, ROOMY), graph, x) < 0.005
