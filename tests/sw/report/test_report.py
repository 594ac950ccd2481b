"""The facts of a report: they are those of a run, they point at the layer that is wrong, and the page shows them."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from concord.compiler.calibration.formats import static_exponents
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.graph.cost import macs
from concord.graph.ir import Node
from concord.host import connect
from concord.networks.calibrated import emulate
from concord.networks.layer_results import results
from concord.report import NetworkFacts, analyse, render
from concord.report.layer_facts import Read
from concord.report.layer_graph import edges
from concord.report.places import cycles_of_steps
from concord.spec.isa import Mem
from concord.spec.memmap import Reg
from concord.spec.presets import ECP5_85F, TINY, UP5K
from support.compiled_nets import gru, recurrent, residual
from support.expressions import ROOMY, concat, graph_of, network, tensor


def samples(graph, count=8, seed=3):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 1, (count, *graph.sample_shape(name))) for name in graph.inputs}


def both_directions():
    return recurrent("LSTM", 5, 3, 3, direction="bidirectional")


def two_inputs(**names):
    """A sum of a product and of an input, in two layers."""
    x, z = tensor(1, 4), tensor(1, 4, name="z")
    weight = np.random.default_rng(7).normal(0, 1, (4, 4))
    return network(x.dense(weight, name=names.get("dense", "dense")) + z)


@pytest.mark.slow
@pytest.mark.parametrize("make", [residual, gru, both_directions, two_inputs])
def test_errors_are_small_and_not_zero(make):
    graph = make()
    config = ECP5_85F if make is both_directions else TINY
    analysis = analyse(compile_graph(graph, config), samples(graph))
    assert 0 < analysis.error < 0.05 and "no flags" in analysis.summary
    assert make is not residual or analysis.agreement >= 0.75
    if make is two_inputs:  # as many results as inputs: no classes
        assert analysis.agreement is None and "agreement" not in analysis.summary + render(analysis)
    for layer in analysis.layers:
        assert 0 < layer.own_error.relative < 0.05 and 0 < layer.error.relative < 0.05
        assert layer.error.largest > 0 and not layer.flagged and not layer.distribution.beyond
    assert analysis.work.macs == macs(graph)
    assert analysis.work.cycles == analysis.rates.cycles >= analysis.work.least_cycles
    assert {name for layer in analysis.layers for name in layer.nodes} == {node.name for node in graph.nodes}


@pytest.mark.parametrize("make", [residual, gru])
def test_prefixes_end_with_what_a_run_gives(make):
    graph = make()
    compiled = compile_graph(graph, TINY)
    found = list(results(compiled, samples(graph)))
    want = emulate(compiled, samples(graph))["y"]
    np.testing.assert_array_equal(found[-1][0][0].values[Mem.WIDE], want.reshape(len(want), -1))
    assert found[-1][0][0].computed.all()
    with connect("emulator", TINY) as device:
        device.load(compiled.image)
        compiled.run(device, samples(graph))
        assert found[-1][1] == {reg: device.counters()[reg.name] for reg in found[-1][1]}
    counts = [count[Reg.VECTORS] for _, count in found]
    assert counts == sorted(counts) and counts[0] > 0


def test_narrow_and_wide_copies_are_of_the_same_values():
    compiled = compile_graph(residual(), TINY)
    (first,), _ = next(results(compiled, samples(residual())))
    narrow, wide = first.values[Mem.NARROW], first.values[Mem.WIDE]
    assert (narrow != wide).any() and np.abs(narrow - wide).max() <= np.abs(wide).max() / 64


@pytest.mark.slow
def test_both_directions_share_a_tensor():
    graph = both_directions()
    compiled = compile_graph(graph, ECP5_85F)
    forward, backward = (found[0] for found, _ in results(compiled, samples(graph)))
    assert forward.tensor == backward.tensor == "y"
    assert (forward.computed ^ backward.computed).all() and forward.computed.sum() == backward.computed.sum()
    works = [layer.work.macs for layer in analyse(compiled, samples(graph)).layers]
    assert works == [macs(graph) // 2] * 2


def second_layer():
    """A bidirectional GRU behind another one: the second direction needs copies of the states."""
    first, rng = recurrent("GRU", 5, 3, 3, direction="bidirectional").nodes[0], np.random.default_rng(8)
    shapes = {"W": (2, 15, 10), "R": (2, 15, 5), "B": (2, 30)}
    weights = {name: rng.normal(0, 0.3, shape) for name, shape in shapes.items()}
    return graph_of(
        [
            first.replace(name="one", outputs=("a", "")),
            Node("Transpose", "turn", ("a",), ("b",), {"perm": (0, 2, 1, 3)}),
            Node("Reshape", "join", ("b",), ("c",), {"shape": (3, 1, 10)}),
            first.replace(name="two", inputs=("c",), outputs=("", "y")).with_attrs(**weights),
        ],
        x=(3, 1, 3),
    )


def concatenated(*names):
    """Tensors x, a and b, the latter two computed, beside each other in several orders."""
    rng, x = np.random.default_rng(9), tensor(1, 4, 3, 5)
    parts = {"x": x}
    for name in sorted({*"".join(names)} - {"x"}):
        parts[name] = x.conv(rng.normal(0, 0.5, (4, 4, 1, 1)), rng.normal(0, 0.2, 4), name=name)
    weight = rng.normal(0, 0.4, (3, 8, 1, 1))
    last = [concat(1, parts[first], parts[second]).conv(weight) for first, second in names]
    return network(last[0] + last[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "copied"),
    [
        (second_layer, ["a", "a"]),
        (lambda: concatenated("ab", "ba"), ["a", "b"]),
        (lambda: concatenated("xa"), ["x"]),
        (lambda: concatenated("xa", "bx"), ["x", "x"]),
    ],
)  # fmt: skip
def test_layers_that_only_copy_are_of_the_tensor_that_they_copy(make, copied):
    graph = make()
    analysis = analyse(compile_graph(graph, ROOMY), samples(graph))
    copies = [layer for layer in analysis.layers if layer.kind == "copy"]
    assert sorted(layer.tensor.removesuffix(".out") for layer in copies) == copied
    for layer in copies:
        assert not layer.nodes and not layer.work.macs and layer.space.wide + layer.space.narrow > 0
        assert layer.own_error.relative < 0.01 and layer.error.relative < 0.05
    assert ">copy<" in render(analysis)
    assert analysis.work.macs == macs(graph) and 0 < analysis.error < 0.06


def test_products_in_stages_are_counted_once():
    """A product of two tensors whose sum takes several chains."""
    graph = network(tensor(1, 70) @ tensor(70, 2, name="z"))
    compiled = compile_graph(graph, ROOMY)
    assert len([node for node in compiled.graph.nodes if node.op == "ReduceSum"]) > 1
    assert macs(compiled.graph) == macs(graph) == 70 * 2


def test_channels_that_are_one_element_are_multiplied_once():
    rng = np.random.default_rng(5)
    x = tensor(1, 64)
    graph = network(concat(1, x, x).dense(rng.normal(0, 0.5, (32, 128))))
    analysis = analyse(compile_graph(graph, ROOMY), samples(graph))
    assert analysis.work.macs == macs(graph) // 2 == 32 * 64
    assert all((layer.work.utilisation(analysis.macs_per_cycle) or 0) <= 1 for layer in analysis.layers)


def test_several_samples_per_run():
    graph = two_inputs()
    single, double = (analyse(compile_graph(graph, TINY, batch=n), samples(graph, 5)) for n in (1, 2))
    assert double.batch == 2 and double.work.macs == 2 * single.work.macs
    assert [layer.shape for layer in double.layers] == [layer.shape for layer in single.layers]
    for one, other in zip(single.layers, double.layers, strict=True):
        assert other.error.relative == pytest.approx(one.error.relative, rel=1e-9)
        assert other.distribution == one.distribution


def too_small(tensor, by=5):
    """The residual network with static exponents, that of one tensor too small."""
    graph = residual()
    exponents = static_exponents(compile_graph(graph, TINY), execute.run(graph, samples(graph), keep="all"))
    exponents[tensor] -= by
    return analyse(compile_graph(graph, TINY, Formats(exponents)), samples(graph)), exponents


@pytest.mark.slow
@pytest.mark.parametrize(("tensor", "name"), [("b", "first"), ("d", "depthwise"), ("f", "mean")])
def test_a_too_small_exponent_shows_at_its_layer(tensor, name):
    analysis, exponents = too_small(tensor)
    names = [layer.name for layer in analysis.layers]
    at = names.index(name)
    for index, layer in enumerate(analysis.layers):
        flags = {flag for chain in layer.flagged for flag in chain.flags}
        assert flags == ({"SATURATED"} if index == at else set())
        assert (layer.distribution.beyond > 0.2) == (index == at)
        if tensor != "b":  # whose wide copy is right, only its readers see what is wrong
            assert (layer.own_error.relative > 0.2) == (index == at)
        assert index >= at or layer.error.relative < 0.05
    assert analysis.layers[at].writes[0].exponents == (exponents[tensor],) * 3 and analysis.layers[at].writes[0].static
    assert analysis.error > 0.05 and f"flags in {name}" in analysis.summary


def test_infinities_are_not_numbers():
    graph = network(tensor(1, 4) + tensor(1, 4, name="z"))
    huge = {"x": np.full((2, 4), 60000.0), "z": np.full((2, 4), 60000.0)}
    analysis = analyse(compile_graph(graph, TINY), huge)
    assert analysis.error is None and "not finite" in analysis.summary
    assert any("HALF_OVERFLOW" in chain.flags for layer in analysis.layers for chain in layer.flagged)
    assert "not finite" in render(analysis) and "NaN" not in analysis.to_json()


@pytest.mark.parametrize("make", [residual, gru, two_inputs])
def test_json_and_back(make):
    graph = make()
    analysis = analyse(compile_graph(graph, TINY), samples(graph))
    text = analysis.to_json()
    assert NetworkFacts.from_json(text) == analysis and json.loads(text)["layers"][0]["name"] == analysis.layers[0].name
    assert NetworkFacts.from_json(text).layers[0].work.least_cycles > 0
    assert NetworkFacts.from_json(text.replace('"samples": 8', '"samples": 9')) != analysis


def test_who_reads_whom():
    graph = residual()
    layers = analyse(compile_graph(graph, TINY), samples(graph)).layers
    assert layers[0].reads == (Read("x", "narrow", "source", None, "x"),)
    assert layers[1].reads == (Read("b", "narrow", "source", 0, None), Read("b", "wide", "operand", 0, None))
    assert [layer.leaves for layer in layers] == [False] * 4 + [True]
    graph = two_inputs()
    analysis = analyse(compile_graph(graph, TINY), samples(graph))
    assert {read.input for layer in analysis.layers for read in layer.reads} - {None} == {"x", "z"}


def test_edges_do_not_run_through_rows():
    graph = residual()
    analysis = analyse(compile_graph(graph, TINY), samples(graph))
    skip = Read("x", "narrow", "operand", None, "x")
    layers = [replace(layer, reads=(*layer.reads, skip)) for layer in analysis.layers]
    found = edges(replace(analysis, layers=tuple(layers)))
    assert {(edge.source, edge.target) for edge in found} == {
        *((k, k + 1) for k in range(6)), *((0, k) for k in range(2, 6)),
    }  # fmt: skip
    assert all((edge.lane == 0) == (edge.target == edge.source + 1) for edge in found)
    long = [edge for edge in found if edge.lane]
    assert len({edge.lane for edge in long}) == len(long)


def test_space_and_memories_are_those_of_the_program():
    graph = residual()
    compiled = compile_graph(graph, TINY)
    analysis = analyse(compiled, samples(graph))
    by_name = {memory.name: memory for memory in analysis.memories}
    assert sum(layer.space.matrix for layer in analysis.layers) == by_name["matrix"].used == by_name["matrix"].constants
    assert by_name["program"].used == len(compiled.image.program) == analysis.instructions
    assert all(memory.constants <= memory.used <= memory.depth for memory in analysis.memories)
    assert by_name["narrow"].constants == 0 < by_name["narrow"].used
    assert sum(layer.space.constants for layer in analysis.layers) == by_name["wide"].constants


@pytest.mark.parametrize(
    ("config", "counts", "want"), [(TINY, (10, 3, 2), 13), (TINY, (0, 0, 5), 10), (UP5K, (2, 3, 1), 10)]
)
def test_least_cycles(config, counts, want):
    assert cycles_of_steps(config, *counts) == want


class Page(HTMLParser):
    """Tags, attributes and texts; no tag may be left open or be closed twice."""

    VOID = ("meta", "rect", "path", "circle", "link", "img")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.ids = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, text):
        self.texts.append(text.strip())


@pytest.mark.slow
def test_names_are_escaped():
    name = "<script>alert('&')</script>\"x\""
    graph = two_inputs(dense=name)
    page = render(analyse(compile_graph(graph, TINY), samples(graph)))
    parsed = Page(page)
    assert name not in page and name in parsed.texts
    assert [tag for tag, _ in parsed.tags].count("script") == 1


@pytest.mark.slow
@pytest.mark.parametrize("make", [residual, gru])
def test_the_page_is_whole(make):
    graph = make()
    analysis = analyse(compile_graph(graph, TINY), samples(graph))
    page = render(analysis)
    parsed = Page(page)
    assert len(page) < 2_000_000 and "http" not in page and "url(" not in page
    assert not any({"src", "srcset"} & set(attributes) for _, attributes in parsed.tags)
    links = {attributes["href"][1:] for _, attributes in parsed.tags if "href" in attributes}
    assert links <= set(parsed.ids) and len(set(parsed.ids)) == len(parsed.ids)
    for layer in analysis.layers:
        assert {layer.name, *layer.mfu_ops} <= set(parsed.texts)
    assert sum(tag == "details" for tag, _ in parsed.tags) == len(analysis.layers)


@pytest.mark.slow
def test_saturation_is_on_the_page():
    parsed = Page(render(too_small("d")[0]))
    assert "saturated" in parsed.texts
    assert sum(attributes.get("class") == "flagged" for tag, attributes in parsed.tags if tag == "details") == 1


def test_what_a_table_cuts_off_is_on_the_page():
    graph = network(tensor(1, 4).then("Function", functions=(("sqrt", {}), ("sigmoid", {}))))
    compiled = compile_graph(graph, TINY, Formats(ranges={"x": (-1.0, 1.0)}))
    parsed = Page(render(analyse(compiled, {"x": np.full((2, 4), 5.0)})))
    assert "table_clamped" in parsed.texts and any("the table of sqrt+sigmoid covers" in text for text in parsed.texts)


def test_inputs_are_checked():
    compiled = compile_graph(residual(), TINY)
    with pytest.raises(ValueError, match="inputs must have at least one sample"):
        analyse(compiled, samples(residual(), 0))
    with pytest.raises(ValueError, match=r"inputs of test must be \['x'\]"):
        analyse(compiled, {"z": np.zeros((1, 2, 4, 4))})
