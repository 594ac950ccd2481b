"""The tutorial: its files and commands work as they stand on the page, and print what it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def blocks(text):
    """Kind of every fenced block, its contents, and the file name in the line before it."""
    for name, kind, contents in re.findall(
        r"(?:^Save this as `([\w.]+)`:\n\n)?^```(\w*)\n(.*?)^```", text, re.M | re.S
    ):
        yield kind, contents, name


def without_percentages(text):
    """Lines in which all percentages are the same: training may end elsewhere on another processor."""
    return [" ".join(re.sub(r"\d[\d.]* %", "0 %", line).split()) for line in text.splitlines()]


@pytest.mark.slow
def test_the_tutorial(tmp_path):
    """Every file is written, every ``sh`` block is run, every block without a kind is what the command before printed.

    Blocks of the kind ``console`` set the machine up, take minutes, or need a board.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "COLUMNS": "160", "PYTHONWARNINGS": "error"}
    printed, commands = "", 0
    for kind, contents, name in blocks(PAGE.read_text()):
        if kind == "python":
            (tmp_path / name).write_text(contents)
        elif kind == "sh":
            result = subprocess.run(
                ["sh", "-ec", contents], cwd=tmp_path, env=environment, text=True, capture_output=True, check=False
            )
            printed, commands = result.stdout, commands + len(contents.splitlines())
            assert result.returncode == 0, result.stderr
        elif not kind:
            found = without_percentages(printed)
            assert [line for line in without_percentages(contents) if line not in found] == [], printed
    assert commands == 8
    assert re.search(r"^emulator = RTL: +True\nemulator = derived: +True\n", (PAGE.read_text()), re.M)


def test_other_words_and_numbers_are_noticed():
    assert without_percentages("accuracy: 97.75 %\n a  b") == without_percentages("accuracy: 9.1 %\na b")
    assert without_percentages("emulator = RTL: False") != without_percentages("emulator = RTL: True")
    assert without_percentages("457 samples/s") != without_percentages("162 samples/s")
