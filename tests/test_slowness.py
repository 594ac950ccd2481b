"""Tests that take long are named unless they are marked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import time
import pytest

def busy():
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass

def test_long():
    busy()

@pytest.mark.slow
def test_long_and_marked():
    busy()

def test_waits():
    time.sleep(0.3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_long_tests_are_named(tmp_path, workers):
    """With and without workers of their own; waiting is no computing."""
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["support.slowness"]\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: takes long\n")
    command = [sys.executable, "-m", "pytest", "--slow-limit", "0.2", "-n", str(workers)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, summary = done.stdout.partition("and not marked slow")
    assert "s  test_some.py::test_long\n" in summary
    assert "marked" not in summary and "waits" not in summary
