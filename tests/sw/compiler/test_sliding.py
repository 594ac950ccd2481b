"""Depthwise layers with windows that slide: which they are, and that their bits are those of plain ones."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.networks.calibrated import emulate
from concord.program import trace
from concord.spec.presets import TINY
from support.expressions import network, tensor
from support.row_tiled_nets import LARGE, random_net, separable

FOUR = LARGE.replace(lanes=4, window_taps=4)
NINE = LARGE.replace(native=16, lanes=16, mfu_lanes=8, window_taps=9)


def deep(kernel, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), size=(6, 8), channels=8):
    """A product, and a depthwise convolution with ReLU."""
    rng = np.random.default_rng(2)
    geometry = {"strides": strides, "pads": pads, "dilations": dilations}
    first = tensor(1, 3, *size).conv(rng.normal(0, 0.6, (channels, 3, 1, 1)), rng.normal(0, 0.2, channels))
    deep = first.conv(rng.normal(0, 0.5, (channels, 1, *kernel)), group=channels, **geometry)
    return network(deep.relu())


def outputs(graph, config, samples=3):
    """Results on the emulator, and the chains of a run."""
    compiled = compile_graph(graph, config)
    rng = np.random.default_rng(7)
    x = {name: rng.normal(0, 1, (samples, *graph.sample_shape(name))) for name in graph.inputs}
    found = emulate(compiled, x)
    words = list(compiled.image.program)
    return found, [chain for phase in compiled.image.schedule() for chain in trace(words, config, phase.pc).chains]


def same_bits(graph, config):
    """The chains that slide; their results are those of plain products."""
    found, chains = outputs(graph, config)
    for name, want in outputs(graph, config.replace(window_taps=0))[0].items():
        np.testing.assert_array_equal(found[name], want)
    return [chain for chain in chains if chain.sliding]


@pytest.mark.parametrize(
    ("graph", "shape", "fresh"),
    [
        (deep((2, 2)), (5, 7), 1),
        (deep((2, 2), size=(9, 4)), (3, 8), 1),  # down the columns, which are longer
        (deep((1, 4), strides=(1, 2), pads=(0, 1, 0, 2)), (6, 4), 2),
        (deep((1, 3), dilations=(1, 2), strides=(2, 2), size=(6, 12)), (3, 4), 1),
        (deep((4, 1)), (8, 3), 1),
        (deep((1, 3), pads=(0, 2, 0, 2)), (6, 10), 1),
    ],
)
def test_what_slides(graph, shape, fresh):
    """In chains of one native vector per position, as many outer and inner iterations, with as many new columns."""
    chains = same_bits(graph, FOUR)
    assert [(chain.outer, chain.inner) for chain in chains] == [shape] * 2
    assert {chain.fresh for chain in chains} == {fresh}


@pytest.mark.parametrize(
    "graph",
    [
        deep((3, 2)),  # too large
        deep((2, 2), strides=(2, 2)),  # windows beside each other
        deep((1, 2), dilations=(1, 2), strides=(1, 3)),
        deep((1, 2), size=(1, 5)),  # too few reads are saved
    ],
)
def test_what_does_not_slide(graph):
    assert same_bits(graph, FOUR) == []


def test_a_loop_over_native_vectors_is_shorter_than_a_chain_for_each():
    graph = deep((2, 2), channels=32)
    words = [len(compile_graph(graph, config).image.program) for config in (FOUR, FOUR.replace(window_taps=0))]
    assert len(same_bits(graph, FOUR)) == 8 and words[0] < words[1] + 12


@pytest.mark.slow
@pytest.mark.parametrize("config", [FOUR, NINE], ids=["4 lanes", "16 lanes"])
def test_random_networks(config):
    assert sum(len(same_bits(random_net(seed), config)) for seed in range(12)) >= 3


@pytest.mark.slow
def test_row_tiles():
    """Row tiles slide along rows, as their columns are short; what follows them may slide down."""
    small = NINE.replace(narrow_depth=64, wide_depth=96, program_depth=1024)
    graph = separable(24)
    chains = same_bits(graph, small)
    assert len(compile_graph(graph, small).image.schedule()) > 1
    assert chains and all(chain.source.outer for chain in chains)


@pytest.mark.slow
def test_steps_that_are_too_long_for_a_position():
    wide = TINY.replace(
        lanes=4, window_taps=4, narrow_depth=16384, wide_depth=16384, program_depth=512, matrix_depth=8192
    )
    chains = same_bits(deep((3, 1), size=(4, 1100), channels=16), wide)
    assert chains == []
