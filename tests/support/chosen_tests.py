"""A plugin with which ``deep.py`` lists tests, runs some of them, and learns what came of each while the others run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

#: Property of a report with the depth of a test and its processor seconds (:mod:`support.slowness`).
_COMPUTING = "computing"


class OutcomeLog:
    """Lines of JSON: a test that begins, and a test that has ended, with its result and its seconds.

    Parameters
    ----------
    path : Path
        Where lines are added.
    """

    def __init__(self, path: Path):
        self._path = path
        self._phases: list[pytest.TestReport] = []

    def _add(self, **line) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_runtest_logstart(self, nodeid):
        """A test begins."""
        self._phases = []
        self._add(test=nodeid)

    def pytest_runtest_logreport(self, report):
        """A phase of it has ended; the last one is the teardown."""
        self._phases.append(report)
        if report.when != "teardown":
            return
        failed = any(phase.failed for phase in self._phases)
        skipped = any(phase.skipped and not hasattr(phase, "wasxfail") for phase in self._phases)
        seconds = sum(phase.duration for phase in self._phases)
        _, computing = dict(report.user_properties).get(_COMPUTING, ("", seconds))
        result = "failed" if failed else "skipped" if skipped else "passed"
        self._add(test=report.nodeid, result=result, seconds=round(seconds, 3), computing=round(computing, 3))


def pytest_addoption(parser):
    """Files of ``deep.py``."""
    group = parser.getgroup("chosen tests", "tests that tests/deep.py chooses")
    group.addoption("--ids-to", type=Path, metavar="FILE", help="write the ids of all tests that would run")
    group.addoption("--ids-from", type=Path, metavar="FILE", help="run the tests alone whose ids are in a file")
    group.addoption("--outcomes", type=Path, metavar="FILE", help="add what comes of each test to a file")


def pytest_configure(config):
    """Begin to note outcomes."""
    if path := config.getoption("--outcomes"):
        config.pluginmanager.register(OutcomeLog(path))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out what is not chosen."""
    if path := config.getoption("--ids-from"):
        chosen = set(json.loads(path.read_text(encoding="utf-8")))
        left_out = [item for item in items if item.nodeid not in chosen]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid in chosen]


def pytest_collection_finish(session):
    """Write what would run."""
    if path := session.config.getoption("--ids-to"):
        path.write_text(json.dumps([item.nodeid for item in session.items]), encoding="utf-8")
