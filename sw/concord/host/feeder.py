"""The host's side of the feeder: samples go out and results come back while the device computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..feeding import Stream, half_outbox
from ..golden import half
from ..image import Image, Phase
from ..spec.memmap import RegionId
from .device import Outputs
from .errors import BusyError, DeviceError

if TYPE_CHECKING:
    from .linked import LinkedDevice


class FeederClient:
    """Sends raw inputs and collects results.

    Parameters
    ----------
    device : LinkedDevice
        With an inbox, if :meth:`run` is called.
    """

    def __init__(self, device: LinkedDevice):
        self.device = device
        self.forget()

    def forget(self) -> None:
        """Write script and code book again before the next batch."""
        self._script: tuple[int, ...] | None = None
        self._codes: tuple[int, ...] = ()
        self._addr = 0  # in the outbox, of the next result

    def run(self, image: Image, schedule: Sequence[Phase], found: Stream, size: int, timeout: float | None) -> Outputs:
        """Results of a batch of ``size`` samples."""
        try:
            self._install(found)
            data = self._exchange(found, size, timeout)
        except BaseException:
            self.forget()
            raise
        return _outputs(image, schedule, np.frombuffer(data, "<u2").reshape(size, -1))

    def _install(self, found: Stream) -> None:
        """Code book and script, as far as they are not there."""
        device = self.device
        if self._codes != found.codes:
            device.write(RegionId.CODES, 0, found.codes)
            self._codes = found.codes
        if self._script != found.script:
            self._script = None
            device.write(RegionId.SCRIPT, 0, found.script)
            self._script, self._addr = found.script, 0

    def _exchange(self, found: Stream, size: int, timeout: float | None) -> bytes:
        """Send everything, and read results behind it."""
        link, inbox = self.device.link, self.device.regions[RegionId.INBOX]
        each, most = len(found.data) // size, half_outbox(self.device.config)
        results = bytearray()
        sent = due = 0  # bytes that were sent, and results that should be there
        while sent < len(found.data):
            part = found.data[sent : sent + found.chunk]
            if due - len(results) >= most:
                results += self._results(most, timeout)
            try:
                link.write(inbox, 0, part, self.device.progress)
            except BusyError:  # it still computes, or has no room for more results
                self.device.wait(timeout)
                ready = sent // each * found.results - len(results)
                if ready:
                    results += self._results(min(most, ready), timeout)
                continue
            due = sent // each * found.results
            sent += len(part)
        while len(results) < size * found.results:
            results += self._results(min(most, size * found.results - len(results)), timeout)
        return bytes(results)

    def _results(self, count: int, timeout: float | None) -> bytes:
        """The next bytes of the outbox; waits for them if need be."""
        device, outbox = self.device, self.device.regions[RegionId.OUTBOX]
        ring = outbox.depth // 2
        for patient in (True, False):
            try:
                data = device.link.read(outbox, self._addr, count)
            except BusyError:
                if not patient:
                    raise DeviceError(
                        f"device must have {count} bytes of results after its run, but has less"
                    ) from None
                device.wait(timeout)
                continue
            self._addr = (self._addr + count) % ring
            return data
        raise AssertionError("the second attempt returns or raises")


def _outputs(image: Image, schedule: Sequence[Phase], patterns: NDArray[np.uint16]) -> Outputs:
    """Values of the outputs from the binary16 patterns ``[batch, elements]`` of all samples."""
    native, size = image.config.native, len(patterns)
    found = {port.name: np.zeros((size, port.vectors(image.config), native), np.uint16) for port in image.outputs}
    at = 0
    for phase in schedule:
        for part in phase.outputs:
            lanes = image.feeding.lanes.get(part.port, native)
            count = part.count * lanes
            block = patterns[:, at : at + count].reshape(size, part.count, lanes)
            found[part.port][:, part.first : part.first + part.count, :lanes] = block
            at += count
    return {
        port.name: half.decode(found[port.name].reshape(size, *port.shape)).astype(port.dtype) for port in image.outputs
    }
