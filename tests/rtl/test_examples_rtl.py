"""The example programs and a compiled network on the Verilated RTL: the same bits as in the emulator."""

import numpy as np
import pytest

from concord.host import connect
from concord.mlp import compile_mlp
from concord.network import Dense, Network
from concord.spec.presets import TINY
from small_examples import SMALL


@pytest.fixture(scope="module")
def rtl():
    with connect("rtl", TINY) as device:
        yield device


def on_both(rtl, image, x):
    """Results of the RTL and of the emulator."""
    with connect("emulator", TINY) as emulator:
        emulator.load(image)
        rtl.load(image)
        return rtl.run(x), emulator.run(x), rtl.counters(), emulator.counters()


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_examples(rtl, name):
    example = SMALL[name]()
    x = example.samples(3)
    computed, expected, counted, counts = on_both(rtl, example.image(), x)
    assert computed.tobytes() == expected.tobytes()
    assert example.error(computed, x) < example.tolerance
    assert {name: counted[name] for name, value in counts.items() if value is not None} == {
        name: value for name, value in counts.items() if value is not None
    }
    assert rtl.flags() == {}


@pytest.mark.slow
def test_every_layer_of_a_network(rtl):
    rng = np.random.default_rng(1)
    layers = tuple(
        Dense(f"fc{k}", rng.normal(0, 0.5, shape), rng.normal(0, 0.2, shape[0]), kind)
        for k, (shape, kind) in enumerate((((9, 7), "Relu"), ((6, 9), "Tanh"), ((3, 6), None)))
    )
    image = compile_mlp(Network("net", layers), TINY).tapped
    x = rng.normal(0, 1, (4, 7))
    computed, expected, _, _ = on_both(rtl, image, x)
    assert list(computed) == ["input", "fc0.out", "fc1.out", "y"]
    for name, values in expected.items():
        assert computed[name].tobytes() == values.tobytes(), name
