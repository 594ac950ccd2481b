"""From a design to a bitstream: RTLIL, synthesis, place and route with several seeds, packing."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from concord.utils.cache import digest
from concord_boards.board import Placement
from concord_rtl.families import family_named
from concord_rtl.flow.cache import FlowStep
from concord_rtl.flow.clocking import NET
from concord_rtl.flow.paths import timing_facts
from concord_rtl.flow.report import MHZ, fullness, packed, score
from concord_rtl.flow.tools import Job, ToolError, run_jobs, tool_version

_USUAL = Placement()

NAME = "npu"
#: Rounds of the router after which a seed is given up: a design that can be routed took 80.
ROUNDS = 200
#: Limits for a target that is out of reach: so many rounds, and still so many connections too late.
LATE_ROUNDS, LATE = 80, 100
#: The router has reached up to 1.22 times the clock that the placer expects. A target above this ratio is given up
#: after placement.
REACH = 1.25
#: Steps by which the target goes down when the router makes no end of it: with more than ``LATE`` connections too late,
#: and with less.
STEP_HZ, SMALL_STEP_HZ = 5e6, 2e6

#: Before synthesis: block RAMs, all named *store*, need no emulation of reads that collide with writes, which are
#: undefined (the attribute for it is lost in RTLIL), and bits of debug wires must not share names with wires.
PREPARE = (
    "rename -hide */w:*\\[*; setparam -set COLLISION_X_MASK 1'1 */t:$memrd_v2 */r:CLK_ENABLE=1 %i */r:MEMID=*store* %i"
)


def late_connections(line: str) -> tuple[int, int] | None:
    """Rounds of ``router2`` and connections that miss the target, from a line of nextpnr's log that tells them."""
    match = re.match(r"iter=(\d+) .*overused=\d+(?:.* tmgfail=(\d+))?", line)
    return (int(match[1]), int(match[2] or 0)) if match else None


def is_endless(line: str) -> bool:
    """True if a line of nextpnr's log tells that its ``router2`` turns in circles."""
    rounds, late = late_connections(line) or (0, 0)
    return rounds > ROUNDS or (rounds > LATE_ROUNDS and late > LATE)


def expected_hz(log: Path) -> float | None:
    """Clock that the placer expects the core to reach, from the log of nextpnr; None before placement has ended."""
    text = log.read_text(errors="replace") if log.exists() else ""
    match = re.search(rf"Max frequency for clock +'{re.escape(NET)}': ([0-9.]+) MHz", text)
    return float(match[1]) * MHZ if match else None


def reachable_hz(log: Path) -> float | None:
    """Greatest target worth routing for, a multiple of 1 MHz; None before placement has ended."""
    expected = expected_hz(log)
    return None if expected is None else expected * REACH // MHZ * MHZ


@dataclass(frozen=True)
class Goal:
    """Target of place and route.

    Parameters
    ----------
    aim_hz : float
        Target of place and route.
    enough_hz : float
        Frequency at which no other seed is tried.
    tunable : bool
        True if the clock follows from what is reached: then a target that the router makes no end of is lowered.
    """

    aim_hz: float
    enough_hz: float
    tunable: bool = False


class Flow:
    """The steps for one board, each of which reuses what is in the folder if nothing it depends on has changed.

    Parameters
    ----------
    board : Board
        The board.
    folder : Path
        Where everything is put.
    console : Console
        Where progress is shown.
    placement : Placement
        What place and route needs beside the usual options.
    smaller : str
        What makes a smaller design, for those who see that this one nearly fills the device.
    """

    def __init__(
        self, board: Any, folder: Path, console: Console, placement: Placement = _USUAL, smaller: str = "other options"
    ):
        self.board = board
        self.family = family_named(board.family)
        self.folder = folder
        self.console = console
        self.placement = placement
        self.smaller = smaller
        self._fullness: str | None = None  # what is said of it, once the design has been packed

    def file(self, suffix: str) -> Path:
        """Path of a file of the design."""
        return self.folder / f"{NAME}.{suffix}"

    @property
    def placed(self) -> Path:
        """Placed and routed design of the best seed."""
        return self.file(self.family.placed.suffix)

    @property
    def routed(self) -> Path:
        """The netlist of the best seed after place and route."""
        return self.file("routed.json")

    def _routed_step(self) -> FlowStep:
        return FlowStep([self.routed, self.placed], digest(*self._origin()))

    @property
    def is_routed(self) -> bool:
        """True if the netlist as it is now was placed and routed."""
        return self._routed_step().fresh

    @property
    def bitstream(self) -> Path:
        """The bitstream."""
        return self.file(self.family.bitstream)

    def generate(self, make: Callable[[], Any], key: str) -> None:
        """Write RTLIL and pin constraints of the design that ``make`` returns; ``key`` is a hash of its origin."""
        names = ["il", self.family.constraints.suffix]
        step = FlowStep([self.file(name) for name in names], digest(key, self.board.name))
        if step.fresh:
            return
        step.clear()
        self.console.print("        generating the design")
        with self.console.status("generating the design"):
            plan = self.board.platform().prepare(make(), NAME, emit_src=False)
        for name in names:
            text = plan.files[f"{NAME}.{name}"]
            self.file(name).write_bytes(text if isinstance(text, bytes) else text.encode())
        step.keep()

    def synthesize(self, options: str = "") -> None:
        """Make the netlist, and ``synthesis.json`` with the cells in it."""
        netlist, stat = self.file("json"), self.folder / "synthesis.json"
        command = " ".join([self.family.synthesis, options, "-top", NAME])
        # Standard output is lost after the first call of ABC, so everything goes to files.
        script = (
            f"read_rtlil {NAME}.il; {PREPARE}; {command}; tee -q -o {stat.name} stat -json; write_json {netlist.name}"
        )
        step = FlowStep([netlist, stat], digest(self.file("il"), PREPARE, command, tool_version("yosys")))
        if step.fresh:
            return
        step.clear()
        log = self.folder / "synthesis.log"
        args = ["-q", "-l", log.name, "-p", script]
        job = Job("synthesis", "yosys", args, self.folder, log, reads=[self.file("il")], writes=step.outputs)
        run_jobs(self.console, [job])
        step.keep()

    def place(
        self, seeds: list[int], goal: Goal, jobs: int = 1, every: bool = False, minutes: float | None = None
    ) -> dict[int, dict[str, Any]]:
        """Place and route until a seed reaches ``goal``, or with every seed; keep the result of the best one.

        ``jobs`` seeds are worked on at a time. Timing that is missed is not an error here: the reports by seed, which
        are returned, tell, with the target of each as ``aim_hz``. Seeds that the router makes no end of are given up,
        or, if the clock is tunable and all were, tried again with a lower target, which is that of the seeds after
        them, too, unless it is below what another has reached. If the clock is tunable, a seed whose placement is too
        slow for the target is tried again with a target of its own, or passed over if that is below what another has
        reached. After ``minutes`` nothing new is begun and what runs is ended, if there is a result.
        :class:`ToolError` if there is none in the end.
        """
        until = float("inf") if minutes is None else time.monotonic() + 60 * minutes
        self._prepare()
        reports: dict[int, dict[str, Any]] = {}
        best, aim, waiting = None, goal.aim_hz, list(seeds)
        limits: dict[int, float] = {}
        while waiting:
            now, waiting = waiting[:jobs], waiting[jobs:]
            aims = {seed: min(aim, limits.get(seed, aim)) for seed in now}
            steps, late, limited = self._place_some(aims, goal.tunable, jobs, until if reports else float("inf"))
            limits |= limited
            for seed, step in steps.items():
                reports[seed] = json.loads(step.outputs[1].read_text()) | {"aim_hz": aims[seed]}
                if best is None or score(reports[seed]) > score(reports[best]):
                    best = seed
                    self.placed.write_bytes(step.outputs[0].read_bytes())
                    routed = self._routed_step()
                    routed.clear()
                    self.routed.write_bytes(step.outputs[2].read_bytes())
                    routed.keep()
                self._say(reports, seed, best)
            if reports and (time.monotonic() >= until or (not every and self._is_enough(reports, goal))):
                break
            waiting = self._worth_another_try(limited, reports, best) + waiting
            now = [seed for seed in now if seed not in limited]
            lower = min(aims.values()) - (STEP_HZ if late > LATE else SMALL_STEP_HZ)
            worth = lower >= goal.aim_hz / 2 if best is None else lower > score(reports[best]) * MHZ
            if goal.tunable and now and not steps and worth:
                aim = lower
                waiting = now + waiting
                self.console.print(f"        the target is out of reach; next {aim / MHZ:g} MHz")
        if not reports:
            names = ", ".join(map(str, seeds))
            raise ToolError(f"none of the seeds {names} could be routed; {self._fullness or 'try other --seeds'}")
        return reports

    @property
    def _to_place(self) -> Path:
        """The netlist for nextpnr: with short carry chains, sites and settings, if there are any."""
        placement = self.placement
        changed = placement.short_chains or placement.router or placement.sites
        return self.file("place.json" if changed else "json")

    def _origin(self) -> list[Any]:
        """Inputs of a placement: the netlist, and the placement settings of the configuration."""
        placement, netlist = self.placement, self.file("json")
        sites = self._sites(json.loads(netlist.read_text())["modules"][NAME]["cells"]) if placement.sites else {}
        chains = placement.short_chains, placement.fold_carries
        return [netlist, chains, sites, placement.placer, placement.router]

    def _sites(self, cells: Iterable[str]) -> dict[str, str]:
        """Sites of the cells that have one; :class:`ToolError` if there are none to give sites to."""
        if self.placement.sites is None:
            return {}
        try:
            return self.placement.sites(cells)
        except ValueError as error:
            raise ToolError(f"no sites: {error}") from error

    def _shorten(self, module: dict[str, Any]) -> None:
        if self.family.carry_chains is None:
            raise ToolError(f"short_chains must be False on {self.family.name}, not True")
        self.family.carry_chains(module, fold=self.placement.fold_carries)

    def _prepare(self) -> None:
        """Shorten carry chains, and add sites and settings where nextpnr finds them."""
        if self._to_place == self.file("json"):
            return
        step = FlowStep([self._to_place], digest(*self._origin(), tool_version(self.family.place_and_route)))
        if step.fresh:
            return
        step.clear()
        design = json.loads(self.file("json").read_text())
        module = design["modules"][NAME]
        if self.placement.short_chains:
            self._shorten(module)
        for name, site in self._sites(module["cells"]).items():
            module["cells"][name]["attributes"]["BEL"] = site
        module["settings"] = {f"router2/{name}": value for name, value in self.placement.router}
        self._to_place.write_text(json.dumps(design))
        step.keep()

    def _worth_another_try(
        self, limits: dict[int, float], reports: dict[int, dict[str, Any]], best: int | None
    ) -> list[int]:
        """The seeds that may reach more than the best one, of those with placements too slow for their targets."""
        least = 0.0 if best is None else score(reports[best]) * MHZ
        for seed, hz in limits.items():
            then = f"next {hz / MHZ:g} MHz" if hz > least else "passed over, the best so far is faster"
            self.console.print(f"        seed {seed}: the placement is too slow for the target; {then}")
        return [seed for seed, hz in limits.items() if hz > least]

    @staticmethod
    def _is_enough(reports: dict[int, dict[str, Any]], goal: Goal) -> bool:
        return any(score(report) * MHZ >= goal.enough_hz for report in reports.values())

    def _say(self, reports: dict[int, dict[str, Any]], seed: int, best: int) -> None:
        """Tell what a seed has reached."""
        mhz = {key: f"{score(report):.2f} MHz" for key, report in reports.items()}
        self.console.print(f"        seed {seed}: {mhz[seed]}; best so far: seed {best}, {mhz[best]}")

    def _place_some(
        self, aims: dict[int, float], tunable: bool, jobs: int, until: float
    ) -> tuple[dict[int, FlowStep], int, dict[int, float]]:
        """Place and route with some seeds at a time, as far as that has not been done.

        Returns the results, the connections that miss the target at the most where there is none, and the greatest
        targets of the seeds whose placements are too slow for theirs.
        """
        waiting: list[tuple[int, FlowStep, Job, Path]] = []
        steps: dict[int, FlowStep] = {}
        late = 0
        limits: dict[int, float] = {}
        for seed, hz in aims.items():
            step, job = self._seed(seed, hz, tunable, until)
            endless = self.folder / f"seed{seed}-{hz / MHZ:g}.endless"
            if endless.exists() and endless.read_text().startswith(step.key):
                _, was_late, was_limit = endless.read_text().split()
                if float(was_limit):
                    limits[seed] = float(was_limit)
                else:
                    late = max(late, int(was_late))
                self.console.print(f"        {job.label}: was given up")
                if text := job.noticed():
                    self.console.print(f"        {text}")
                continue
            steps[seed] = step
            if not step.fresh:
                step.clear()
                waiting.append((seed, step, job, endless))
        run_jobs(self.console, [job for _, _, job, _ in waiting], jobs)
        for seed, step, job, endless in waiting:
            if job.gave_up:
                del steps[seed]
                if time.monotonic() < until:
                    _, missed = late_connections(job.status()) or (0, 0)
                    limit = reachable_hz(job.log) if tunable else None
                    if limit is not None and limit < aims[seed]:
                        limits[seed] = limit
                    else:
                        late, limit = max(late, missed), None
                    endless.write_text(f"{step.key} {missed} {limit or 0:g}")
                continue
            report = json.loads(step.outputs[1].read_text())
            delays = self._delays(seed)
            more = {"seconds": round(job.seconds, 1), **timing_facts(delays, self.family)}
            delays.unlink()
            step.outputs[1].write_text(json.dumps(report | more))
            step.keep()
        return steps, late, limits

    def _seed(self, seed: int, hz: float, tunable: bool, until: float) -> tuple[FlowStep, Job]:
        pins, placed = self.family.constraints, self.family.placed
        outputs = [self.folder / f"seed{seed}.{part}" for part in (placed.suffix, "json", "routed.json")]
        log = self.folder / f"seed{seed}.log"
        target = ["--freq", f"{hz / MHZ:.6f}", "--seed", str(seed), "--timing-allow-fail"]
        fixed = [*self.board.place, *self.placement.placer, *self.family.router, *target]
        tool = self.family.place_and_route
        constraints = self._constraints(hz, seed) if tunable else self.file(pins.suffix)
        key = digest(self._to_place, constraints, fixed, tool_version(tool))
        files = ["--json", self._to_place, pins.option, constraints, placed.option, outputs[0], "--report", outputs[1]]
        files += ["--write", outputs[2], "--sdf", self._delays(seed)]
        args = [*fixed, *[getattr(file, "name", file) for file in files], "--quiet", "--log", log.name]

        def hopeless(line: str) -> bool:
            limit = reachable_hz(log) if tunable else None
            return is_endless(line) or time.monotonic() >= until or (limit is not None and limit < hz)

        label = f"place and route, {hz / MHZ:g} MHz, seed {seed}"
        reads, writes = [self._to_place, constraints], [*outputs, self._delays(seed)]
        job = Job(label, tool, args, self.folder, log, hopeless, self._notice, reads, writes)
        return FlowStep(outputs, key), job

    def _notice(self, log: str) -> str | None:
        """Notice that the design nearly fills the device, from the log of the first seed that was packed."""
        if self._fullness is not None:
            return ""
        logic = next(iter(packed(log, self.family).values()), None)
        if logic is None:
            return None
        used, available = logic
        self._fullness = fullness(used, available, self.family, self.smaller)
        return self._fullness

    def _delays(self, seed: int) -> Path:
        """All delays of a seed: large, and kept only until the slow paths are found."""
        return self.folder / f"seed{seed}.sdf"

    def _constraints(self, hz: float, seed: int) -> Path:
        """Pins, and the target of the clock instead of the one that follows from the PLL in the netlist."""
        suffix = self.family.constraints.suffix
        file = self.folder / f"seed{seed}.{suffix}"
        file.write_text(f'{self.file(suffix).read_text()}\nFREQUENCY NET "{NET}" {hz / MHZ:.6f} MHZ;\n')
        return file

    def pack(self, placed: Path, output: Path) -> None:
        """Make the bitstream of a placed and routed design, a file in the folder."""
        packed = self.folder / "packed"
        tool, args = self.family.packing(placed, packed)
        log = self.folder / "pack.log"
        job = Job(f"packing {output.name}", tool, args, self.folder, log, reads=[placed], writes=[packed])
        run_jobs(self.console, [job])
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(packed, output)
