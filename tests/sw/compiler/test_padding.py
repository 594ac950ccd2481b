"""Padded tensors on small integers, which every format holds exactly."""

import numpy as np
import pytest

from concord.spec.presets import ECP5_85F
from support.expressions import ROOMY, exact, tensor, whole

CONFIGS = {"tiny": ROOMY, "ecp5-85f": ECP5_85F.replace(narrow_depth=4096, wide_depth=4096, matrix_depth=16384)}
MODES = ["constant", "edge", "reflect", "wrap"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(20))
def test_any_axes(name, mode, seed):
    """Of inputs and of computed tensors, as an output and before operations on every element."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(2, 6, rng.integers(1, 5)))
    pads = np.array([int(rng.integers(0, min(3, n))) for n in (*shape, *shape)])
    if len(shape) > 1:
        pads[[(kept := int(rng.integers(len(shape)))), kept + len(shape)]] = 0
    x = tensor(*shape)
    x = [x.relu(), x.same(), x][seed % 3].pad(*pads, mode=mode, value=float(rng.integers(-2, 3)))
    exact(x * 2.0 if seed % 2 else x, CONFIGS[name])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [0.0, -3.0])
def test_before_a_convolution(mode, value):
    """Of a computed map; what the convolution pads by itself is zero."""
    padded = tensor(1, 5, 4, 5).relu().pad(0, 0, 1, 2, 0, 0, 2, 0, mode=mode, value=value)
    exact(padded.whole_conv(3, 3, 3, pads=1))


@pytest.mark.parametrize("mode", MODES)
def test_elements_of_a_product_are_padded_for_nothing(mode):
    """Those that are there twice have the sum of both weights."""
    assert len(exact(tensor(3, 6).pad(0, 2, 0, 3, mode=mode).whole_dense(6)).lowered.layers) == 1


def test_a_padded_tensor_and_its_source_are_both_read():
    a = tensor(4, 5).relu()
    exact(a - a.pad(1, 0, 0, 0, value=7.0).reduce("Sum", 0))


@pytest.mark.parametrize("number", range(4))
def test_chains_and_nodes_have_different_names(number):
    """Chains that pad have numbers behind the name of their node, as other nodes may have."""
    b = tensor(1, 3, 3).relu().pad(0, 0, 1, 0, 0, 0, value=3.0, name="pad")
    exact(b.combined("Add", whole(1, 3, 4), name=f"pad.{number}") * b)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("axes", [(1,), (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
def test_lanes_are_padded(mode, axes):
    """The tensor is copied, with the elements of an axis in lanes that is not padded."""
    pads = np.zeros((2, 3), int)
    pads[:, axes] = 1
    b = tensor(1, 2, 3).whole_conv(4, 1).reshape(2, 2, 3).pad(*pads.ravel(), mode=mode, value=2.0)
    exact(b * b, limit=1)
