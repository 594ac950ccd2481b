"""What is said about copies from the external memory."""

import numpy as np

from concord.compiler.model import compile_graph
from concord.host import connect
from concord.host.copied_weights import CopiedWeights, copied_weights
from concord.spec.memmap import RegionId
from support.compiled_nets import perceptron
from support.rtl_configs import COPYING


def test_each_column_of_the_weights_is_copied_once_a_run():
    image = compile_graph(perceptron(24, 70, 40, 3), COPYING).package.image
    (columns,) = (part for part in image.segments if part.region is RegionId.DRAM)
    copies = copied_weights(image)
    assert 0.8 * len(columns.data) <= copies.nbytes <= len(columns.data), "blocks begin at a unit"
    with connect("emulator", COPYING) as device:
        device.load(image)
        (port,) = image.inputs
        device.run(np.zeros((1, *port.shape)))
        cycles = device.counters()["CYCLES"]
    assert copies.nbytes // 2 < copies.bus_cycles < cycles
    assert f"{copies.bus_cycles:,} cycles, {copies.bus_cycles / cycles:.0%} of all" in copies.text(cycles)
    assert ("bus limits" in copies.text(cycles)) == (copies.bus_cycles >= 0.9 * cycles)
    assert copies.text(copies.bus_cycles + 1).endswith(": its bus limits")
    assert copies.text(2 * copies.bus_cycles).endswith("50% of all")


def test_nothing_is_said_without_copies():
    image = compile_graph(perceptron(4, 3), COPYING).package.image
    assert copied_weights(image) == CopiedWeights()
    assert copied_weights(image).text(100) == ""
