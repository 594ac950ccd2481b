"""External memory: parts of synchronous DRAM (SDR SDRAM), and their times in cycles of a clock.

A part states its times in nanoseconds. The controller counts cycles. The numbers of cycles are right for every clock up
to the fastest one, and the interval of refreshes for every clock from the slowest one on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil


@dataclass(frozen=True, kw_only=True)
class SdramPart:
    """Sizes and times of a part.

    Parameters
    ----------
    name : str
        Of the part.
    bank_bits, row_bits, column_bits : int
        Bits of the number of a bank, of a row of it, and of a column of that.
    width : int
        Bits of a column.
    cas : int
        Cycles from a read to its data (CL), with clocks up to ``cas_hz``.
    cas_hz : float
        Fastest clock for it.
    rcd, rp, ras, rc, rrd, rfc, wr : float
        Nanoseconds: row to column, precharge, least time that a row is open, row to row of a bank, row to row of two
        banks, refresh, and last data written to precharge.
    mrd : int
        Cycles from the mode register to the next command.
    refresh : float
        Greatest mean of the nanoseconds from refresh to refresh.
    power_up : float
        Nanoseconds with a stable clock in front of the first command.
    """

    name: str
    bank_bits: int
    row_bits: int
    column_bits: int
    width: int
    cas: int
    cas_hz: float
    rcd: float
    rp: float
    ras: float
    rc: float
    rrd: float
    rfc: float
    wr: float
    mrd: int
    refresh: float
    power_up: float

    @property
    def address_bits(self) -> int:
        """Bits of the address of a column of any bank."""
        return self.bank_bits + self.row_bits + self.column_bits

    @property
    def nbytes(self) -> int:
        """Bytes of the part."""
        return (self.width << self.address_bits) // 8

    @property
    def columns(self) -> int:
        """Columns of the part."""
        return 1 << self.address_bits

    @property
    def refresh_cycles(self) -> tuple[int, int]:
        """Least and greatest interval of refreshes in cycles: four times the longest wait, and that of ``cas_hz``."""
        timing = self.timing(self.cas_hz, self.cas_hz)
        return 4 * timing.longest, timing.refresh

    def clocks(self, refresh: int) -> tuple[float, float]:
        """Slowest and fastest clock in hertz with which so many cycles from refresh to refresh are right."""
        longest = self.timing(self.cas_hz, self.cas_hz).longest
        return (refresh + longest) / self.refresh * 1e9, self.cas_hz

    def timing(self, slowest_hz: float, fastest_hz: float) -> SdramTiming:
        """The times in cycles of every clock of a range.

        Raises
        ------
        ValueError
            If the range is empty, the fastest clock is too fast for the part, or the slowest one leaves no time between
            two refreshes.
        """
        if not 0 < slowest_hz <= fastest_hz <= self.cas_hz:
            wanted = f"0 < slowest <= fastest <= {self.cas_hz / 1e6:g} MHz"
            raise ValueError(f"clocks must be {wanted}, not {slowest_hz / 1e6:g} and {fastest_hz / 1e6:g} MHz")

        def cycles(ns: float) -> int:
            return ceil(round(ns * fastest_hz / 1e9, 6))

        rcd, rp, rfc, wr, rrd = (cycles(ns) for ns in (self.rcd, self.rp, self.rfc, self.wr, self.rrd))
        ras = max(cycles(self.ras), cycles(self.rc) - rp, rcd)
        timing = SdramTiming(
            cas=self.cas,
            rcd=rcd,
            rp=rp,
            ras=ras,
            rrd=rrd,
            rfc=rfc,
            wr=wr,
            mrd=self.mrd,
            refresh=0,
            power_up=cycles(self.power_up),
        )
        refresh = int(self.refresh * slowest_hz / 1e9) - timing.longest
        if refresh < 4 * timing.longest:
            raise ValueError(f"slowest clock must leave time between refreshes, not be {slowest_hz / 1e6:g} MHz")
        return replace(timing, refresh=refresh)


@dataclass(frozen=True, kw_only=True)
class SdramTiming:
    """Times of a part in cycles of the clock, each at least 1.

    Parameters
    ----------
    cas : int
        From a read to its data.
    rcd, rp, ras, rrd, rfc, wr, mrd : int
        As of :class:`SdramPart`; two rows of a bank are opened at least ``ras + rp`` apart.
    refresh : int
        From refresh to refresh, when the memory is at rest.
    power_up : int
        In front of the first command.
    """

    cas: int
    rcd: int
    rp: int
    ras: int
    rrd: int
    rfc: int
    wr: int
    mrd: int
    refresh: int
    power_up: int

    @property
    def longest(self) -> int:
        """Cycles by which a refresh may come late: it waits for rows to be closed, and a run begins with one."""
        return self.ras + self.wr + self.rp + self.rfc + self.rcd

    @property
    def read_latency(self) -> int:
        """Cycles from a read that is accepted to its data, at the later of the two times at which they may come.

        Two registers on the way to the pins, one in the pads and one after it on the way back, and one cycle for clocks
        and wires.
        """
        return 2 + self.cas + 2


#: 32 MB as they are on every ULX3S: the slowest grade of the parts that its makers have used.
SDRAM_32MB = SdramPart(
    name="256 Mbit SDR SDRAM",
    bank_bits=2,
    row_bits=13,
    column_bits=9,
    width=16,
    cas=2,
    cas_hz=100e6,
    rcd=20.0,
    rp=20.0,
    ras=45.0,
    rc=67.0,
    rrd=15.0,
    rfc=67.0,
    wr=15.0,
    mrd=2,
    refresh=64e6 / 8192,
    power_up=200e3,
)

#: 16 of the 32 bits of the 8 MB on the boards Colorlight i5 and i9 (EM638325, M12L64322A), whose masks are tied off.
SDRAM_4MB = replace(SDRAM_32MB, name="half of a 64 Mbit SDR SDRAM", row_bits=11, column_bits=8, refresh=64e6 / 4096)

#: Last columns of a row during which the controller opens the next row.
OPENED_AHEAD = 16
#: Parts by the names that configurations have for them.
PARTS = {"sdram-32mb": SDRAM_32MB, "sdram-4mb": SDRAM_4MB}
#: Bits of a phase of the memory clock, and of the number of phases that work, as the register STATUS has them.
PHASE_BITS = 8
