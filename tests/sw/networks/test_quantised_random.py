"""Random quantised models against onnxruntime: no pair is lost, and whatever is left between both is said."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph import execute
from concord.networks.calibrated import emulate
from concord.networks.quantised_model import with_pairs, with_quantised_model
from concord.spec.presets import ECP5_85F
from support.onnx_models import onnxruntime_results
from support.quantised_nets import random_network

#: Wherever float32 of onnxruntime and double precision are on both sides of the middle between two codes of 4 bits.
TIES = 0.15
#: What mantissas of 8 bits make of several roundings to 4 bits in a row.
FAR = 0.35


def relative(found, want):
    return float(np.linalg.norm(np.reshape(found, want.shape) - want) / max(float(np.linalg.norm(want)), 1e-30))


def differs(seed):
    """What a random network says of itself, how far it is from onnxruntime, and how far double precision is."""
    proto, x = random_network(seed)
    data, x = proto.SerializeToString(), {"x": np.float32(x).astype(float)}
    graph, reference = with_pairs(data, import_model(data), x)
    (want,) = onnxruntime_results(proto, x)
    exactly = execute.run(reference.graph, x)
    pairs = [node.name for node in reference.graph.nodes if node.op == "FakeQuantize"]
    unmoved = execute.run(import_model(data, stay=pairs), x)
    for name, value in exactly.items():  # whatever passes do, every pair is there
        np.testing.assert_allclose(
            unmoved[name].reshape(value.shape), value, rtol=1e-9, atol=1e-9 * np.abs(value).max()
        )
    compiled = with_quantised_model(compile_graph(graph, ECP5_85F), reference, x)
    (name,) = graph.outputs
    return compiled, relative(emulate(compiled, x)[name], want), relative(exactly[name], want)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_random_networks(seed):
    compiled, found, ties = differs(seed)
    measured = compiled.package.quantised_model
    assert ties < TIES and abs(measured.error - found) <= ties + 1e-6
    assert found < FAR
    assert measured.exact == (found == 0 and not compiled.inexact)
    if found:
        assert compiled.warnings[0] == measured.text and f"{100 * measured.error:.2f} %" in measured.text
        assert ("what helps: " in measured.text) == (measured.error > 0.05)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed < 60 else pytest.mark.deep) for seed in range(24, 200)]
)
def test_more_random_networks(seed):
    test_random_networks(seed)
