"""Links between a board and the host: serial port, USB or SPI, and their rates."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from concord.spec.link import BAUD, BYTE_BITS


class LinkKind(StrEnum):
    """Kind of the link that a design has at its pins."""

    UART = "uart"  #: serial port of two wires, behind an adapter
    USB = "usb"  #: USB full speed, as a serial port of the class CDC-ACM
    SPI = "spi"  #: slave on a serial peripheral interface


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """Adapter that carries the bytes from the pins of a board to the host, and holds back a reply.

    Latencies are besides the time of the bytes on the line.

    Parameters
    ----------
    name : str
        The chip.
    latency : float
        Seconds of a reply, with the driver set to low latency.
    default_latency : float
        Seconds of a reply, with the driver as it is installed.
    """

    name: str
    latency: float
    default_latency: float


#: USB serial ports of FTDI, as the boards have them. They hold back a short reply until the latency timer of the driver
#: runs out: 16 ms as installed, 1 ms at the least. The timer runs while a request is on the line, which makes the wait
#: shorter; the frames of USB make it up to 1 ms longer. These are assumptions, to be measured on a board. Others have
#: measured 60 KiB/s with 1 KiB a request at 3 Mbit/s and 16 ms, and 220 to 250 KiB/s with 1 ms (illumos issue 14169):
#: that is 13 ms and 0.7 to 1.2 ms a request besides its bytes.
FTDI = Adapter(name="FTDI", latency=1e-3, default_latency=16e-3)

#: The host's own driver of serial ports over USB, which has no timer: what a reply waits for is the next frame, at the
#: most 1 ms. An assumption, to be measured on a board.
CDC_ACM = Adapter(name="CDC-ACM", latency=1e-3, default_latency=1e-3)


@dataclass(frozen=True, kw_only=True)
class LinkSpec:
    """A link that a board can have.

    Parameters
    ----------
    kind : LinkKind
        What the design has at its pins.
    text : str
        Its rate for people.
    bytes_per_second : float
        Bytes on the line, those of frames among them.
    adapter : Adapter
        What is between the pins and the host.
    baud : int or None
        Bits per second of a serial port; ``None`` where the rate is not a property of the design.
    controlled : bool
        Whether the line holds bytes back while the device takes none, so that no byte is ever dropped.
    shared : bool
        Whether both directions share the line.
    clock_hz : int or None
        Of a bus whose clock the host makes: the greatest that there are bits for in time.
    """

    kind: LinkKind
    text: str
    bytes_per_second: float
    adapter: Adapter
    baud: int | None = None
    controlled: bool = False
    shared: bool = False
    clock_hz: int | None = None

    @property
    def name(self) -> str:
        """Name of the kind, as the commands take it."""
        return self.kind.value

    def window(self, request_buffer: int) -> int:
        """Bytes of requests that may be on the way to a device with such a buffer; 0: one request."""
        return window_of(self.controlled, request_buffer)


#: Names of links, whatever the board.
LINKS = tuple(kind.value for kind in LinkKind)

#: Bytes of requests that may be on the way over a link that holds them back while the device takes none.
CONTROLLED_WINDOW = 8192


def window_of(controlled: bool, request_buffer: int) -> int:
    """Bytes of requests that may be on the way; 0: one request.

    Parameters
    ----------
    controlled : bool
        Whether the line holds bytes back, as :class:`LinkSpec`.
    request_buffer : int
        Bytes that the device takes while it answers (:class:`concord.spec.config.NpuConfig`).
    """
    return max(request_buffer, CONTROLLED_WINDOW) if controlled else request_buffer


def uart(baud: int = BAUD, adapter: Adapter = FTDI) -> LinkSpec:
    """A serial port with a bit rate."""
    text = f"{baud / 1e6:g} Mbit/s"
    return LinkSpec(kind=LinkKind.UART, text=text, bytes_per_second=baud / BYTE_BITS, adapter=adapter, baud=baud)


#: USB full speed, as it was measured with networks in the simulation: of the 1.2 MB/s that frames have room for,
#: questions for replies take a part, and stuffed bits one that depends on the data (docs/link.md).
USB = LinkSpec(
    kind=LinkKind.USB,
    text="1.05 MB/s",
    bytes_per_second=1.05e6,
    adapter=CDC_ACM,
    controlled=True,
    shared=True,
)


#: The driver of Linux for what is on a bus that has no driver of its own: what a call costs beside its bytes. An
#: assumption, to be measured on a board.
SPIDEV = Adapter(name="spidev", latency=50e-6, default_latency=50e-6)
#: Share of the clock that is left for bytes, after gaps between them and between calls. It is assumed, too.
_SPIDEV_SHARE = 0.64
#: Clocks of slaves whose bits are back within half a period: on ECP5, and on iCE40 with slower pads.
SPI_HZ, SLOW_SPI_HZ = 50_000_000, 25_000_000


def spi(clock_hz: int) -> LinkSpec:
    """A slave whose clock may have so many periods a second, and whose host is ``spidev``."""
    rate = _SPIDEV_SHARE * clock_hz / 8
    text = f"{rate / 1e6:.3g} MB/s"
    return LinkSpec(kind=LinkKind.SPI, text=text, bytes_per_second=rate, adapter=SPIDEV, clock_hz=clock_hz)
