"""Faults of every kind that the fuzzer must call a finding, and ends that it must not."""

from __future__ import annotations

import os
import signal
import time

import click

from support.fuzz.ends import End, of_command, of_message


def _raise() -> End:
    return of_command(1, "", KeyError("layer"))


def _hang() -> End:
    while True:
        pass


def _memory() -> End:
    return End("result", str(len(bytearray(1 << 40))))


def _signal() -> End:
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(10)
    return End("result")


#: In the order of their numbers: what happens, and the kind of end it must be.
FAULTS = (
    (_raise, "finding"), (_memory, "finding"), (_signal, "finding"),
    (lambda: of_message("Error: 'NoneType' object has no attribute 'shape'\n"), "finding"),
    (lambda: of_message("Error: cannot reshape array of size 8 into shape (10,8)\n"), "finding"),
    (lambda: of_message(""), "finding"), (lambda: of_message("Error: a\x1b[31m\n"), "finding"),
    (lambda: of_message("Error: " + "x" * 10000), "finding"), (lambda: of_command(-11, "", None), "finding"),
    (lambda: of_command(1, "Error: x.npz must be an npz file, and is none\n", SystemExit(1)), "message"),
    (lambda: of_command(0, "", None), "result"),
    (lambda: of_command(1, "Error: bad", click.ClickException("bad")), "finding"), (_hang, "finding"),
)  # fmt: skip


def case(number: int) -> End:
    """One of them."""
    return FAULTS[number % len(FAULTS)][0]()
