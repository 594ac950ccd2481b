"""``--computing SECONDS``: no test starts in a run that has computed for so long; those that are left are left out."""

from __future__ import annotations

import pytest

from support.slowness import computing


def pytest_addoption(parser):
    """How much to run."""
    parser.addoption("--computing", type=float, metavar="SECONDS", help="start no test after computing for so long")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    """Tells pytest that a test has been seen to."""
    limit = item.config.getoption("--computing")
    return True if limit is not None and computing() > limit else None
