"""From a design to a bitstream: RTLIL, synthesis, place and route with several seeds, packing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from .cache import Stage, digest
from .report import clocks, score
from .tools import Job, ToolError, run_jobs, tool_version

NAME = "npu"
SYNTHESIS = {"ecp5": "synth_ecp5", "ice40": "synth_ice40"}
CONSTRAINTS = {"ecp5": ("lpf", "--lpf"), "ice40": ("pcf", "--pcf")}
PLACED = {"ecp5": ("config", "--textcfg"), "ice40": ("asc", "--asc")}
SUFFIX = {"ecp5": ".bit", "ice40": ".bin"}
#: The first router of nextpnr goes on without an end on a full ECP5; the second one negotiates all nets at once.
ROUTER: dict[str, list[str]] = {"ecp5": ["--router", "router2"], "ice40": []}
#: Rounds of the router after which a seed is given up: a design that can be routed took 50.
ROUNDS = 200

#: Before synthesis: block RAMs, all named *store*, need no emulation of reads that collide with writes, which are
#: undefined (the attribute for it is lost in RTLIL), and bits of debug wires must not share names with wires.
PREPARE = (
    "rename -hide */w:*\\[*; setparam -set COLLISION_X_MASK 1'1 */t:$memrd_v2 */r:CLK_ENABLE=1 %i */r:MEMID=*store* %i"
)


def is_endless(line: str) -> bool:
    """Whether a line of nextpnr's log tells that its ``router2`` turns in circles."""
    found = re.match(r"iter=(\d+) .*overused=", line)
    return found is not None and int(found[1]) > ROUNDS


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
    """

    def __init__(self, board: Any, folder: Path, console: Console):
        self.board = board
        self.folder = folder
        self.console = console

    def file(self, suffix: str) -> Path:
        """Path of a file of the design."""
        return self.folder / f"{NAME}.{suffix}"

    @property
    def placed(self) -> Path:
        """What the best seed gave."""
        return self.file(PLACED[self.board.family][0])

    @property
    def bitstream(self) -> Path:
        """The bitstream."""
        return self.file(SUFFIX[self.board.family][1:])

    def generate(self, make: Callable[[], Any], key: str) -> None:
        """Write RTLIL and pin constraints of the design that ``make`` returns; ``key`` is a hash of its origin."""
        names = ["il", CONSTRAINTS[self.board.family][0]]
        stage = Stage([self.file(name) for name in names], digest(key, self.board.name))
        if stage.fresh:
            return
        stage.clear()
        self.console.print("        generating the design")
        with self.console.status("generating the design"):
            plan = self.board.platform().prepare(make(), NAME, emit_src=False)
        for name in names:
            text = plan.files[f"{NAME}.{name}"]
            self.file(name).write_bytes(text if isinstance(text, bytes) else text.encode())
        stage.keep()

    def synthesize(self, options: str = "") -> None:
        """Make the netlist, and ``synthesis.json`` with the cells in it."""
        netlist, stat = self.file("json"), self.folder / "synthesis.json"
        command = " ".join([SYNTHESIS[self.board.family], options, "-top", NAME])
        # Standard output is lost after the first call of ABC, so everything goes to files.
        script = (
            f"read_rtlil {NAME}.il; {PREPARE}; {command}; tee -q -o {stat.name} stat -json; write_json {netlist.name}"
        )
        stage = Stage([netlist, stat], digest(self.file("il"), PREPARE, command, tool_version("yosys")))
        if stage.fresh:
            return
        stage.clear()
        log = self.folder / "synthesis.log"
        run_jobs(self.console, [Job("synthesis", "yosys", ["-q", "-l", log.name, "-p", script], self.folder, log)])
        stage.keep()

    def place(self, seeds: list[int], hz: float, jobs: int = 1, every: bool = False) -> dict[int, dict[str, Any]]:
        """Place and route until a seed reaches ``hz``, or with every seed; keep the result of the best one.

        ``jobs`` seeds are worked on at a time. Timing that is missed is not an error here: the reports by seed, which
        are returned, tell. A seed that the router makes no end of is given up; :class:`ToolError` if none is left.
        """
        reports: dict[int, dict[str, Any]] = {}
        stages: dict[int, Stage] = {}
        for first in range(0, len(seeds), jobs):
            stages |= self._place_some(seeds[first : first + jobs], hz, jobs)
            reports = {seed: json.loads(stage.outputs[1].read_text()) for seed, stage in stages.items()}
            if not every and any(all(clock["met"] for clock in clocks(report, hz)) for report in reports.values()):
                break
        if not reports:
            raise ToolError(f"none of the seeds {', '.join(map(str, seeds))} could be routed; try other --seeds")
        best = max(reports, key=lambda seed: score(reports[seed]))
        self.placed.write_bytes(stages[best].outputs[0].read_bytes())
        return reports

    def _place_some(self, seeds: list[int], hz: float, jobs: int) -> dict[int, Stage]:
        """Place and route with some seeds at a time, as far as that has not been done."""
        waiting, stages = [], {}
        for seed in seeds:
            stage, job = self._seed(seed, hz)
            stages[seed] = stage
            if not stage.fresh:
                stage.clear()
                waiting.append((seed, stage, job))
        run_jobs(self.console, [job for *_, job in waiting], jobs)
        for seed, stage, job in waiting:
            if job.gave_up:
                del stages[seed]
                continue
            found = json.loads(stage.outputs[1].read_text())
            stage.outputs[1].write_text(json.dumps(found | {"seconds": round(job.seconds, 1)}))
            stage.keep()
        return stages

    def _seed(self, seed: int, hz: float) -> tuple[Stage, Job]:
        family = self.board.family
        suffix, option = PLACED[family]
        outputs = [self.folder / f"seed{seed}.{suffix}", self.folder / f"seed{seed}.json"]
        pins, pins_option = CONSTRAINTS[family]
        log = self.folder / f"seed{seed}.log"
        target = ["--freq", f"{hz / 1e6:.6f}", "--seed", str(seed), "--timing-allow-fail"]
        fixed = [*self.board.place, *ROUTER[family], *target]
        tool = f"nextpnr-{family}"
        key = digest(self.file("json"), self.file(pins), fixed, tool_version(tool))
        files = ["--json", self.file("json"), pins_option, self.file(pins), option, outputs[0], "--report", outputs[1]]
        args = [*fixed, *[getattr(file, "name", file) for file in files], "--quiet", "--log", log.name]
        return Stage(outputs, key), Job(f"place and route, seed {seed}", tool, args, self.folder, log, is_endless)

    def pack(self, placed: Path, output: Path) -> None:
        """Make the bitstream of a placed and routed design, a file in the folder."""
        packed = self.folder / "packed"
        if self.board.family == "ecp5":
            tool, args = "ecppack", ["--compress", "--input", placed.name, "--bit", packed.name]
        else:
            tool, args = "icepack", [placed.name, packed.name]
        log = self.folder / "pack.log"
        run_jobs(self.console, [Job(f"packing {output.name}", tool, args, self.folder, log)])
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(packed, output)
