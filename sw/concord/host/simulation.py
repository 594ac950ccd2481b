"""The compiled RTL behind any link."""

from __future__ import annotations

from pathlib import Path

from concord.host.rtl import RtlTransport, find_library
from concord.host.spi_rtl import RtlSpi, SpiRtlTransport
from concord.host.timed_line import LineTimes
from concord.host.transport import Transport
from concord.host.usb_rtl import RtlLine, UsbRtlTransport
from concord.spec.config import NpuConfig
from concord.spec.links import LinkKind, LinkSpec


def simulated(config: NpuConfig, link: LinkSpec | None, library: Path | None, trace: Path | None) -> Transport:
    """The RTL of a configuration: behind a link with its times, or, without one, with bytes that take no time.

    Of a serial port bytes are simulated, of USB and SPI every bit.

    Parameters
    ----------
    config : NpuConfig
        Says the clock.
    link : LinkSpec or None
        What carries the bytes.
    library : Path or None
        Compiled simulation; found, or built, if left out.
    trace : Path or None
        File for waveforms.
    """
    kind = LinkKind.UART if link is None else link.kind
    library = library or find_library(config, trace=trace is not None, link=kind)
    if link is not None and link.kind is LinkKind.USB:
        return UsbRtlTransport(RtlLine(library, config.clock_hz, trace=trace), link)
    if link is not None and link.kind is LinkKind.SPI:
        return SpiRtlTransport(RtlSpi(library, trace=trace), config.clock_hz, link)
    transport = RtlTransport(library, trace=trace)
    if link is not None:
        times = LineTimes.of(link, config.clock_hz, link.adapter.latency)
        transport.pace(round(times.byte), round(times.reply))
    return transport
