"""Marks and ``--depth`` decide which tests run, and a test that is named runs whatever its mark."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.depth import pytest_collection_modifyitems

TESTS = """
import pytest

def test_plain(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.deep
@pytest.mark.parametrize("x", [1, 2])
def test_deep(x): pass

@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.deep)])
@pytest.mark.slow
def test_both(x): pass
"""
PLAIN = {"test_plain", "test_property"}
SLOW = {"test_slow", "test_both[1]"}
DEEP = {"test_deep[1]", "test_deep[2]", "test_both[2]"}
MARKS = {name: ["slow"] for name in SLOW} | {name: ["deep"] for name in DEEP} | {"test_both[2]": ["slow", "deep"]}


def item(name):
    marks = {mark: mark for mark in MARKS.get(name, ())}
    own = {"obj": property_test} if name == "test_property" else {}
    return SimpleNamespace(nodeid=f"tests/test_some.py::{name}", get_closest_marker=marks.get, **own)


@given(st.integers())
def property_test(x):
    pass


@pytest.mark.parametrize(
    ("depth", "words", "names"),
    [
        ("check", ["tests"], PLAIN),
        ("test", ["tests"], PLAIN | SLOW),
        ("deep", ["tests"], DEEP | {"test_property"}),
        (None, ["tests"], PLAIN | SLOW | DEEP),
        ("test", ["tests/test_some.py"], PLAIN | SLOW),
        ("check", ["tests/test_some.py::test_deep"], PLAIN | {"test_deep[1]", "test_deep[2]"}),
        ("check", ["tests/test_some.py::test_both[2]"], PLAIN | {"test_both[2]"}),
        ("check", ["tests/test_some.py::test_bo"], PLAIN),
    ],
)
def test_what_is_left_out(depth, words, names):
    """The runner is told of what is left out, so that it counts it."""
    items = [item(name) for name in sorted(PLAIN | SLOW | DEEP)]
    everything, left_out = list(items), []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: depth, args=words, hook=hook), items)
    assert {one.nodeid.partition("::")[2] for one in items} == names
    assert {id(one) for one in [*items, *left_out]} == {id(one) for one in everything}
    assert len(items) + len(left_out) == len(everything)


@pytest.mark.slow
def test_a_run_of_the_deep_ones(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["support.depth"]\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n slow: later\n deep: at night\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--depth", "deep"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)
    assert "3 passed, 3 deselected" in done.stdout, done.stdout + done.stderr
    assert all(f"::{name} PASSED" in done.stdout for name in DEEP)
