"""Results and errors of layers: those of one run are those of a program that ends behind the layer."""

import numpy as np
import pytest

from concord.compiler.lowering.input_assumptions import SYNTHETIC, assumed, synthetic_samples
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.graph.ir import Node
from concord.host import connect
from concord.networks.layer_errors import Error, largest_error, measured_errors
from concord.networks.layer_results import COUNTED, results
from concord.report import analyse
from concord.report.prefixes import prefixes
from concord.spec.presets import ECP5_85F, TINY
from support.compiled_nets import gru, recurrent, residual
from support.expressions import graph_of
from support.row_tiled_nets import LARGE, separable


def samples(graph, count=8, seed=3):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 1, (count, *graph.sample_shape(name))) for name in graph.inputs}


def both_directions():
    return recurrent("LSTM", 5, 3, 3, direction="bidirectional")


@pytest.mark.parametrize(
    ("make", "config"),
    [(residual, TINY), (separable, LARGE.replace(narrow_depth=64)), (gru, TINY), (both_directions, ECP5_85F)],
    ids=["residual", "row tiles", "gru", "both directions"],
)
def test_one_run_gives_what_every_prefix_of_the_program_gives(make, config):
    graph = make()
    compiled = compile_graph(graph, config)
    assert (compiled.row_tiling is not None) == (make is separable)
    given = samples(graph, 5)
    ports = compiled.package.arrangement.pack(given)
    seen = 0
    for (found, counts), prefix in zip(results(compiled, given), prefixes(compiled), strict=True):
        with connect("emulator", prefix.image.config) as device:
            device.load(prefix.image)
            wanted = prefix.results(device.run(ports), 5)
            assert counts == {reg: device.counters()[reg.name] for reg in COUNTED}
        assert [one.tensor for one in found] == [one.tensor for one in wanted]
        for one, other in zip(found, wanted, strict=True):
            assert one.values.keys() == other.values.keys() and np.array_equal(one.computed, other.computed)
            for mem, values in other.values.items():
                np.testing.assert_array_equal(one.values[mem], values)
                seen += values.size
    assert seen


def test_several_chunks_of_samples():
    """More samples than the emulator works on together."""
    graph = residual()
    compiled = compile_graph(graph, TINY)
    given = samples(graph, 600)
    some = {name: values[590:] for name, values in given.items()}
    for (found, _), (wanted, _) in zip(results(compiled, given), results(compiled, some), strict=True):
        np.testing.assert_array_equal(found[0].best[590:], wanted[0].best)


def test_the_report_and_the_measuring_agree():
    graph = residual()
    compiled = compile_graph(graph, TINY)
    given = samples(graph)
    analysis, measured = analyse(compiled, given), measured_errors(compiled, given)
    assert measured.relative == analysis.error > 0
    assert measured.layers == tuple(layer.error for layer in analysis.layers)
    assert measured.own == tuple(layer.own_error for layer in analysis.layers)


def test_another_reference():
    """What is compared with a reference of one's own has the error of that one."""
    graph = residual()
    compiled = compile_graph(graph, TINY)
    given = samples(graph)
    (output,) = graph.outputs
    want = execute.run(compiled.graph, given, keep="all")
    doubled = want | {output: 2 * want[output]}
    assert measured_errors(compiled, given, want) == measured_errors(compiled, given)
    assert measured_errors(compiled, given, doubled).relative == pytest.approx(0.5, abs=0.02)


def test_the_largest_error():
    assert largest_error([Error(0.1, 1.0), Error(0.3, 0.5)]) == 0.3
    assert largest_error([Error(0.1, 1.0), Error(None, None)]) is None


def test_synthetic_samples_are_what_is_assumed():
    graph = graph_of([Node("Add", "sum", ("x", "z"), ("y",))], x=(1, 40), z=(1, 40))
    inputs = assumed(graph, {"z": (10, 20)})
    made = synthetic_samples(graph, inputs)
    assert len(made["x"]) == SYNTHETIC and made["x"].std() == pytest.approx(1, abs=0.2)
    assert 10 < made["z"].min() < 12 and 18 < made["z"].max() < 20
    assert all(np.array_equal(values, made[name]) for name, values in synthetic_samples(graph, inputs).items())
    few = synthetic_samples(graph, inputs, 4)
    assert len(few["x"]) == 4
