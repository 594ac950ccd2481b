"""A function that the catalogue does not have: with a record, and nothing else, it goes all the way."""

import math

import numpy as np
import pytest

from concord.compiler.lowering.bounds import bounds
from concord.compiler.model import compile_graph
from concord.derive.model import derive_package
from concord.frontend import UnsupportedModel, import_model, importer
from concord.functions import Function, catalogue, exact, intervals, standard_table
from concord.golden import binary16
from concord.graph.execute import run
from concord.image import Memories
from concord.networks.calibrated import choose_formats, emulate
from concord.spec.presets import ECP5_85F, TINY
from support.compiled_nets import recurrent
from support.derived_modules import load_derived, same
from support.onnx_models import model, node, unary
from support.reference_runs import assert_machines_agree

#: ONNX has this operator, and the project makes it of others; without them, a record is all there is.
COSH = Function(
    name="cosh",
    exact=exact.precise(lambda x: (exact.exp(x) + exact.exp(-x)) / 2),
    bounds=lambda x: (intervals.exp(x) + intervals.exp(-x)) * intervals.constant(0.5),
    float64=np.cosh,
    domain=(-4, 4),
    range=(1, math.inf),
    onnx="Cosh",
    recurrent="Cosh",
)
X = np.random.default_rng(1).normal(0, 1, (6, 60))


@pytest.fixture(autouse=True)
def without_handler(monkeypatch):
    monkeypatch.delitem(importer.HANDLERS, COSH.onnx)


@pytest.fixture
def record(monkeypatch):
    monkeypatch.setitem(catalogue.FUNCTIONS, COSH.name, COSH)
    return COSH


@pytest.fixture
def graph(record):
    return import_model(unary("Cosh", shape=(1, 60)))


def relative(found, want):
    return np.linalg.norm(found - want) / np.linalg.norm(want)


def test_without_its_record_it_is_refused():
    with pytest.raises(UnsupportedModel, match=r"Cosh.*operator is not supported"):
        import_model(unary("Cosh", shape=(1, 60)))


def test_import_and_reference(graph):
    assert [one.attrs["functions"] for one in graph.nodes] == [(("cosh", {}),)]
    assert run(graph, {"x": X})["y"] == pytest.approx((np.exp(X) + np.exp(-X)) / 2)


def test_it_shares_a_table_with_what_follows(record):
    nodes = [node("Cosh", ["x"], ["c"]), node("Sigmoid", ["c"], ["y"])]
    graph = import_model(model(nodes, {"x": (1, 60)}))
    assert [[name for name, _ in one.attrs["functions"]] for one in graph.nodes] == [["cosh", "sigmoid"]]
    assert relative(emulate(compile_graph(graph, ECP5_85F), {"x": X})["y"], run(graph, {"x": X})["y"]) < 0.01


def test_tables(record):
    table = standard_table("cosh", TINY)
    assert (table.low, table.high, table.scale, table.constant_ends) == (-128, 127, 5, (False, False))
    points = np.arange(-128, 128) / 32
    assert binary16.decode(np.array(table.entries, dtype=np.uint16)).tolist() == np.float16(np.cosh(points)).tolist()


def test_bounds_of_tensors(graph):
    found = bounds(graph, {"x": (-1.0, 2.0)})
    (y,) = graph.outputs
    assert found[y].worst == pytest.approx((1.0, np.cosh(2.0)), rel=1e-3)


def test_what_is_assumed_without_samples(graph):
    assumed = compile_graph(graph, ECP5_85F).assumptions
    assert [one.what for one in assumed] == ["normal, deviation 1, within", "the table of cosh covers"]
    low, high = assumed[1].range
    assert low < -8 and high > 8


def test_compiled_networks(graph, tmp_path):
    compiled = choose_formats(graph, ECP5_85F, {"x": X}).chosen.compiled
    found = emulate(compiled, {"x": X})
    assert relative(found["y"], np.cosh(X)) < 0.005
    assert_machines_agree(Memories.of(compiled.image))
    same(load_derived(derive_package(compiled.package), tmp_path).run({"x": X}), found)


def test_recurrent_layers(record):
    graph = recurrent("RNN", 11, 5, 3, activations=(("Cosh",),))
    graph.nodes = [one.with_attrs(R=one.attrs["R"] / 8) for one in graph.nodes]
    x = {"x": np.random.default_rng(3).normal(0, 0.5, (3, 3, 1, 5))}
    assert relative(emulate(compile_graph(graph, ECP5_85F), x)["y"], run(graph, x)["y"]) < 0.05
