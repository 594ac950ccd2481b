"""An SDRAM at its pins, with clocks, pads and wires between it and the controller.

Times are in nanoseconds. The model works edge by edge of the memory clock, which is that of the controller shifted by a
phase and by the delays of the pads. It checks every time of the part, and what its pins see at an edge that comes too
near to a change is anything.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import numpy as np

from concord_rtl.dram.pins import ALL_BANKS, Command

#: Setup and hold of the inputs of the part, and of the registers in the pads; earliest end of data after the next edge.
SETUP, HOLD, PAD_SETUP, PAD_HOLD, DATA_HOLD = 1.5, 0.8, 0.3, 0.3, 2.5
#: From an edge to the first moment at which data are driven, and to the last one.
DRIVEN, RELEASED = 1.0, 5.4


class SdramFault(AssertionError):
    """A violation of the times or of the protocol of the part."""


@dataclass
class Delays:
    """Delays of clock, outputs and inputs between registers and the part, and from a clock edge to data (tAC)."""

    clock: float = 3.0
    out: float = 3.0
    back: float = 3.0
    access: float = 5.4


class _Bank:
    def __init__(self):
        self.row, self.opened, self.closed, self.written = None, -1e9, -1e9, -1e9


class SdramModel:
    """The part.

    Parameters
    ----------
    part : SdramPart
        Sizes and times, which are checked.
    period : float
        Of the clock.
    phases : int
        Steps of the memory clock in a period.
    delays : Delays
        Of pads and wires.
    seed : int
        Of the contents at power-up, and of what is seen at bad moments.
    """

    def __init__(self, part, period, phases, delays=None, seed=0):
        self.part, self.period, self.phases = part, period, phases
        self.delays = delays or Delays()
        self.rng = random.Random(seed)
        self.memory = np.random.default_rng(seed).integers(0, 1 << part.width, 1 << part.address_bits, dtype=np.uint16)
        self.phase, self.cycle = 0, 0
        #: Faults raise an error; the search makes some on its way.
        self.strict = False
        self.faults = []
        self.banks = [_Bank() for _ in range(1 << part.bank_bits)]
        self.mode, self.refreshes, self.refreshed, self.last_mode, self.first = None, 0, None, -1e9, None
        self._outputs = deque([None] * 4, maxlen=4)  # what the pads have driven, the latest last
        self._data, self._masked, self._driven = deque(), deque([0] * 3, maxlen=3), deque(maxlen=8)
        self._edges, self.refresh_gap = 0, 0.0

    def step(self, earlier=0):
        """Make the memory clock one phase later, or earlier."""
        self.phase += -1 if earlier else 1

    def tick(self, pins):
        """What the registers of the pads take at the next edge, from what the controller has in front of them now.

        Parameters
        ----------
        pins : tuple
            ``command, bank, addr, dq_o, oe, mask``.
        """
        self.cycle += 1
        now = self.cycle * self.period
        self._outputs.append(pins)
        self._driven.append((now + self.delays.out, now + self.period + self.delays.out, pins[4]))
        shift = self.phase * self.period / self.phases + self.delays.clock
        # All edges of the memory before the next change at the pins are decided by what is known now.
        while self._edges * self.period + shift < now + self.delays.out:
            self._edge(self._edges * self.period + shift)
            self._edges += 1
        return self._taken(now)

    def _taken(self, now):
        while self._data and self._data[0][1] < now - 4 * self.period:
            self._data.popleft()
        for begin, end, _, value in self._data:
            if begin + self.delays.back <= now - PAD_SETUP and now + PAD_HOLD <= end + self.delays.back:
                return value
        return self.rng.getrandbits(self.part.width)

    def _edge(self, time):
        """One rising edge of the clock of the part."""
        place = (time - self.delays.out) / self.period  # in cycles; the outputs of cycle k are there from k on
        whole = int(np.floor(place))
        since, until = (place - whole) * self.period, (whole + 1 - place) * self.period
        pins = self._at(whole)
        if since < SETUP or until < HOLD:
            other = self._at(whole - 1 if since < SETUP else whole + 1)
            if pins != other:
                self._fault(time, f"pins change {min(since, until):.1f} ns from the clock")
                pins = pins and other and tuple(self.rng.choice(pair) for pair in zip(pins, other, strict=True))
        if pins is None:
            return
        command, bank, addr, dq, oe, mask = pins
        self._masked.append(mask)
        if command == Command.NONE:
            return
        self._command(time, Command(command) if command in list(Command) else None, bank, addr, (dq, oe, mask))

    def _at(self, cycle):
        back = self.cycle - cycle
        return self._outputs[-1 - back] if 0 <= back < len(self._outputs) else None

    def _fault(self, time, text):
        self.faults.append(f"{time:.1f} ns: {text}")
        if self.strict:
            raise SdramFault(self.faults[-1])

    def _after(self, time, since, least, what):
        if time - since < least - 1e-6:
            self._fault(time, f"{what} after {time - since:.1f} ns, not {least:g}")

    def _command(self, time, command, number, addr, data):
        part, bank = self.part, self.banks[number]
        if self.first is None:
            self.first = time
            self._after(time, 0, part.power_up, "first command")
        if self.refreshed is not None:
            self._after(time, self.refreshed, part.rfc, "command after REFRESH")
        self._after(time, self.last_mode, part.mrd * self.period, "command after MODE")
        if command is None:
            self._fault(time, "no such command")
        elif command == Command.PRECHARGE:
            chosen = self.banks if addr >> ALL_BANKS & 1 else [bank]
            for each in chosen:
                if each.row is not None:
                    self._after(time, each.opened, part.ras, "PRECHARGE after ACTIVATE")
                    self._after(time, each.written, part.wr, "PRECHARGE after WRITE")
                each.row, each.closed = None, time
        elif command == Command.REFRESH:
            self._refresh(time)
        elif command == Command.MODE:
            self._all_closed(time, "MODE")
            if self.refreshes < 2:
                self._fault(time, "MODE after fewer than two refreshes")
            if addr != part.cas << 4:
                self._fault(time, f"mode {addr:#x}")
            self.mode, self.last_mode = addr, time
        elif command == Command.ACTIVATE:
            self._activate(time, bank, addr)
        else:
            self._access(time, command, bank, number, addr, data)

    def _all_closed(self, time, what):
        for bank in self.banks:
            if bank.row is not None:
                self._fault(time, f"{what} with an open row")
            self._after(time, bank.closed, self.part.rp, f"{what} after PRECHARGE")

    def _refresh(self, time):
        self._all_closed(time, "REFRESH")
        if self.refreshed is not None and self.strict:
            self.refresh_gap = max(self.refresh_gap, time - self.refreshed)
        self.check_refresh(time)
        self.refreshes, self.refreshed = self.refreshes + 1, time

    def check_refresh(self, time=None):
        """Fault if the last refresh is too long ago."""
        time = self.cycle * self.period if time is None else time
        if self.refreshed is not None and time - self.refreshed > self.part.refresh:
            self._fault(time, f"refresh after {time - self.refreshed:.0f} ns, not {self.part.refresh:.0f}")

    def _activate(self, time, bank, row):
        if self.mode is None:
            self._fault(time, "ACTIVATE before MODE")
        if bank.row is not None:
            self._fault(time, "ACTIVATE of an open bank")
        self._after(time, bank.closed, self.part.rp, "ACTIVATE after PRECHARGE")
        self._after(time, bank.opened, self.part.rc, "ACTIVATE after ACTIVATE")
        self._after(time, max(each.opened for each in self.banks), self.part.rrd, "ACTIVATE after that of another bank")
        bank.row, bank.opened = row, time

    def _access(self, time, command, bank, number, addr, data):
        part = self.part
        if bank.row is None:
            self._fault(time, f"{command.name} without an open row")
            return
        self._after(time, bank.opened, part.rcd, f"{command.name} after ACTIVATE")
        if addr >> part.column_bits:
            self._fault(time, f"{command.name} of column {addr:#x}")
            addr &= (1 << part.column_bits) - 1
        place = ((bank.row << part.bank_bits | number) << part.column_bits) + addr
        place &= len(self.memory) - 1
        if command == Command.READ:
            begin = time + (part.cas - 1) * self.period
            value = int(self.memory[place])
            if self._masked[-1]:
                self._fault(time, "READ with masked bytes")
            self._data.append((begin + self.delays.access, begin + self.period + DATA_HOLD, begin + DRIVEN, value))
            return
        dq, oe, mask = data
        if not oe:
            self._fault(time, "WRITE without data")
        for begin, _, driven, _ in self._data:
            end = begin - self.delays.access + self.period + RELEASED
            for first, last, on in self._driven:
                if on and first < end + self.delays.back and driven < last:
                    self._fault(time, "both sides drive the data")
        bank.written = time
        kept = sum(0xFF << 8 * k for k in range(part.width // 8) if mask >> k & 1)
        self.memory[place] = int(self.memory[place]) & kept | dq & ~kept & (1 << part.width) - 1
