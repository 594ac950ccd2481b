"""Cycles of copies from and to the external memory: its controller, command by command."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from concord.program.chains import MemoryCopy, VectorCopy
from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.dram import OPENED_AHEAD, SdramPart, SdramTiming


def copy_cycles(copy: MemoryCopy, config: NpuConfig) -> int:
    """Cycles from the execution of a copy to that of the next word."""
    first = copy.column % (1 << config.sdram.column_bits + config.sdram.bank_bits)  # rows do not matter
    begins = timing.copy_settle(config)
    written = config.vector_columns(copy.mem) if isinstance(copy, VectorCopy) and copy.out else 0
    last = last_access(config.sdram, config.sdram_timing, first, copy.columns(config), begins, written)
    if written:
        return timing.COPY_BEGIN + last + timing.COPY_SENT
    return timing.COPY_BEGIN + last + config.sdram_timing.read_latency + timing.COPY_END


@lru_cache(maxsize=1 << 12)
def last_access(part: SdramPart, times: SdramTiming, first: int, count: int, begins: int, written: int = 0) -> int:
    """Cycles from a refresh to the read or write of the last of ``count`` columns.

    The first one is asked for ``begins`` cycles later. Columns are read, unless so many of each word are ``written``.
    """
    controller = _Controller(part, times, first, count, begins, written)
    while controller.left:
        controller.tick()
    return controller.now - 1


@dataclass
class _Bank:
    """Open row of a bank, and cycles since its last ACTIVATE or PRECHARGE."""

    row: int = -1
    age: int = 1 << 30


class _RowState(NamedTuple):
    """State of a row: columns may be read; a command is wanted first, and may be given."""

    usable: bool
    wanted: bool


@dataclass
class _Controller:
    """State of :class:`concord_rtl.dram.controller.SdramController` while columns that follow each other are used.

    Nothing is open at first, and the next refresh is due an interval after the last one.

    Parameters
    ----------
    part, times : SdramPart, SdramTiming
        The memory.
    column : int
        First column.
    left : int
        Columns that are not used yet.
    now : int
        Cycle, from the last refresh on.
    word : int
        Columns of a word, if they are written; else 0.
    """

    part: SdramPart
    times: SdramTiming
    column: int
    left: int
    now: int
    word: int = 0
    banks: list[_Bank] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.banks = [_Bank() for _ in range(1 << self.part.bank_bits)]
        self.due = self.times.refresh + 1  # cycle from which on a refresh goes before everything
        #: Columns that are written: cycle from which on the next one is there, its number in its word, and the cycle of
        #: the one before.
        self.there, self.number, self.written = self.now + timing.VECTOR_COLUMN, 0, -self.times.wr
        #: A request is there; row or banks have changed in the cycle before; the state of the next row is known.
        self.held, self.changed, self.known_upcoming = False, False, True
        #: State of the row of the column and of the next row in the cycle before.
        self.current = self.upcoming = _RowState(False, False)

    @property
    def page(self) -> int:
        """Row and bank of the column."""
        return self.column >> self.part.column_bits

    @property
    def unhurried(self) -> int:
        """Columns to the one at which the next row is opened."""
        size = 1 << self.part.column_bits
        return size - OPENED_AHEAD - self.column % size

    def tick(self) -> None:
        """One cycle, or several of which each reads a column, or a whole refresh."""
        if self.now >= self.due:
            self._refresh()
        elif (count := self._columns_in_a_row()) > 1:
            self._pass(count - 1)
            self._look()
            self._use(count)
            self._pass(1)
        else:
            self._command()

    def _command(self) -> None:
        """A cycle with at most one command."""
        opened = turned = False
        current, upcoming = self.current, self.upcoming
        self._look()
        if self.held and not self.changed:
            if current.usable and self.unhurried <= 0 and self.known_upcoming and upcoming.wanted:
                self._open(self.page + 1)
                opened = True
            elif current.usable:
                page = self.page
                if not self.word or self.now >= self.there:
                    self._use(1)
                turned = self.page != page
            elif current.wanted:
                self._open(self.page)
                opened = True
        self.known_upcoming = not (turned or opened or self.changed)
        self.changed, self.held = turned or opened, True
        self._pass(1)

    def _columns_in_a_row(self) -> int:
        """Columns that are read from this cycle on, one in each, and after which nothing has changed."""
        if not (self.held and not self.changed and self.known_upcoming and self.current.usable):
            return 0
        count = min(self.unhurried, self.left, self.due - self.now)
        if not self.word:
            return count
        return min(count, self.word - self.number) if self.now >= self.there else 0

    def _use(self, count: int) -> None:
        """Columns of a word, the last of them in this cycle."""
        self.column, self.left = self.column + count, self.left - count
        if not self.word:
            return
        before = self.now if count > 1 else self.there  # the last one was there
        self.number, self.written = (self.number + count) % self.word, self.now
        self.there = max(self.now + 1, before + timing.VECTOR_COLUMN if self.number == 0 else 0)

    def _refresh(self) -> None:
        """A refresh: all banks are closed as soon as they may be."""
        open_banks = [bank for bank in self.banks if bank.row >= 0]
        waits = max((self.times.ras - 1 - bank.age for bank in open_banks), default=0)
        waits = max(waits, self.written + self.times.wr - 1 - self.now)
        closes = max(2, 1 + waits)
        over = closes + self.times.rp + self.times.rfc
        self.banks = [_Bank() for _ in self.banks]
        self.changed, self.known_upcoming = False, True
        self._look()
        self.now += over
        self.due += self.times.refresh

    def _look(self) -> None:
        self.current, self.upcoming = self._state(self.page), self._state(self.page + 1)

    def _state(self, page: int) -> _RowState:
        bank, row = self._bank(page), page >> self.part.bank_bits
        if bank.row < 0:
            return _RowState(False, bank.age >= self.times.rp - 1)
        there = bank.row == row
        return _RowState(there and bank.age >= self.times.rcd - 1, not there and bank.age >= self.times.ras - 1)

    def _bank(self, page: int) -> _Bank:
        return self.banks[page % len(self.banks)]

    def _open(self, page: int) -> None:
        """PRECHARGE of a bank with another open row, else ACTIVATE."""
        bank = self._bank(page)
        bank.row, bank.age = (-1 if bank.row >= 0 else page >> self.part.bank_bits), 0

    def _pass(self, cycles: int) -> None:
        self.now += cycles
        for bank in self.banks:
            bank.age += cycles
