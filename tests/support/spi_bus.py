"""Buses as ``spidev`` has them: with a model of the device on it, or with the compiled RTL."""

from __future__ import annotations

import random
from itertools import pairwise
from types import ModuleType

from concord.host.spi import CALL_BYTES
from concord.host.spi_rtl import RtlSpi
from concord.spec.link import ESCAPE, FLAG, RESUME


class ModelBus:
    """A model of the device as a slave, which pauses wherever it may.

    Parameters
    ----------
    model : DeviceModel
        Takes bytes and has replies.
    seed : int
        Where it pauses.
    late : int
        Bytes between a request and its reply.
    pauses : bool
        Whether it pauses at all.
    """

    def __init__(self, model, seed=0, late=3, pauses=True):
        self.model, self.late, self.pauses = model, late, pauses
        self.calls, self.closed = [], False
        self._rng = random.Random(seed)
        self._line = []

    def xfer2(self, values):
        assert type(values) is list and 0 < len(values) <= CALL_BYTES
        self.calls.append(len(values))
        came = []
        for value in values:
            came.append(self._line.pop(0) if self._line else FLAG)
            for frame in self.model.feed(bytes([value])):
                self._line += [FLAG] * self.late + (
                    self._paused(frame.encode()) if self.pauses else list(frame.encode())
                )
        return came

    def _paused(self, frame):
        """The bytes of a frame with pauses within."""
        line = [frame[0]]
        for before, byte in pairwise(frame):
            length = self._rng.choice([0, 0, 0, 1, 4])
            if before == ESCAPE:
                line += [ESCAPE] * length
            elif before != FLAG and length:
                line += [ESCAPE] * length + [RESUME]
            line.append(byte)
        return line

    def close(self):
        self.closed = True


def spidev_of(library):
    """The module ``spidev`` of a computer on whose bus the compiled RTL is; ``opened`` has what was opened."""

    class SpiDev(RtlSpi):
        mode = max_speed_hz = None

        def __init__(self):
            super().__init__(library)
            self.pace(2.5, 20)

        def open(self, bus, chip):
            if (bus, chip) != (0, 1):
                raise FileNotFoundError(2, "No such file or directory")
            module.opened.append(self)

    module = ModuleType("spidev")
    module.SpiDev, module.opened = SpiDev, []
    return module
