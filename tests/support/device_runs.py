"""Programs through the driver, compared with the reference machine."""

import random

from concord.emulator import ReferenceMachine
from concord.spec.memmap import INTEGER_REGIONS, RegionId
from support.program_gen import LOADED_COLUMNS
from support.reference_runs import assert_machines_agree

LOADED = (
    RegionId.PROGRAM,
    RegionId.MATRIX,
    RegionId.NARROW,
    RegionId.WIDE,
    RegionId.TABLE,
    RegionId.SLOTS,
    RegionId.FLAGS,
)
READABLE = (RegionId.TENSORS, RegionId.UPDATES)
WRITTEN = (RegionId.NARROW, RegionId.WIDE, RegionId.FLAGS)
COUNTED = ("CYCLES", "DENSE_STEPS", "DEPTHWISE_STEPS", "CHAINS", "VECTORS", "HAZARD_STALLS")


def load(device, memories, regions=LOADED):
    """Fill memories of a device, all of them if not said otherwise."""
    more = INTEGER_REGIONS if memories.config.integer_chains and regions is LOADED else ()
    if memories.config.dram and regions is LOADED:
        device.write(RegionId.DRAM, 0, memories.dram[:LOADED_COLUMNS].tolist())
    for region in (*regions, *more):
        device.write(region, 0, memories.read(region, 0, memories.region(region).depth))


def after(device, memories):
    """Memories as the device left them, of which a program cannot write some."""
    found = memories.copy()
    config = memories.config
    matrix = (RegionId.MATRIX,) if config.writable_matrix or config.integer_chains or config.dram else ()
    for region in (*WRITTEN, *matrix, *(READABLE if config.integer_chains else ())):
        found.write(region, 0, [int(word) for word in device.read(region, 0, memories.region(region).depth)])
    return found


def compare(device, memories):
    """Run the program on the reference machine; the device must have left the same. Returns the run."""
    want = memories.copy()
    run = ReferenceMachine(want).run()
    _assert_left(device, want, run)
    return run


def _assert_left(device, want, run):
    wrong = want.differences(after(device, want))
    assert not wrong, f"{len(wrong)} wrong elements, expected / found: {'; '.join(wrong[:8])}"
    counters = device.counters()
    wrong = [f"{name}: {getattr(run, name.lower())} / {counters[name]}" for name in COUNTED
             if counters[name] != getattr(run, name.lower())]  # fmt: skip
    assert not wrong, f"wrong counters, expected / found: {'; '.join(wrong)}"


def check_seeds(device, make, seeds):
    """:func:`check_machines` for the memories that ``make`` gives for each seed; ``None`` is left out."""
    for seed in seeds:
        memories = make(random.Random(seed))
        if memories is None:
            continue
        try:
            check_machines(device, memories)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def check_machines(device, memories):
    """Run a program on a device, the reference machine and the emulator: the same memories, flags and counters."""
    load(device, memories)
    device.start(0)
    device.wait()
    want = memories.copy()
    _assert_left(device, want, assert_machines_agree(want))
