"""The model by itself: every time of a part at its limit, and a cycle below it."""

import pytest

from concord_rtl.dram.pins import ALL_BANKS, Command
from support.sdram_bench import PART, PHASES
from support.sdram_model import Delays, SdramFault, SdramModel

NONE = (Command.NONE, 0, 0, 0, 0, 0)
CLOSE, REFRESH = (Command.PRECHARGE, 0, 1 << ALL_BANKS, 0, 0, 0), (Command.REFRESH, 0, 0, 0, 0, 0)
START = [(60, CLOSE), (2, REFRESH), (7, REFRESH), (7, (Command.MODE, 0, PART.cas << 4, 0, 0, 0))]


def act(bank=0, row=3):
    return Command.ACTIVATE, bank, row, 0, 0, 0


def read(bank=0, column=5):
    return Command.READ, bank, column, 0, 0, 0


def write(bank=0, column=5):
    return Command.WRITE, bank, column, 0x1234, 1, 0


def close(bank=0):
    return Command.PRECHARGE, bank, 0, 0, 0, 0


def run(commands, period=10.0):
    """Give commands, each so many cycles after the one before; every fault is an error."""
    model = SdramModel(PART, period, PHASES, Delays(clock=5.0, out=0.0))
    model.strict = True
    for wait, pins in commands:
        for _ in range(wait - 1):
            model.tick(NONE)
        model.tick(pins)
    for _ in range(12):
        model.tick(NONE)
    return model


#: Commands after a start with the place of the wait that is the least one, and the fault with a cycle less.
LIMITS = {
    "power up": ([], 0, "first command"),
    "rp, refresh": ([], 1, "REFRESH after PRECHARGE"),
    "rfc": ([], 2, "command after REFRESH"),
    "rfc, mode": ([], 3, "command after REFRESH"),
    "mrd": ([(2, act())], 4, "command after MODE"),
    "rcd, read": ([(2, act()), (2, read())], 5, "READ after ACTIVATE"),
    "rcd, write": ([(2, act()), (2, write())], 5, "WRITE after ACTIVATE"),
    "ras": ([(2, act()), (5, close())], 5, "PRECHARGE after ACTIVATE"),
    "ras, all banks": ([(2, act(2)), (5, CLOSE)], 5, "PRECHARGE after ACTIVATE"),
    "rp": ([(2, act()), (6, close()), (2, act())], 6, "ACTIVATE after PRECHARGE"),
    "rc": ([(2, act()), (5, close()), (2, act())], 6, "ACTIVATE after"),
    "rrd": ([(2, act()), (2, act(1))], 5, "ACTIVATE after that of another bank"),
    "wr": ([(2, act()), (9, write()), (2, close())], 6, "PRECHARGE after WRITE"),
    "turn": ([(2, act()), (2, read()), (4, write())], 6, "both sides drive the data"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name):
    commands, place, fault = LIMITS[name]
    commands = [*START, *commands]
    least = 50 if name == "power up" else commands[place][0]
    commands[place] = (least, commands[place][1])
    run(commands)
    commands[place] = (least - 1, commands[place][1])
    with pytest.raises(SdramFault, match=fault):
        run(commands)


WRONG = {
    "two refreshes": ([*START[:2], START[3]], "MODE after fewer than two refreshes"),
    "mode": ([*START[:3], (7, (Command.MODE, 0, 0x30, 0, 0, 0))], "mode 0x30"),
    "before the mode": ([*START[:3], (7, act())], "ACTIVATE before MODE"),
    "open": ([*START, (2, act()), (9, act(row=4))], "ACTIVATE of an open bank"),
    "closed": ([*START, (2, act()), (2, read(1))], "READ without an open row"),
    "refresh": ([*START, (2, act()), (9, REFRESH)], "REFRESH with an open row"),
    "late refresh": ([*START, (783, CLOSE), (2, REFRESH)], "refresh after"),
    "column": ([*START, (2, act()), (2, read(column=1 << PART.column_bits))], "READ of column"),
    "no data": ([*START, (2, act()), (2, (Command.WRITE, 0, 0, 0, 0, 0))], "WRITE without data"),
    "no command": ([*START, (2, (0b011, 0, 0, 0, 0, 0))], "no such command"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_at_any_time(name):
    commands, fault = WRONG[name]
    with pytest.raises(SdramFault, match=fault):
        run(commands)


@pytest.mark.parametrize(("clock", "holds"), [(0.7, False), (1.6, True), (9.1, True), (9.3, False)])
def test_pins_that_change_near_the_clock(clock, holds):
    """Of a setup of 1.5 and a hold of 0.8 ns."""
    model = SdramModel(PART, 10.0, PHASES, Delays(clock=clock, out=0.0))
    for _ in range(60):
        model.tick(NONE)
    for _ in range(3):
        model.tick(CLOSE)
        model.tick(NONE)
    assert holds == (not any("pins change" in fault for fault in model.faults))
