"""The host's side of the feeder: it sends samples and receives results while the device computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from concord.golden import binary16
from concord.golden.blocks import to_binary16
from concord.host.device import Outputs
from concord.host.errors import BusyError, DeviceError, RunTimeout
from concord.host.link import Link
from concord.image import Image
from concord.image.feeder_scripts import Route, Stream, outbox_chunk
from concord.image.ports import Port
from concord.spec.config import NpuConfig
from concord.spec.memmap import Region, RegionId

#: Before the second look at the outbox, at the clock of the configuration; twice as long before every one that follows.
_PAUSE_SECONDS = 0.5e-3


class FedDevice(Protocol):
    """What the feeder's side of the host needs of a device, which :class:`concord.host.linked.LinkedDevice` has."""

    config: NpuConfig
    regions: dict[RegionId, Region]
    link: Link
    progress: Callable[[int], None] | None

    def write(self, region: RegionId | str, addr: int, words: Sequence[int]) -> None:
        """Write words of a region."""

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of a run."""

    def wait_at_most(self, cycles: int) -> bool:
        """Let cycles pass; whether the device is idle."""

    def report_progress(self, samples: int) -> None:
        """Tell a progress bar how many samples more have ended."""


class FeederClient:
    """Sends raw inputs and collects results.

    Parameters
    ----------
    device : FedDevice
        With an inbox, if :meth:`run` is called.
    """

    def __init__(self, device: FedDevice):
        self.device = device
        self.invalidate()

    def invalidate(self) -> None:
        """Write script and code book again before the next batch."""
        self._script: tuple[int, ...] | None = None
        self._codes: tuple[int, ...] = ()
        self._addr = 0  # in the outbox, of the next result

    def run(self, image: Image, raw_stream: Stream, size: int, timeout: float | None) -> Outputs:
        """Results of a batch of ``size`` samples."""
        try:
            self._install(raw_stream)
            data = self.exchange(raw_stream, size, timeout)
        except BaseException:
            self.invalidate()
            raise
        return _outputs(image, raw_stream.route, np.frombuffer(data, np.uint8).reshape(size, -1))

    def _install(self, raw_stream: Stream) -> None:
        """Code book and script, as far as they are not there."""
        device = self.device
        if self._codes != raw_stream.codes:
            device.write(RegionId.CODES, 0, raw_stream.codes)
            self._codes = raw_stream.codes
        script = raw_stream.route.script
        if self._script != script:
            self._script = None
            device.write(RegionId.SCRIPT, 0, script)
            self._script, self._addr = script, 0

    def exchange(self, raw_stream: Stream, size: int, timeout: float | None) -> bytes:
        """Send everything, and read results behind it.

        Bytes go out as long as the inbox takes them. Once it has refused some, because the device computes longer than
        bytes travel, they only go out when results tell that there is room, so that nothing is sent in vain.
        """
        link, route, config = self.device.link, raw_stream.route, self.device.config
        inbox, most, batch = self.device.regions[RegionId.INBOX], outbox_chunk(config), raw_stream.data
        results = bytearray()
        sent = due = 0  # bytes that were sent, and results that should be there
        patient = False
        while sent < len(batch):
            part = batch[sent : sent + route.chunk]
            whole = sent // route.sample_bytes  # samples that were sent
            ready = whole * route.result_bytes - len(results)
            if due - len(results) >= most:
                self._fetch(results, most, route.result_bytes, timeout)
                continue
            if patient and ready:
                # Samples that must have been laid out.
                samples = -(-(sent + len(part) - (config.inbox - 1)) // route.sample_bytes)
                missing = min(samples, whole) * route.result_bytes - len(results)
                if missing > 0:
                    self._fetch(results, min(most, missing), route.result_bytes, timeout)
                    continue
            try:
                link.write(inbox, 0, part, self.device.progress)
            except BusyError:  # it still computes, or has no room for more results
                patient = True
                if ready:
                    self._fetch(results, min(most, ready, route.result_bytes), route.result_bytes, timeout)
                else:
                    self.device.wait(timeout)
                continue
            due = whole * route.result_bytes
            sent += len(part)
        while len(results) < size * route.result_bytes:
            self._fetch(results, min(most, size * route.result_bytes - len(results)), route.result_bytes, timeout)
        return bytes(results)

    def _results(self, count: int, timeout: float | None) -> bytes:
        """The next bytes of the outbox; waits for them if need be."""
        device, outbox = self.device, self.device.regions[RegionId.OUTBOX]
        pause = max(1, int(_PAUSE_SECONDS * device.config.clock_hz))
        end = None if timeout is None else time.monotonic() + timeout
        idle = False
        while True:
            try:
                data = device.link.read(outbox, self._addr, count)
            except BusyError:
                if idle:
                    raise DeviceError(
                        f"device must have {count} bytes of results after its run, but has less"
                    ) from None
                idle = device.wait_at_most(pause)
                pause *= 2
                if end is not None and time.monotonic() > end:
                    raise RunTimeout(f"the device is still busy after {timeout} s") from None
                continue
            self._addr = (self._addr + count) % (outbox.depth // 2)
            return data

    def _fetch(self, results: bytearray, count: int, each: int, timeout: float | None) -> None:
        """Put the next results behind those that came, ``each`` bytes a sample."""
        before = len(results) // each
        results += self._results(count, timeout)
        self.device.report_progress(len(results) // each - before)


def _outputs(image: Image, route: Route, sent: NDArray[np.uint8]) -> Outputs:
    """Values of the outputs from the bytes ``[batch, results]`` of all samples."""
    config, size = image.config, len(sent)
    patterns = {port.name: np.zeros((size, port.vectors(config), config.native), np.uint16) for port in image.outputs}
    at = 0
    for output in (output for phase in route.output_transfers for output in phase):
        count = output.count * output.size
        block = np.ascontiguousarray(sent[:, at : at + count]).reshape(size, output.count, -1)
        vectors = slice(output.first, output.first + output.count)
        patterns[output.port.name][:, vectors, : output.lanes] = _patterns(block, output.port, config)
        at += count
    return {
        port.name: binary16.decode(patterns[port.name].reshape(size, *port.shape)).astype(port.dtype)
        for port in image.outputs
    }


def _patterns(block: NDArray[np.uint8], port: Port, config: NpuConfig) -> NDArray[np.uint16]:
    """Binary16 patterns of vectors ``[batch, vectors, bytes]``."""
    if port.region is RegionId.WIDE:
        return block.view("<u2")
    mantissas = np.ascontiguousarray(block[..., 1:]).view("<i2" if config.mantissa_bytes > 1 else np.int8)
    return to_binary16(mantissas, block[..., 0].view(np.int8))
