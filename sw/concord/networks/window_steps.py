"""Steps of sliding products on real inputs, which decide about cycles."""

from __future__ import annotations

import numpy as np

from concord.compiler.calibration.calibration import Inputs
from concord.compiler.model import Compiled
from concord.emulator.lanes import Lanes
from concord.emulator.plan import ChainSlice
from concord.host.emulated import EmulatedDevice
from concord.program import trace
from concord.utils.arrays import Ints

#: For every sliding product of a run, in order, the steps of its windows.
WindowSteps = list[Ints]


def measured_steps(compiled: Compiled, inputs: Inputs) -> list[WindowSteps] | None:
    """Steps of all windows in one run of a network, phase by phase.

    Parameters
    ----------
    compiled : Compiled
        The network.
    inputs : mapping of str to array
        Samples ``[samples, *shape]``; the first ones are run.

    Returns
    -------
    list or None
        For :func:`concord.cycles.count`; ``None`` if there are no sliding products.
    """
    image = compiled.image
    phases = [trace(image.program, image.config, phase.pc) for phase in image.schedule()]
    if not any(phase.slides for phase in phases):
        return None
    counted: WindowSteps = []

    def after(part: ChainSlice, lanes: Lanes, _: int) -> None:
        if part.last and part.chain.sliding:
            counted.append(part.window_steps(lanes))

    compiled = compiled.carried
    few = {name: np.asarray(values)[: compiled.package.arrangement.batch] for name, values in inputs.items()}
    with EmulatedDevice(image.config, workers=1, after=after) as device:
        device.load(image)
        compiled.run(device, few)
    steps = iter(counted)
    return [[next(steps) for chain in phase.chains if chain.sliding] for phase in phases]
