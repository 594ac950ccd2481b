"""Computing time of tests, summed by family: a table, and an end with an error where a family is far above its budget.

Seconds are those of processors, divided by how much longer than elsewhere a loop of Python takes here: what else
runs on a machine makes its processors slower as well. A family above ``NAMED`` times its budget is named, one above
``FAILS`` times fails the run. What is built for a cache is a row of its own, as it is built once.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile

import pytest

from concord.utils.cache import BUILD_LOG
from support.depth import depth_of
from support.families import DEPTHS, load

#: Seconds of computing from which a test is named that has no mark, in ``make check``, and one that is not deep.
LONG = {"check": 1.0, "test": 20.0}
#: Times of a budget.
NAMED, FAILS = 1.3, 2.0
#: Seconds below which no family is worth a word: times of single tests vary.
SMALL = 5.0
#: Seconds of computing between two loops that tell how fast the machine is.
BETWEEN = 10.0
_NAME = "computing"


def computing() -> float:
    """Processor seconds so far, of the process and, in hundredths, of those that it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def loop() -> float:
    """Processor seconds of a fixed piece of Python."""
    begin, numbers = computing(), {}
    for k in range(100_000):
        numbers[k % 1009] = numbers.get(k * 31 % 1009, k) ^ k * 7
    return computing() - begin


class Clock:
    """What a process computes: for each test, for collection, and for builds of caches.

    Parameters
    ----------
    builds : Path
        File to which the processes of tests write what they build.
    """

    def __init__(self, builds: Path):
        self.builds = builds
        self.loops = [loop() for _ in range(3)]
        self.collecting = self.building = self._since = 0.0
        self._size = 0
        self._spent: dict[str, float] = {}

    def built(self) -> float:
        """Seconds of all builds so far."""
        if (size := self.builds.stat().st_size) != self._size:
            lines = self.builds.read_text(encoding="utf-8").splitlines()
            self.building, self._size = sum(json.loads(line)["seconds"] for line in lines), size
        return self.building

    def add(self, test: str, seconds: float) -> None:
        """Note what a phase of a test took; now and then, how fast the machine is."""
        self._spent[test] = self._spent.get(test, 0.0) + seconds
        self._since += seconds
        if self._since > BETWEEN:
            self._since = 0.0
            self.loops.append(loop())

    def take(self, test: str) -> float:
        """Seconds of all phases of a test that has ended."""
        return self._spent.pop(test)

    def figures(self) -> dict[str, float]:
        """What the process that writes the table needs."""
        return {"collecting": self.collecting, "building": self.building, "loop": median(self.loops)}


_CLOCK = pytest.StashKey[Clock]()
_WORKERS = pytest.StashKey[list]()


def pytest_configure(config):
    """Begin to measure."""
    with NamedTemporaryFile("w", prefix="concord-builds-", delete=False) as file:
        os.environ[BUILD_LOG] = file.name
    config.stash[_CLOCK] = Clock(Path(file.name))
    config.stash[_WORKERS] = []


def pytest_unconfigure(config):
    """Take the file away."""
    config.stash[_CLOCK].builds.unlink(missing_ok=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session):
    """Measure how long it takes to collect."""
    begin = computing()
    try:
        return (yield)
    finally:
        session.config.stash[_CLOCK].collecting = computing() - begin


def _measured(item):
    """Note what a phase of a test computes."""
    clock = item.config.stash[_CLOCK]
    begin, built = computing(), clock.built()
    try:
        return (yield)
    finally:
        clock.add(item.nodeid, max(0.0, computing() - begin - (clock.built() - built)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    """Fixtures."""
    return (yield from _measured(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    """The test."""
    return (yield from _measured(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    """The end of fixtures; the report of this phase carries the sum."""
    try:
        return (yield from _measured(item))
    finally:
        item.user_properties.append((_NAME, (depth_of(item), item.config.stash[_CLOCK].take(item.nodeid))))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    """A worker hands over what is not of a test; the last process fails the run where a family is far above."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput[_NAME] = config.stash[_CLOCK].figures()
        return
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if exitstatus == pytest.ExitCode.OK and reporter and table_of(reporter, config).failing:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Of a worker of pytest-xdist."""
    if output := getattr(node, "workeroutput", {}).get(_NAME):
        node.config.stash[_WORKERS].append(output)


class Table:
    """Seconds by family and depth, beside the budgets.

    Parameters
    ----------
    spent : dict
        Processor seconds by node id, with the depth of the test.
    speed : float
        How many times as long as on the machine of the budgets a loop takes.
    """

    def __init__(self, spent: dict[str, tuple[str, float]], speed: float, budgets=None):
        self.budgets = budgets or load()
        self.speed = speed
        self.cases: dict[tuple[str, str], int] = defaultdict(int)
        self.seconds: dict[tuple[str, str], float] = defaultdict(float)
        for test, (depth, seconds) in spent.items():
            try:
                family = self.budgets.of(test.partition("::")[0]).name
            except ValueError:  # of a project in a test; a test of its own sees that each file has a family
                continue
            self.cases[family, depth] += 1
            self.seconds[family, depth] += seconds / speed

    def above(self, times: float) -> list[tuple[str, str]]:
        """Families and depths above so many times their budget."""
        return [
            key
            for key, seconds in self.seconds.items()
            if seconds > max(SMALL, times * self.budgets.families[key[0]].seconds[key[1]])
        ]

    @property
    def failing(self) -> list[tuple[str, str]]:
        """Families and depths so far above that the run fails."""
        return self.above(FAILS)

    def lines(self):
        """The table, a line for each family with tests that ran."""
        depths = [depth for depth in DEPTHS if any(depth == key[1] for key in self.seconds)]
        yield f"{'family':16}{'cases':>7}" + "".join(f"{depth:>10}{'budget':>8}" for depth in depths)
        rows = {
            name: {depth: self.seconds.get((name, depth), 0.0) for depth in depths} for name in self.budgets.families
        }
        for name, row in rows.items():
            cases = sum(self.cases.get((name, depth), 0) for depth in depths)
            allowed = self.budgets.families[name].seconds
            if cases:
                parts = "".join(f"{row[depth]:>8.1f} s{allowed[depth]:>6.0f} s" for depth in depths)
                yield f"{name:16}{cases:>7}{parts}"
        total = {depth: sum(row[depth] for row in rows.values()) for depth in depths}
        allowed = {depth: sum(family.seconds[depth] for family in self.budgets.families.values()) for depth in depths}
        parts = "".join(f"{total[depth]:>8.1f} s{allowed[depth]:>6.0f} s" for depth in depths)
        yield f"{'all':16}{sum(self.cases.values()):>7}{parts}"

    def verdicts(self):
        """What is to be said of families above their budgets, a line each."""
        failing = self.failing
        for key in self.above(NAMED):
            name, depth = key
            seconds, allowed = self.seconds[key], self.budgets.families[name].seconds[depth]
            end = f"more than {FAILS:g} times: the run fails" if key in failing else f"more than {NAMED:g} times"
            yield f"{name} has {allowed:.0f} s for tests of the depth {depth} and took {seconds:.1f} s, {end}"


def spent_by(reporter) -> dict[str, tuple[str, float]]:
    """Depth and seconds of the tests that have ended, by node id."""
    reports = [
        report for reports in reporter.stats.values() for report in reports if hasattr(report, "user_properties")
    ]
    return {r.nodeid: dict(r.user_properties)[_NAME] for r in reports if _NAME in dict(r.user_properties)}


def table_of(reporter, config) -> Table:
    """The table of a run."""
    loops = [figures["loop"] for figures in config.stash[_WORKERS]] or [config.stash[_CLOCK].figures()["loop"]]
    budgets = load()
    return Table(spent_by(reporter), median(loops) / budgets.loop, budgets)


def pytest_addoption(parser):
    """A limit for who looks for tests to mark."""
    text = "name tests without a mark that compute longer (default: %(default)s)"
    parser.addoption("--slow-limit", type=float, default=LONG["check"], metavar="SECONDS", help=text)


def pytest_terminal_summary(terminalreporter, config):
    """The table of a whole run, and in any run what is too long."""
    table, spent = table_of(terminalreporter, config), spent_by(terminalreporter)
    limits = LONG | {"check": config.getoption("--slow-limit")}
    if config.getoption("--depth"):
        terminalreporter.section(
            f"processor seconds by family, of a machine {table.speed:.2f} times as fast as this one is now"
        )
        for line in table.lines():
            terminalreporter.line(line)
        everyone = config.stash[_WORKERS] or [config.stash[_CLOCK].figures()]
        collecting, building = ([figures[name] for figures in everyone] for name in ("collecting", "building"))
        shown = ", ".join(f"{seconds / table.speed:.1f} s" for seconds in collecting)
        terminalreporter.line(f"collection: {shown}; built for the cache: {sum(building) / table.speed:.1f} s")
    for depth, limit in limits.items():
        long = {test: seconds / table.speed for test, (its, seconds) in spent.items() if its == depth}
        if found := {test: long[test] for test in sorted(long, key=long.get, reverse=True) if long[test] > limit}:
            mark = {"check": "slow", "test": "deep"}[depth]
            terminalreporter.section(f"longer than {limit:g} s of computing, and not marked {mark}")
            for test, seconds in found.items():
                terminalreporter.line(f"{seconds:6.1f} s  {test}")
    if verdicts := list(table.verdicts()):
        terminalreporter.section("families above their budgets of tests/budgets.toml")
        for line in verdicts:
            terminalreporter.line(line)
