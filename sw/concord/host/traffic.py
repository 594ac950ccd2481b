"""How many bytes a run puts on the link: the driver itself, on a line that counts and answers nothing but zeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..image import Image
from ..spec.config import SPEC_VERSION, NpuConfig
from ..spec.link import Kind
from .frames import line_bytes
from .link import Identity, Link
from .linked import LinkedDevice


@dataclass(frozen=True)
class Traffic:
    """What one run puts on the line, framing included, escapes left out (0.8 % of random bytes).

    Parameters
    ----------
    sent, received : int
        Bytes to the device, and from it.
    requests : int
        Requests, of which each waits for its reply.
    """

    sent: int
    received: int
    requests: int


class _NoLine:
    """A transport that carries nothing."""

    byte_time = 0.0
    wait_cycles: int | None = None

    def write(self, data: bytes) -> None:
        """Lose bytes."""

    def read(self, count: int, timeout: float) -> bytes:
        """Nothing ever comes."""
        return b""

    def close(self) -> None:
        """There is nothing to close."""


class _CountingLink(Link):
    """Every request succeeds; its bytes and those of its reply are counted."""

    def __init__(self, config: NpuConfig):
        super().__init__(_NoLine())
        self.config = config
        self.sent = self.received = self.requests = 0

    def synchronise(self) -> Identity:
        return Identity(SPEC_VERSION, self.config.fingerprint)

    def _request(self, kind: Kind, payload: bytes, *, repeatable: bool = True, reply_bytes: int = 0) -> bytes:
        self.requests += 1
        self.sent += line_bytes(len(payload))
        self.received += line_bytes(reply_bytes)
        return bytes(reply_bytes)


def traffic(image: Image) -> Traffic:
    """The bytes of one run of an image with all of its phases."""
    link = _CountingLink(image.config)
    device = LinkedDevice(link, image.config)
    device.image = image  # as if it had been loaded
    device.run({port.name: np.zeros((1, *port.shape)) for port in image.inputs})
    return Traffic(link.sent, link.received, link.requests)
