"""Maxima over some channels of a position: a product in front writes these where they can be compared."""

import numpy as np
import pytest

from concord.compiler.ir.layers import Layer
from concord.compiler.model import compile_graph
from concord.graph.execute import run
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F
from support.expressions import ROOMY, exact, network, tensor, whole

WIDE = ECP5_85F.replace(narrow_depth=8192, wide_depth=8192)


def maxout(a, groups, size, last=True):
    """The greatest of ``size`` products, ``groups`` times, as a Reshape and a maximum over its last axis."""
    most = a.reshape(1, groups, size).reduce("Max", 2, keep=False)
    return most.whole_dense(3) if last else most


def products(groups, size):
    return tensor(1, 6).dense(whole(groups * size, 6, limit=1))


def aligned(compiled):
    """Matrix words of products with zeros and ones in front of a maximum."""
    names = {node.name for node in compiled.graph.nodes if node.op == "AlignGroups"}
    layers = [layer for layer in compiled.lowered.layers if isinstance(layer, Layer) and names & set(layer.nodes)]
    return sum(layer.weight.size // layer.target.native**2 for layer in layers)


@pytest.mark.parametrize(("groups", "size"), [(20, 3), (3, 5), (2, 7), (5, 2), (4, 4), (7, 9)])
@pytest.mark.parametrize("config", [ROOMY, WIDE], ids=lambda config: config.name)
@pytest.mark.parametrize("last", [True, False])
def test_a_product_in_front_writes_groups_apart(groups, size, config, last):
    compiled = exact(maxout(products(groups, size), groups, size, last), config, limit=1)
    assert not aligned(compiled)


def test_operations_in_between():
    between = (products(20, 3) + (np.arange(60.0) % 7 - 3)).relu()
    assert not aligned(exact(maxout(between, 20, 3), limit=1))


@pytest.mark.parametrize(("groups", "words"), [(20, 15 * 15), (3, 3 * 3)])
def test_what_others_read_is_copied_to_the_fewest_vectors(groups, words):
    """Three elements of every group: 3 * 5 vectors of four groups each, or one for each of three groups."""
    a = products(groups, 3)
    assert aligned(exact(y=maxout(a, groups, 3), a=a, limit=1)) == words


def test_a_maximum_over_a_part_is_refused_a_place():
    """Channels of which only some are compared stay where they are."""
    assert aligned(exact(maxout(products(3, 3)[:, :6], 2, 3, last=False), limit=1))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("groups", "size"), [(4, 8), (8, 4), (20, 3)])
def test_softmax_of_groups_of_channels(op, groups, size):
    """As the distances of a detector: bins of four sides at every place."""
    rng, channels = np.random.default_rng(3), groups * size
    a = tensor(1, 5, 2, 3).conv(rng.normal(0, 0.5, (channels, 5, 1, 1)), rng.normal(0, 0.2, channels))
    graph = network(a.reshape(1, groups, size, 6).transpose(0, 2, 1, 3).softmax(1, op))
    x = {"x": rng.normal(0, 1, (4, 5, 2, 3))}
    compiled = compile_graph(graph, WIDE)
    assert not aligned(compiled)
    want = run(graph, x)["y"]
    assert np.abs(emulate(compiled, x)["y"] - want).max() < 0.02 * np.abs(want).max()
