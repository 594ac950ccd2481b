"""One unit by itself on a device: what its paths allow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amaranth import *
from amaranth.back import rtlil
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from rich.console import Console

from concord.utils.cache import digest
from concord_boards import Board
from concord_rtl.families import family_named
from concord_rtl.flow.bitstream import PREPARE
from concord_rtl.flow.cache import FlowStep
from concord_rtl.flow.report import MHZ, score
from concord_rtl.flow.tools import Job, run_jobs, tool_version
from concord_rtl.parts.component import Component, Input, Output

#: Clock that place and route of a unit aims at, in hertz; the placer expects about as much.
AIM_HZ = 140e6
#: Bits that are joined per cycle on the way to the output.
GROUP = 4


class OnPins(Component):
    """A unit between registers, with one input and one output.

    Inputs of the unit are places of a shift register, its outputs are joined in steps of :data:`GROUP` bits by XOR,
    with a register after each. So nothing of the unit is left out by synthesis, and all paths outside are short.

    Parameters
    ----------
    unit : Component
        The unit.
    """

    i = Input(1, "Pin from which the inputs are shifted in.")
    o = Output(1, "Pin to which the outputs are shifted.")

    def __init__(self, unit: wiring.Component):
        self.unit = unit
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.unit = self.unit
        shift, bits = self.i, []
        for _, member, value in self.unit.signature.flatten(self.unit):
            signal = Value.cast(value)
            if member.flow is In:
                places = Signal(len(signal), reset_less=True)
                m.d.sync += places.eq(Cat(shift, places))
                m.d.comb += signal.eq(places)
                shift = places[-1]
            else:
                bits.extend(signal)
        while len(bits) > 1 or bits[0] is not self.o:
            groups = [Cat(bits[k : k + GROUP]).xor() for k in range(0, len(bits), GROUP)]
            bits = [Signal(reset_less=True) for _ in groups] if len(groups) > 1 else [self.o]
            m.d.sync += [bit.eq(group) for bit, group in zip(bits, groups, strict=True)]
        return m


def clock_of_unit(unit: wiring.Component, board: Board, seeds: Sequence[int], folder: Path, console: Console) -> float:
    """MHz that a unit between two pins reaches after place and route with the best of some seeds.

    Raises
    ------
    ValueError
        If the family of the board has no flow without pins.
    """
    family = family_named(board.family)
    if family.without_pins is None:
        raise ValueError(f"board must be of a family that has a flow without pins, not {board.name!r}")
    folder.mkdir(parents=True, exist_ok=True)
    design, netlist = folder / "unit.il", folder / "unit.json"
    design.write_text(rtlil.convert(OnPins(unit), platform=family.target, name="unit", emit_src=False))
    script = f"read_rtlil {design.name}; {PREPARE}; {family.synthesis} -top unit; write_json {netlist.name}"
    step, log = FlowStep([netlist], digest(design, script, tool_version("yosys"))), folder / "synthesis.log"
    if not step.fresh:
        step.clear()
        args = ["-q", "-l", log.name, "-p", script]
        run_jobs(console, [Job("synthesis", "yosys", args, folder, log, reads=[design], writes=[netlist])])
        step.keep()
    reached = []
    for seed in seeds:
        report, log = folder / f"seed{seed}.json", folder / f"seed{seed}.log"
        # Pins are where the placer wants them.
        target = ["--freq", f"{AIM_HZ / MHZ:g}", "--seed", str(seed), "--timing-allow-fail"]
        args = [*board.place, *family.without_pins, *target, "--json", netlist.name]
        step = FlowStep([report], digest(netlist, args, tool_version(family.place_and_route)))
        if not step.fresh:
            step.clear()
            args += ["--report", report.name, "--quiet", "--log", log.name]
            label, tool = f"place and route, seed {seed}", family.place_and_route
            run_jobs(console, [Job(label, tool, args, folder, log, reads=[netlist], writes=[report])])
            step.keep()
        reached.append(score(json.loads(report.read_text())))
    return max(reached)
