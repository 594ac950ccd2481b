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
from concord.host.transport import Transport
from concord.spec.boards import BOARD_SPECS, baud_of
from concord.spec.config import NpuConfig

#: Targets beside serial ports.
TARGETS = ("emulator", "rtl")
#: Seconds to wait for a reply at a bit rate that may be the wrong one.
_PATIENCE = 0.2


def connect(
    target: str,
    config: NpuConfig | None = None,
    *,
    baud: int | None = None,
    library: Path | None = None,
    trace: Path | None = None,
) -> Device:
    """Return a device.

    Parameters
    ----------
    target : str
        ``"emulator"``, ``"rtl"``, or the name of a serial port.
    config : NpuConfig or None
        Configuration. May be left out for a serial port if the board has one of the named ones.
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
        from concord.host.rtl import RtlTransport, find_library

        return _over_link(RtlTransport(library or find_library(config, trace=trace is not None), trace=trace), config)
    if not re.search(r"[/\\]|^COM\d+$", target, re.IGNORECASE):
        close = difflib.get_close_matches(target.lower(), TARGETS, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(
            f"target must be {', '.join(TARGETS)} or a serial port as in /dev/ttyUSB0, not {target!r}{hint}"
        )
    from concord.host.serial_port import SerialTransport

    if baud is None:
        baud = _found_rate(target) if config is None else baud_of(config.board)
    return _over_link(SerialTransport(target, baud), config)


def _found_rate(port: str) -> int:
    """The first bit rate of a board at which somebody answers, from the fastest on; the slowest if nobody does."""
    from concord.host.serial_port import SerialTransport

    *others, slowest = sorted({board.baud for board in BOARD_SPECS.values()}, reverse=True)
    for baud in others:
        transport = SerialTransport(port, baud)
        try:
            Link(transport, timeout=_PATIENCE, retries=1).synchronise()
        except LinkError:
            continue
        finally:
            transport.close()
        return baud
    return slowest


def _over_link(transport: Transport, config: NpuConfig | None) -> LinkedDevice:
    try:
        return LinkedDevice(Link(transport), config)
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
