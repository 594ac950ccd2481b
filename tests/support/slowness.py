"""Computing time of tests: those that take long without being marked ``slow`` are named at the end of a run."""

from __future__ import annotations

import os

import pytest

#: Seconds of computing, of the process and those that it has waited for.
LIMIT = 3.0
_NAME = "computing"


def computing() -> float:
    """Processor seconds so far; unlike the time on the clock they hardly depend on what else runs."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    """Note what a test without the mark takes."""
    begin = computing()
    try:
        return (yield)
    finally:
        if item.get_closest_marker("slow") is None:
            item.user_properties.append((_NAME, computing() - begin))


def unmarked(reports, limit=LIMIT):
    """Seconds by test of those that take longer than ``limit`` and are not marked, longest first."""
    found = {r.nodeid: dict(r.user_properties).get(_NAME, 0.0) for r in reports if r.when == "teardown"}
    return {name: found[name] for name in sorted(found, key=found.__getitem__, reverse=True) if found[name] > limit}


def pytest_addoption(parser):
    """A limit for who looks for tests to mark."""
    text = "name tests that compute longer and are not marked slow (default: %(default)s)"
    parser.addoption("--slow-limit", type=float, default=LIMIT, metavar="SECONDS", help=text)


def pytest_terminal_summary(terminalreporter, config):
    """Name tests that should be marked."""
    reports = [r for r in terminalreporter.getreports("") + terminalreporter.getreports("passed") if hasattr(r, "when")]
    limit = config.getoption("--slow-limit")
    if found := unmarked(reports, limit):
        terminalreporter.section(f"longer than {limit:g} s of computing, and not marked slow")
        for name, seconds in found.items():
            terminalreporter.line(f"{seconds:6.1f} s  {name}")
