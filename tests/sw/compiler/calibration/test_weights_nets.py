"""Networks whose weights are rounded for the inputs of samples."""

from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.calibration.calibration import ALL, Follow, relative_error
from concord.compiler.calibration.mantissas import Budget, choose_mantissas
from concord.compiler.calibration.weights import units
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.ir import Node
from concord.host import connect
from concord.networks.calibrated import calibration_of, emulate
from concord.networks.folder import MODEL, PackageError, load_package, recompile, save_package
from concord.report.places import space
from concord.spec.presets import ECP5_85F, TINY
from concord_bench.tasks import TASKS, calibration, load
from support.commands import two_products
from support.compiled_nets import perceptron
from support.expressions import graph_of
from support.product_nets import PRODUCTS, dense, twice
from support.quantised_nets import network
from support.trained import DATA, needs_data

NEAREST = ALL & ~Follow.WEIGHTS


def alike(rng, shape, count=64):
    """Samples whose elements have much in common."""
    return rng.normal(2, 0.3, (count, *shape)) + rng.normal(0, 1, (count, *[1] * len(shape)))


def changed(graph, **attrs):
    """A graph whose product ``last`` has other attributes."""
    nodes = [node.with_attrs(**attrs) if node.name == "last" else node for node in graph.nodes]
    return replace(graph, nodes=nodes)


@pytest.mark.parametrize("mant", [8, 3])
@pytest.mark.parametrize(
    ("make", "batch"), [*((make, 1) for make in PRODUCTS.values()), (dense, 4)], ids=[*PRODUCTS, "four at a time"]
)
def test_any_multiples_of_units_are_what_is_computed_with(make, batch, mant):
    """Bit for bit the network that has these weights itself; so units are in the places of the weights."""
    graph, rng = make(), np.random.default_rng(1)
    (weight,) = (node.attrs["weight"] for node in graph.nodes if node.name == "last")
    weight = weight * 2.0 ** rng.integers(-4, 1, weight.shape)  # most blocks differ from their neighbours
    graph = changed(graph, weight=weight, bias=np.zeros(len(weight)))
    formats = Formats(mantissas={"last": mant})
    (allowed,) = units(graph, compile_graph(graph, TINY, formats, batch=batch)).values()
    assert allowed.unit.shape == weight.shape and allowed.largest == (1 << mant - 1) - 1
    assert len(np.unique(allowed.unit)) > 1
    codes = rng.integers(-allowed.largest, allowed.largest + 1, weight.shape)
    codes.flat[0] = allowed.largest
    given = compile_graph(graph, TINY, replace(formats, weights={"last": codes * allowed.unit}), batch=batch)
    own = changed(graph, weight=codes * allowed.unit)
    x = {"x": rng.integers(-3, 4, (8, *graph.sample_shape("x"))).astype(float)}
    for width in (formats, Formats()):  # held exactly: eight bits hold them, too
        compiled = compile_graph(own, TINY, width, batch=batch)
        assert given.image.segments == compiled.image.segments
        np.testing.assert_array_equal(emulate(given, x)["y"], emulate(compiled, x)["y"])
    # Products of small integers are exact, so what differs from them is binary16 alone.
    want = execute.run(own, x)["y"]
    np.testing.assert_allclose(emulate(given, x)["y"], want, atol=2.0**-9 * np.abs(want).max())


def test_weights_that_share_a_place_are_left_out():
    assert units(twice(), compile_graph(twice(), TINY)) == {}


def test_weights_of_quantised_models_are_left_out():
    graph = import_model(network())
    assert units(graph, compile_graph(graph, TINY)) == {}
    graph.weight_quantization.clear()
    assert set(units(graph, compile_graph(graph, TINY))) == {"first", "second"}


def test_weights_of_a_wrong_shape():
    weight = np.zeros((9, 6))
    with pytest.raises(ValueError, match=r"weights of last must have the shape \(6, 9\), not \(9, 6\)"):
        compile_graph(dense(), TINY, Formats(weights={"last": weight}))


def test_weights_of_nothing():
    with pytest.raises(ValueError, match="weights must be for nodes that have some, not first"):
        compile_graph(dense(), TINY, Formats(weights={"first": np.zeros((6, 9))}))


@pytest.mark.parametrize("follow", [Follow.WEIGHTS, Follow.WEIGHTS | Follow.TABLES])
def test_weights_leave_the_mean_to_biases(follow):
    data = calibration_of(dense(), {"x": alike(np.random.default_rng(2), (9,))})
    with pytest.raises(ValueError, match="biases must follow where weights do, not "):
        data.measure("", TINY, Formats(), follow)


def test_a_folder_keeps_chosen_weights(tmp_path):
    model = two_products(tmp_path) / "net.onnx"
    rng = np.random.default_rng(3)
    data = calibration_of(import_model(model), {"x": alike(rng, (20,))})
    compiled = data.measure("", TINY, Formats(mantissas={"second": 4})).compiled
    assert set(compiled.package.formats.weights) == {"first", "second"}
    assert all(layer["weights"].endswith("rounded for samples") for layer in compiled.image.metadata["layers"])
    assert (
        space(compiled, 1, {}).for_samples
        and not space(data.measure("", TINY, Formats(), NEAREST).compiled, 1, {}).for_samples
    )
    save_package(compiled.package, tmp_path / "net", model)
    package = load_package(tmp_path / "net")
    for kept in (package, recompile(tmp_path / "net").package):
        assert kept.formats == compiled.package.formats
        assert list(kept.formats.weights) == list(compiled.package.formats.weights)
        for name, weight in kept.formats.weights.items():
            np.testing.assert_array_equal(weight, compiled.package.formats.weights[name])
    x = {"x": alike(rng, (20,), 10)}
    with connect("emulator", TINY) as device:
        device.load(package.image)
        np.testing.assert_array_equal(package.run(device, x)["y"], emulate(compiled, x)["y"])
    plain = replace(package, formats=replace(package.formats, weights={}))
    save_package(plain, tmp_path / "other", tmp_path / "net" / MODEL)
    with pytest.raises(PackageError, match="must hold what its network compiles to"):
        recompile(tmp_path / "other")


@pytest.mark.slow
def test_narrow_weights_are_chosen():
    """Those of every candidate with fewer bits, of all layers, each for its units; they lose less."""
    graph = perceptron(12, 10, 6)
    data = calibration_of(graph, {"x": alike(np.random.default_rng(4), (12,))})
    choice = choose_mantissas(data, TINY, Budget("error", 5))
    assert choice.met
    narrow = [c for c in choice.candidates if c.compiled.package.formats.mantissas]
    assert len(narrow) > 2
    for candidate in narrow:
        formats = candidate.compiled.package.formats
        assert set(formats.weights) == {"fc0", "fc1"} and Follow.WEIGHTS in candidate.follow
        allowed = units(graph, compile_graph(graph, TINY, replace(formats, weights={})))
        for name, weight in formats.weights.items():
            codes = weight / allowed[name].unit
            assert np.array_equal(codes, np.rint(codes)) and np.abs(codes).max() <= allowed[name].largest
        nearest = data.measure("", TINY, replace(formats, weights={}), NEAREST)
        assert candidate.error < nearest.error and not nearest.compiled.package.formats.weights


def test_errors_are_those_before_a_softmax_of_the_host():
    """Behind it nothing is left of them where samples are decided; results are those behind it."""
    graph = changed(dense(), weight=2 * dense().nodes[0].attrs["weight"])
    soft = graph_of([*graph.nodes, Node("Softmax", "soft", ("y",), ("p",), {"axis": 1})], x=(1, 9))
    many = np.random.default_rng(5).normal(0, 8, (400, 9))
    ranked = np.sort(execute.run(graph, {"x": many})["y"], axis=1)
    x = {"x": many[ranked[:, -1] - ranked[:, -2] > 20]}
    bare, whole = (calibration_of(g, x).measure("", TINY, Formats(mantissas={"last": 4})) for g in (graph, soft))
    assert whole.compiled.host_graph is not None and bare.error == whole.error > 0.02
    assert whole.error == pytest.approx(relative_error(bare.outputs["y"], execute.run(graph, x)["y"]))
    (p,) = whole.outputs.values()
    np.testing.assert_array_equal(p, emulate(whole.compiled, x)["p"])
    powers = np.exp(bare.outputs["y"] - bare.outputs["y"].max(axis=1, keepdims=True))
    np.testing.assert_allclose(p, powers / powers.sum(axis=1, keepdims=True), atol=1e-12)
    assert relative_error(p, execute.run(soft, x)["p"]) < 1e-4


@pytest.mark.slow
@needs_data
def test_it_holds_for_other_samples_of_a_trained_network():
    (task,) = (task for task in TASKS if task.model == "kws_dscnn")
    graph, x, _ = load(task, DATA)
    data = calibration_of(graph, calibration(task, graph, DATA))
    (given,) = graph.inputs
    errors = []
    for follow in (NEAREST, ALL):
        compiled = data.measure("", ECP5_85F, Formats(), follow).compiled
        found = emulate(replace(compiled, package=replace(compiled.package, host_graph=None)), {given: x[:100]})
        want = execute.run(graph, {given: x[:100]}, keep="all")
        (error,) = (relative_error(y.reshape(want[name].shape), want[name]) for name, y in found.items())
        errors.append(error)
        assert bool(compiled.package.formats.weights) == (Follow.WEIGHTS in follow)
    assert errors[1] < 0.8 * errors[0]  # measured: 0.75
