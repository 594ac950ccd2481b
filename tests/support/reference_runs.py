"""Images on the reference machine, and the emulator beside it."""

import numpy as np

from concord.emulator import Emulator, ReferenceMachine
from concord.image import Memories
from concord.spec.isa import Trap


def run_reference(image, x):
    """Run every sample, for an image with one input: outputs by name, and the memories after the last run.

    Lanes of outputs that are not sent are zero, as a device gives them.
    """
    config, (given,), memories = image.config, image.inputs, Memories.of(image)
    results = {port.name: [] for port in image.outputs}
    for sample in x:
        memories.write(given.region, given.address, given.encode(sample, config))
        assert ReferenceMachine(memories).run().trap is Trap.NONE
        for port in image.outputs:
            words = memories.read(port.region, port.address, port.vectors(config))
            results[port.name].append(port.decode(words, config))
    return image.feeding.trim({name: np.stack(values) for name, values in results.items()}), memories


def assert_machines_agree(memories):
    """Run a program on the reference machine and on the emulator, and return the run: both leave the same."""
    copy = memories.copy()
    want, found = ReferenceMachine(memories).run(), Emulator(copy).run()
    assert copy.differences(memories) == []
    assert found == want
    assert (found.cycles, found.hazard_stalls, found.exact) == (want.cycles, want.hazard_stalls, True)
    return want
