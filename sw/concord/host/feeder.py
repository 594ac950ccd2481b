"""The host's side of the feeder: it sends samples and receives results while the device computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from concord.golden import binary16
from concord.golden.blocks import to_binary16
from concord.host.device import Outputs
from concord.host.feeder_exchange import Exchange, FedDevice
from concord.image import Image
from concord.image.feeder_scripts import Route, Stream
from concord.image.ports import Port
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId
from concord.utils.arrays import Bits, Bytes


class ScriptedDevice(FedDevice, Protocol):
    """Device as :class:`FeederClient` needs it, which keeps scripts there."""

    def write(self, region: RegionId | str, addr: int, words: Sequence[int]) -> None:
        """Write words of a region."""

    def report_begun(self) -> None:
        """Tell whoever measures that the first sample begins."""


class FeederClient:
    """Sends raw inputs and collects results.

    Parameters
    ----------
    device : ScriptedDevice
        With an inbox, if :meth:`run` is called.

    Members
    -------
    script : tuple of int or None
        The one on the device.
    codes : tuple of int
        Words of the code book on the device; none before the first.
    """

    def __init__(self, device: ScriptedDevice):
        self.device = device
        self.invalidate()

    def invalidate(self) -> None:
        """Write script and code book again before the next batch."""
        self.script: tuple[int, ...] | None = None
        self.forget_codes()
        self._addr = 0  # in the outbox, of the next result

    def forget_codes(self) -> None:
        """Write the code book again before the next batch."""
        self.codes: tuple[int, ...] = ()

    def run(self, image: Image, raw_stream: Stream, size: int, timeout: float | None) -> Outputs:
        """Results of a batch of ``size`` samples."""
        try:
            self._install(raw_stream)
            self.device.report_begun()
            data = self.exchange(raw_stream, size, timeout)
        except BaseException:
            self.invalidate()
            self.device.link.quiesce()
            raise
        return _outputs(image, raw_stream.route, np.frombuffer(data, np.uint8).reshape(size, -1))

    def _install(self, raw_stream: Stream) -> None:
        """Code book and script, as far as they are not there."""
        device = self.device
        if self.codes != raw_stream.codes:
            device.write(RegionId.CODES, 0, raw_stream.codes)
            self.codes = raw_stream.codes
        script = raw_stream.route.script
        if self.script != script:
            self.script = None
            device.write(RegionId.SCRIPT, 0, script)
            self.script, self._addr = script, 0

    def exchange(self, raw_stream: Stream, size: int, timeout: float | None) -> bytes:
        """Send everything, and read results meanwhile, with the script being there."""
        exchange = Exchange(self.device, raw_stream, size, timeout, self._addr)
        data = exchange.run()
        self._addr = exchange.addr
        return data


def _outputs(image: Image, route: Route, sent: Bytes) -> Outputs:
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


def _patterns(block: Bytes, port: Port, config: NpuConfig) -> Bits:
    """Binary16 patterns of vectors ``[batch, vectors, bytes]``."""
    if port.region is RegionId.WIDE:
        return block.view("<u2")
    mantissas = np.ascontiguousarray(block[..., 1:]).view("<i2" if config.mantissa_bytes > 1 else np.int8)
    return to_binary16(mantissas, block[..., 0].view(np.int8))
