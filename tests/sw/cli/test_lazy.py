"""Commands are imported when they are used: help comes at once, and says what the commands themselves say."""

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from concord.cli.lazy import LazyCommand
from concord.cli.main import SECTIONS, main

COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}
#: What takes long to import.
SLOW = {"numpy", "onnx", "rich", "scipy", "concord.compiler", "concord.graph", "concord.host", "concord.cli.common"}
MODULES = """
import json, sys
from concord.cli.main import main
try:
    main(["--help"])
except SystemExit:
    print(json.dumps(sorted(sys.modules)))
"""


def test_help_imports_nothing_that_takes_long():
    text = subprocess.run([sys.executable, "-c", MODULES], capture_output=True, text=True, check=True).stdout
    assert "Compile and run:" in text
    assert not SLOW & set(json.loads(text.splitlines()[-1]))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name):
    place = COMMANDS[name]
    command = place.load()
    assert isinstance(command, click.Command) and command.name == name
    assert place.summary == command.get_short_help_str(200) != ""
    assert not place.summary.endswith("...")


def test_every_command_is_in_a_section():
    runner = CliRunner()
    text = runner.invoke(main, ["--help"], terminal_width=80).output
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line.split()[0] in COMMANDS] == [
        *COMMANDS
    ]
    assert all(f"\n{title}:\n" in text for title in SECTIONS)
    assert max(map(len, text.splitlines())) <= 80


def test_a_command_that_does_not_exist_is_named():
    result = CliRunner().invoke(main, ["compil"])
    assert result.exit_code == 2 and "No such command 'compil'" in result.output


def test_a_description_that_is_missing_is_an_error():
    with pytest.raises(IndexError):
        _ = LazyCommand("main", "nothing").summary
