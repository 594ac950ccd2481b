"""How many samples per second a user gets, and whether link or computation limits them."""

from __future__ import annotations

from dataclasses import dataclass

from concord.host.traffic import traffic
from concord.image import Image
from concord.program.cycles import cycles
from concord.spec.boards import baud_of
from concord.spec.link import BYTE_BITS


@dataclass(frozen=True)
class Rates:
    """Times of one run of a program, one after the other: inputs over the link, computation, outputs over the link.

    Parameters
    ----------
    sent, received : int
        Bytes to the device and from it, framing included (:class:`concord.host.traffic.Traffic`).
    requests : int
        Requests, each of which waits for its reply.
    cycles : int
        Of the computation.
    measured : bool
        Whether they come from the RTL; else they are estimated (:func:`concord.program.cycles`).
    batch : int
        Samples of a run.
    clock_hz, baud : int
        Of the board: cycles, and bits on the line, per second.
    """

    sent: int
    received: int
    requests: int
    cycles: int
    measured: bool
    batch: int
    clock_hz: int
    baud: int

    @property
    def bytes_in(self) -> float:
        """Bytes to the device for a sample."""
        return self.sent / self.batch

    @property
    def bytes_out(self) -> float:
        """Bytes from the device for a sample."""
        return self.received / self.batch

    @property
    def link_seconds(self) -> float:
        """Time of a sample on the link, without the latency of the host's drivers."""
        return (self.sent + self.received) * BYTE_BITS / self.baud / self.batch

    @property
    def compute_seconds(self) -> float:
        """Time of computation for a sample."""
        return self.cycles / self.clock_hz / self.batch

    @property
    def per_second(self) -> float:
        """Samples per second."""
        return 1 / (self.link_seconds + self.compute_seconds)

    @property
    def limit(self) -> str:
        """What takes longer: ``"link"`` or ``"computation"``."""
        return "link" if self.link_seconds > self.compute_seconds else "computation"

    @property
    def at(self) -> str:
        """Clock and bit rate in words."""
        return f"at {self.clock_hz / 1e6:g} MHz and {self.baud / 1e6:g} Mbit/s"

    @property
    def text(self) -> str:
        """Everything in one line."""
        return (
            f"{self.at}, a sample takes {self.bytes_in:,.0f} bytes in and {self.bytes_out:,.0f} out, "
            f"{1e3 * self.link_seconds:.3g} ms on the link and {1e3 * self.compute_seconds:.3g} ms to compute: "
            f"{self.per_second:,.{self.per_second < 100:d}f} samples/s, limited by the {self.limit}"
        )


def rates(image: Image, batch: int = 1, measured: int | None = None) -> Rates:
    """Rates of an image on the board that its configuration is for.

    Parameters
    ----------
    image : Image
        Its program must end with ``halt``.
    batch : int
        Samples of a run.
    measured : int or None
        Cycles of a run, if they are known.
    """
    config, line = image.config, traffic(image)
    count = measured
    if count is None:
        count = sum(cycles(image.program, config, phase.pc) for phase in image.schedule())
    return Rates(
        line.sent,
        line.received,
        line.requests,
        count,
        measured is not None,
        batch,
        config.clock_hz,
        baud_of(config.name),
    )
