"""Search for the first bit that differs between a device and the emulator."""

from __future__ import annotations

import numpy as np

from concord.compiler.calibration.calibration import Inputs
from concord.compiler.model import Compiled
from concord.host import connect
from concord.host.device import Device
from concord.program.access import REGIONS
from concord.report.prefixes import HALT, ends
from concord.spec.memmap import RegionId

#: Memories that are compared; zeros at first.
MEMORIES = tuple(REGIONS.values())


def first_difference(compiled: Compiled, inputs: Inputs, device: Device) -> str:
    """Name of the first layer after which the vector memories of a device are not those of the emulator.

    The program is cut short after each layer in turn and run for the first samples. Layers in row tiles are
    taken together: rows of a wrong layer may be overwritten when the other layers have computed all tiles.

    Parameters
    ----------
    compiled : Compiled
        The network.
    inputs : mapping of str to array
        ``[samples, *shape of a sample]`` for every input.
    device : Device
        The RTL or a board; holds the network afterwards.

    Returns
    -------
    str
        Empty if there is no such layer; of layers in row tiles the first and the last one, as ``first to last``.
    """
    batch = compiled.package.arrangement.batch
    ports = compiled.package.arrangement.pack({name: np.asarray(x)[:batch] for name, x in inputs.items()})
    with connect("emulator", compiled.image.config) as emulator:
        devices = emulator, device
        for target in devices:
            for region in MEMORIES:
                target.write(region, 0, [0] * target.regions[region].depth)
            target.load(compiled.image)
        for name, end in _cuts(compiled):
            words, device_words = (_memories(compiled, target, ports, end) for target in devices)
            if words != device_words:
                return name
    return ""


def _cuts(compiled: Compiled) -> list[tuple[str, int]]:
    """Layers with the addresses after them, those in row tiles as one."""
    cuts = [(layer.name, places[0]) for layer, places in zip(compiled.lowered.layers, ends(compiled), strict=True)]
    if compiled.row_tiling is None:
        return cuts
    together = cuts[: compiled.row_tiling.layers]
    return [(f"{together[0][0]} to {together[-1][0]}", together[-1][1]), *cuts[len(together) :]]


def _memories(compiled: Compiled, device: Device, ports: Inputs, end: int) -> list[list[int]]:
    """Words of the vector memories after a run that stops at an address."""
    device.write(RegionId.PROGRAM, end, [HALT])
    device.run(ports)
    device.write(RegionId.PROGRAM, end, [compiled.image.program[end]])
    return [device.read(region, 0, device.regions[region].depth) for region in MEMORIES]
