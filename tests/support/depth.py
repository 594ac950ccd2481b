"""How deep a run of the tests goes: ``--depth check`` and ``--depth test`` leave out what its mark says is for later.

A test without a mark belongs to ``check``, one marked ``slow`` to ``test``, one marked ``deep`` to ``deep``. Without
the option every test runs, and so does a test that the command line names. Tests of properties run in ``deep``, too,
with other examples (:mod:`support.property_tests`).
"""

from __future__ import annotations

#: What runs at each depth: depths of the tests.
RUNS = {"check": {"check"}, "test": {"check", "test"}, "deep": {"deep"}}


def depth_of(item) -> str:
    """The depth of a test, by its marks; ``deep`` where it has both."""
    if item.get_closest_marker("deep"):
        return "deep"
    return "test" if item.get_closest_marker("slow") else "check"


def _is_named(test: str, words: list[str]) -> bool:
    return any(test == word or test.startswith((f"{word}[", f"{word}::")) for word in words)


def pytest_addoption(parser):
    """The depth of a run."""
    text = "check: tests without a mark; test: those marked slow, too; deep: those marked deep alone (default: all)"
    parser.addoption("--depth", choices=sorted(RUNS), help=text)


def pytest_collection_modifyitems(config, items):
    """Leave out what is not for this depth, unless it is named."""
    depth = config.getoption("--depth")
    if depth is None:
        return
    named = [word for word in config.args if "::" in word]
    kept, left_out = [], []
    for item in items:
        random = depth == "deep" and getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        runs = random or depth_of(item) in RUNS[depth] or _is_named(item.nodeid, named)
        (kept if runs else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
