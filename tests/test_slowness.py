"""What tests compute is summed by family, and too much of it is named, or fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import families
from support.families import Budgets, Family, load
from support.slowness import SMALL, Clock, Table

BUDGETS = Budgets(
    0.02,
    {
        "first": Family("first", ("tests/a/*",), {"check": 10.0, "test": 100.0, "deep": 0.0}),
        "second": Family("second", ("tests/*",), {"check": 10.0, "test": 0.0, "deep": 0.0}),
    },
)


def table(speed=1.0, **seconds):
    return Table({f"tests/{name}.py::test_x": value for name, value in seconds.items()}, speed, BUDGETS)


def test_every_test_file_has_a_family():
    """And no family names files that are not there."""
    budgets = load()
    homes = {path: budgets.of(path).name for path in families.test_files()}
    assert set(homes.values()) == set(budgets.families)


def test_the_first_family_with_a_glob_has_a_file():
    assert [BUDGETS.of(path).name for path in ("tests/a/b/test_x.py", "tests/test_x.py")] == ["first", "second"]
    with pytest.raises(ValueError, match=r"sim/test_x\.py must belong to a family of budgets\.toml"):
        BUDGETS.of("sim/test_x.py")


def test_unknown_words_in_budgets_are_refused(tmp_path):
    path = tmp_path / "budgets.toml"
    path.write_text('loop = 1.0\n[family.one]\nfiles = ["tests/*"]\nslow = 3\n')
    with pytest.raises(ValueError, match="one must have files, check, test, deep, not slow"):
        load(path)


@pytest.mark.parametrize(
    "seconds, speed, named, fails",
    [(12.9, 1.0, False, False), (13.1, 1.0, True, False), (20.1, 1.0, True, True), (26.0, 2.0, False, False)],
)
def test_budgets_are_for_a_machine_of_one_speed(seconds, speed, named, fails):
    found = table(speed, b=("check", seconds))
    assert bool(list(found.verdicts())) == named and bool(found.failing) == fails


def test_depths_have_budgets_of_their_own():
    found = Table(
        {
            "tests/a/test_x.py::test_1": ("check", 12.0),
            "tests/a/test_x.py::test_2": ("test", 300.0),
            "tests/test_y.py::test_1": ("test", SMALL - 0.1),
            "elsewhere/test_z.py::test_1": ("test", 999.0),
        },
        1.0,
        BUDGETS,
    )
    assert found.failing == [("first", "test")]
    (line,) = found.verdicts()
    assert line == "first has 100 s for tests of the depth test and took 300.0 s, more than 2 times: the run fails"
    *_, first, second, total = (line.split() for line in found.lines())
    assert first == "first 2 12.0 s 10 s 300.0 s 100 s".split()
    assert second == "second 1 0.0 s 10 s 4.9 s 0 s".split()
    assert total == "all 3 12.0 s 20 s 304.9 s 100 s".split()


def test_builds_are_told_apart(tmp_path):
    log = tmp_path / "log"
    log.write_text("")
    clock = Clock(log)
    assert clock.built() == 0.0
    log.write_text('{"seconds": 2.5}\n{"seconds": 1}\n')
    assert clock.built() == clock.figures()["building"] == 3.5


TESTS = """
import json, os, time
import pytest

def busy(seconds=0.3):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def test_long():
    busy()

@pytest.mark.slow
def test_long_and_marked():
    busy()

def test_waits():
    time.sleep(0.3)

def test_builds():
    busy()
    with open(os.environ["CONCORD_CACHE_LOG"], "a") as log:
        log.write(json.dumps({"seconds": 0.3}) + chr(10))
"""
CONFTEST = """
from pathlib import Path
from support import families, slowness

families.BUDGETS = Path(__file__).with_name("budgets.toml")
slowness.SMALL = 0.0
pytest_plugins = ["support.depth", "support.slowness"]
"""
SOME = '[family.some]\nfiles = ["test_some.py"]\ncheck = 0.02\ntest = 100.0\n'


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_family_far_above_its_budget_fails_the_run(tmp_path, workers):
    """With and without workers of their own; waiting is no computing, and what is built is not of a test."""
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: takes long\n    deep: takes longer\n")
    command = [sys.executable, "-m", "pytest", "--slow-limit", "0.03", "--depth", "test", "-n", str(workers)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}

    def run(loop):
        (tmp_path / "budgets.toml").write_text(f"loop = {loop}\n{SOME}")
        return subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)

    done = run(0.02)
    assert done.returncode == 1, done.stdout + done.stderr
    table, _, rest = done.stdout.partition("processor seconds by family")[2].partition("and not marked slow")
    assert "\nsome                  4" in table and "built for the cache: 0." in table
    long, _, verdict = rest.partition("families above their budgets")
    assert "s  test_some.py::test_long\n" in long
    assert not any(name in long for name in ("marked", "waits", "test_builds"))
    assert "some has 0 s for tests of the depth check" in verdict and "the run fails" in verdict
    done = run(0.0001)
    assert done.returncode == 0, done.stdout + done.stderr
