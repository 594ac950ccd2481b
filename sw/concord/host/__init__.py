"""Driver of the NPU: one API for the emulator, the compiled RTL and a serial port.

::

    with concord.host.connect("rtl", config) as device:
        device.load(image)
        outputs = device.run(inputs)

The same lines run on all three; only the target differs.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from concord.host.device import Device
from concord.host.errors import DeviceError, LinkError, MismatchError, RunTimeout, TrapError
from concord.host.link import Link
from concord.host.linked import LinkedDevice
from concord.host.spi import is_spi, open_spi
from concord.host.transport import Transport
from concord.spec.boards import BOARD_SPECS, link_of
from concord.spec.config import NpuConfig
from concord.spec.links import LinkKind, LinkSpec, uart

#: Targets beside serial ports.
TARGETS = ("emulator", "rtl")
#: Seconds to wait for a reply at a bit rate that may be the wrong one.
_PATIENCE = 0.2


def connect(
    target: str,
    config: NpuConfig | None = None,
    *,
    link: str | None = None,
    baud: int | None = None,
    library: Path | None = None,
    trace: Path | None = None,
) -> Device:
    """Return a device.

    Parameters
    ----------
    target : str
        ``"emulator"``, ``"rtl"``, or the name of a serial port, or of a bus such as ``/dev/spidev0.0``.
    config : NpuConfig or None
        Configuration. May be left out for a serial port if the board has one of the named ones.
    link : str or None
        Name of a link of the board. Of ``"rtl"``, which then is simulated with the time that bytes take there; without
        it bytes take none. Of a port, the kind of link behind it; the board's first one if left out.
    baud : int or None
        Bit rate of a serial port; if left out, that of the board with the configuration, or, if that is not known, the
        first one of all boards at which somebody answers.
    library : Path or None
        Compiled simulation to use for ``"rtl"``; found, or built, if left out.
    trace : Path or None
        File for the waveforms of ``"rtl"``.

    Raises
    ------
    ValueError
        If it is no target.
    MismatchError
        If the device has another configuration.
    LinkError
        If it does not answer.
    """
    if target in TARGETS:
        if config is None:
            raise ValueError(f"config must be given for {target!r}")
        if target == "emulator":
            from concord.host.emulated import EmulatedDevice

            return EmulatedDevice(config)
        from concord.host.simulation import simulated

        board_link = None if link is None else link_of(config.board, link)
        return _over_link(simulated(config, board_link, library, trace), config, board_link)
    if not re.search(r"[/\\]|^COM\d+$", target, re.IGNORECASE):
        close = difflib.get_close_matches(target.lower(), TARGETS, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(
            f"target must be {', '.join(TARGETS)} or a serial port as in /dev/ttyUSB0, not {target!r}{hint}"
        )
    if link is not None and (link == LinkKind.SPI) != is_spi(target):
        raise ValueError(f"link must be one that can be behind {target}, not {link!r}")
    if is_spi(target):
        bus = link_of("" if config is None else config.board, LinkKind.SPI)
        return _over_link(open_spi(target, bus), config, bus)
    from concord.host.serial_port import SerialTransport

    if baud is not None:
        chosen = uart(baud)
    elif link is None and config is None:
        chosen = _answering(target)
    else:
        chosen = link_of("" if config is None else config.board, link)
    return _over_link(SerialTransport(target, chosen), config, chosen)


def _answering(port: str) -> LinkSpec:
    """The serial port of a board with the greatest bit rate at which somebody answers; the slowest if nobody does."""
    from concord.host.serial_port import SerialTransport

    links = [link for board in BOARD_SPECS.values() for link in board.links if link.kind is LinkKind.UART]
    *others, slowest = sorted(dict.fromkeys(links), key=lambda link: -link.bytes_per_second)
    for link in others:
        transport = SerialTransport(port, link)
        try:
            Link(transport, timeout=_PATIENCE, retries=1).synchronise()
        except LinkError:
            continue
        finally:
            transport.close()
        return link
    return slowest


def _over_link(transport: Transport, config: NpuConfig | None, carrier: LinkSpec | None) -> LinkedDevice:
    try:
        return LinkedDevice(Link(transport), config, carrier)
    except BaseException:
        transport.close()
        raise


__all__ = [
    "Device",
    "DeviceError",
    "Link",
    "LinkError",
    "LinkedDevice",
    "MismatchError",
    "RunTimeout",
    "TrapError",
    "connect",
]
