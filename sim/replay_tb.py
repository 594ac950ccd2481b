"""The cocotb test that replays one case inside of the simulator."""

import json
import os
from pathlib import Path

import cocotb
from cocotb.task import bridge


@cocotb.test()
async def case(handle):
    """Run the function of the case ``CONCORD_CASE`` with its benches on the design."""
    from cases import CASES
    from replay import simulator
    from support import bench

    inputs = json.loads(Path(os.environ["CONCORD_INPUTS"]).read_text())
    bench.simulate = simulator(handle, inputs)
    await bridge(CASES[os.environ["CONCORD_CASE"]].call)()
