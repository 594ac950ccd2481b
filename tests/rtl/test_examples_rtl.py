"""The example programs on the Verilated RTL: the same bits as in the emulator."""

import pytest

from concord.host import connect
from concord.spec.presets import TINY
from support.small_examples import SMALL


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
