"""The compiled RTL as the slave of a bus."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from pathlib import Path

from concord.host.compiled_design import SIZE, TEXT, UINT64, CompiledDesign, Function
from concord.host.rtl import CYCLES_PER_SECOND
from concord.host.spi import CALL_BYTES, SpiTransport
from concord.host.timed_line import LineTimes
from concord.spec.links import LinkSpec

#: Parts of a cycle that times of the bus are rounded to.
_PARTS = 1000


_FUNCTIONS: tuple[Function, ...] = (
    ("reset", None, ()),
    ("dropped", UINT64, ()),
    ("spi_idle", None, (UINT64,)),
    ("spi_pace", None, (UINT64, UINT64, UINT64)),
    ("spi_transfer", None, (TEXT, TEXT, SIZE)),
)


class RtlSpi(CompiledDesign):
    """A bus with the simulation on it; see :class:`concord.host.spi.SpiBus`. Every edge of the clock is simulated.

    Parameters
    ----------
    library : Path
        Made by ``concord_rtl.flow.verilate`` with the link ``spi``.
    trace : Path or None
        VCD file for the waveforms; the library must have been built for it.
    """

    def __init__(self, library: Path, *, trace: Path | None = None):
        super().__init__(library, _FUNCTIONS, trace)
        self.call("reset")
        self._call_cycles = 0

    def pace(self, clock_cycles: float, byte_cycles: float = 0.0, call_cycles: float = 0.0) -> None:
        """Let bytes take their time from now on, in cycles of the NPU.

        Parameters
        ----------
        clock_cycles : float
            Of a period of the clock of the bus.
        byte_cycles : float
            Of a byte, with a gap after its eight periods.
        call_cycles : float
            Besides, of a call.
        """
        period = Fraction(clock_cycles).limit_denominator(_PARTS)
        gap = Fraction(max(0.0, byte_cycles - 8 * clock_cycles)).limit_denominator(_PARTS)
        parts = lcm(period.denominator, gap.denominator)
        self.call("spi_pace", int(period * parts), int(gap * parts), parts)
        self._call_cycles = round(call_cycles)

    @property
    def dropped(self) -> int:
        """Bytes that the design had no place for."""
        return int(self.call("dropped"))

    def xfer2(self, values: Sequence[int], /) -> list[int]:
        """Clock bytes in one transfer, and return as many."""
        if len(values) > CALL_BYTES:
            raise OverflowError(f"values must be at most {CALL_BYTES}, not {len(values)}")
        self.call("spi_idle", self._call_cycles)
        came = ctypes.create_string_buffer(len(values))
        self.call("spi_transfer", bytes(values), came, len(values))
        self.check_memory()
        return list(came.raw)

    def time(self) -> float:
        """Seconds simulated so far, as timeouts have them."""
        return self.cycles / CYCLES_PER_SECOND

    def sleep(self, seconds: float) -> None:
        """Simulate without a transfer."""
        self.call("spi_idle", round(seconds * CYCLES_PER_SECOND))


class SpiRtlTransport(SpiTransport):
    """Bytes over the bus to the simulation, in simulated time.

    A call of as many bytes as there may be takes as long as they take at the rate of the link.

    Parameters
    ----------
    bus : RtlSpi
        The bus.
    clock_hz : float
        Clock of the NPU.
    link : LinkSpec
        Says the clock of the bus, its rate, and how long a call takes.
    """

    def __init__(self, bus: RtlSpi, clock_hz: float, link: LinkSpec):
        times = LineTimes.of(link, clock_hz, link.adapter.latency)
        wait_cycles = CYCLES_PER_SECOND // 4
        super().__init__(
            bus,
            clock_hz / link.bytes_per_second / CYCLES_PER_SECOND,
            wait_cycles=wait_cycles,
            clock=bus.time,
            sleep=bus.sleep,
            most_rest=times.rest / CYCLES_PER_SECOND,
        )
        self.rtl = bus
        bus.pace(clock_hz / (link.clock_hz or clock_hz), times.byte, times.call)

    @property
    def cycles(self) -> int:
        """Clock cycles simulated so far."""
        return self.rtl.cycles
