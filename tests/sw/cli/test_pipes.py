"""A command whose output nobody reads any more ends without a word."""

import os
import subprocess
import sys

import click
import pytest

from concord.cli.common import TerminalConsole, readable
from concord.cli.pipes import CLOSED_PIPE, ends_with_its_reader
from support.commands import run, two_products


def unread(*words, errors_too=False):
    """Status and messages of a command whose output is a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    errors = writer if errors_too else subprocess.PIPE
    done = subprocess.run(
        [sys.executable, "-m", "concord", *map(str, words)], stdout=writer, stderr=errors, check=False
    )
    os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.slow
def test_commands_end_with_their_reader(tmp_path):
    model = two_products(tmp_path) / "net.onnx"
    assert run("compile", model, "--preset", "tiny")[0] == 0
    net = tmp_path / "net"
    for words in (["inspect", net], ["presets"], ["presets", "--json"], ["disasm", net], ["--help"], ["run", "--help"]):
        assert unread(*words) == (CLOSED_PIPE, b""), words
    assert unread("inspect", tmp_path / "nothing", errors_too=True)[0] in (1, 2, CLOSED_PIPE)


@pytest.fixture
def broken(monkeypatch):
    """The numbers of files without a reader, and those whose output is discarded."""
    numbers, discarded = set(), []
    monkeypatch.setattr("concord.cli.pipes._is_unread", lambda number: number in numbers)
    monkeypatch.setattr("concord.cli.pipes._discard", discarded.append)
    return numbers, discarded


def test_status_and_files(broken):
    broken[0].add(1)
    with pytest.raises(click.exceptions.Exit) as ended, ends_with_its_reader():
        raise BrokenPipeError
    assert ended.value.exit_code == 141 and broken[1] == [1]


def test_another_pipe_is_an_error(broken):
    with pytest.raises(click.ClickException, match="of a device"), ends_with_its_reader():
        raise BrokenPipeError("of a device")
    assert not broken[1]


def test_nothing_makes_a_message_of_it(monkeypatch):
    @readable
    def command():
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        command()

    class Closed:
        encoding = "utf-8"

        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        TerminalConsole(file=Closed()).print("text")


def test_a_pipe_without_a_reader():
    from concord.cli.pipes import _is_unread

    reader, writer = os.pipe()
    assert not _is_unread(writer)
    os.close(reader)
    assert _is_unread(writer)
    os.close(writer)
