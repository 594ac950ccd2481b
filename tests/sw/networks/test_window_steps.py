"""Exact cycles of sliding products: steps of windows on given inputs, and who says what is assumed."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.cycles import ASSUMED_STEPS, counts_of
from concord.emulator import Emulator
from concord.host import connect
from concord.host.rates import rates
from concord.networks.window_steps import measured_steps
from concord.program import trace
from support.row_tiled_nets import LARGE, separable

NINE = LARGE.replace(native=16, lanes=16, mfu_lanes=8, window_taps=9)
#: So small that the first layers are computed in row tiles: several phases.
TILED = NINE.replace(narrow_depth=64, wide_depth=96, program_depth=1024)


def samples(graph, count, seed=7):
    """Samples whose elements differ by orders of magnitude."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(0, 1, (count, *graph.sample_shape(name)))
        * 2.0 ** rng.integers(-6, 6, (count, *graph.sample_shape(name)))
        for name in graph.inputs
    }


def cycles(compiled, steps=None):
    """Cycles of all phases by the model."""
    image = compiled.image
    phases = [trace(image.program, image.config, phase.pc) for phase in image.schedule()]
    return sum(
        counts_of(found, image.config, None if steps is None else steps[k]).cycles for k, found in enumerate(phases)
    )


@pytest.mark.slow
@pytest.mark.parametrize("config", [NINE, TILED], ids=["one piece", "row tiles"])
def test_counters_behind_a_batch(config):
    """They are those of its last sample, as those of one run alone and of the model with measured steps."""
    graph = separable(24)
    compiled, x = compile_graph(graph, config), samples(graph, 3)
    last = {name: values[-1:] for name, values in x.items()}
    found = []
    for batch in (x, last):
        with connect("emulator", config) as device:
            device.load(compiled.image)
            compiled.run(device, batch)
            found.append(device.counters())
    assert found[0] == found[1]
    assert found[0]["CYCLES"] == cycles(compiled, measured_steps(compiled, last)) != cycles(compiled)


def test_cycles_depend_on_the_inputs():
    graph = separable(24)
    compiled = compile_graph(graph, NINE)
    assert len({cycles(compiled, measured_steps(compiled, samples(graph, 1, seed))) for seed in range(4)}) > 1


def test_nothing_is_measured_without_sliding_products():
    graph = separable(24)
    compiled = compile_graph(graph, NINE.replace(window_taps=0))
    assert measured_steps(compiled, samples(graph, 1)) is None


def test_rates_say_what_is_assumed():
    graph = separable(24)
    compiled = compile_graph(graph, NINE)
    steps = measured_steps(compiled, samples(graph, 1))
    unknown, known = rates(compiled.image), rates(compiled.image, steps=steps)
    assert unknown.cycles == cycles(compiled)
    assert unknown.assumption == f", assuming {ASSUMED_STEPS} steps per sliding window"
    assert (known.cycles, known.assumption) == (cycles(compiled, steps), "")
    plain = rates(compile_graph(graph, NINE.replace(window_taps=0)).image)
    assert not plain.assumed and plain.assumption == ""


def test_a_batch_of_the_emulator_has_no_exact_cycles():
    compiled = compile_graph(separable(24), NINE)
    with connect("emulator", NINE) as device:
        device.load(compiled.image)
        emulator: Emulator = device._emulator
        wide = {0: np.zeros((2, 1, NINE.native), dtype=np.uint16)}
        assert not emulator.run_batch(wide, []).run.exact
        assert emulator.run().exact
