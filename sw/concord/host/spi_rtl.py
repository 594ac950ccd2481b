"""The compiled RTL as the slave of a bus."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from pathlib import Path

from concord.host.errors import DeviceError
from concord.host.rtl import CYCLES_PER_SECOND
from concord.host.spi import CALL_BYTES, SpiTransport
from concord.spec.links import LinkSpec

#: Parts of a cycle that times of the bus are rounded to.
_PARTS = 1000


class RtlSpi:
    """A bus with the simulation on it; see :class:`concord.host.spi.SpiBus`. Every edge of the clock is simulated.

    Parameters
    ----------
    library : Path
        Made by ``concord_rtl.flow.verilate`` with the link ``spi``.
    trace : Path or None
        VCD file for the waveforms; the library must have been built for it.
    """

    def __init__(self, library: Path, *, trace: Path | None = None):
        self._lib = _declare(ctypes.CDLL(str(library)))
        self._handle: int | None = self._lib.concord_create()
        if trace is not None and self._lib.concord_trace(self._handle, str(trace).encode()):
            raise ValueError(f"library must have been built for waveforms, not {library}")
        self._lib.concord_reset(self._handle)
        self._call_cycles = 0

    def pace(self, clock_cycles: float, byte_cycles: float = 0.0, call_cycles: float = 0.0) -> None:
        """From now on bytes take their time, in cycles of the NPU.

        Parameters
        ----------
        clock_cycles : float
            Of a period of the clock of the bus.
        byte_cycles : float
            Of a byte, with a gap behind its eight periods.
        call_cycles : float
            Besides, of a call.
        """
        period = Fraction(clock_cycles).limit_denominator(_PARTS)
        gap = Fraction(max(0.0, byte_cycles - 8 * clock_cycles)).limit_denominator(_PARTS)
        parts = lcm(period.denominator, gap.denominator)
        self._lib.concord_spi_pace(self._open(), int(period * parts), int(gap * parts), parts)
        self._call_cycles = round(call_cycles)

    @property
    def dropped(self) -> int:
        """Bytes that the design had no place for."""
        return int(self._lib.concord_dropped(self._open()))

    @property
    def cycles(self) -> int:
        """Clock cycles simulated so far."""
        return int(self._lib.concord_cycles(self._open()))

    def xfer2(self, values: Sequence[int], /) -> list[int]:
        """Clock bytes in one transfer, and return as many."""
        if len(values) > CALL_BYTES:
            raise OverflowError(f"values must be at most {CALL_BYTES}, not {len(values)}")
        self._lib.concord_spi_idle(self._open(), self._call_cycles)
        came = ctypes.create_string_buffer(len(values))
        self._lib.concord_spi_transfer(self._open(), bytes(values), came, len(values))
        return list(came.raw)

    def time(self) -> float:
        """Seconds simulated so far, as timeouts have them."""
        return self.cycles / CYCLES_PER_SECOND

    def sleep(self, seconds: float) -> None:
        """Simulate without a transfer."""
        self._lib.concord_spi_idle(self._open(), round(seconds * CYCLES_PER_SECOND))

    def close(self) -> None:
        """End the simulation."""
        if self._handle is not None:
            self._lib.concord_destroy(self._handle)
            self._handle = None

    def _open(self) -> int:
        if self._handle is None:
            raise DeviceError("the simulation was closed")
        return self._handle


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
        byte_cycles = clock_hz / link.bytes_per_second
        wait_cycles = CYCLES_PER_SECOND // 4
        super().__init__(bus, byte_cycles / CYCLES_PER_SECOND, wait_cycles=wait_cycles, clock=bus.time, sleep=bus.sleep)
        self.rtl = bus
        call_cycles = clock_hz * link.adapter.latency
        bus.pace(clock_hz / (link.clock_hz or clock_hz), byte_cycles - call_cycles / CALL_BYTES, call_cycles)

    @property
    def cycles(self) -> int:
        """Clock cycles simulated so far."""
        return self.rtl.cycles


def _declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    """Types of the C functions."""
    handle, size, cycles, data = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_char_p
    for name, result, arguments in (
        ("create", handle, []),
        ("destroy", None, [handle]),
        ("reset", None, [handle]),
        ("cycles", cycles, [handle]),
        ("dropped", cycles, [handle]),
        ("trace", ctypes.c_int, [handle, data]),
        ("spi_idle", None, [handle, cycles]),
        ("spi_pace", None, [handle, cycles, cycles, cycles]),
        ("spi_transfer", None, [handle, data, data, size]),
    ):
        function = getattr(lib, f"concord_{name}")
        function.restype, function.argtypes = result, arguments
    return lib
