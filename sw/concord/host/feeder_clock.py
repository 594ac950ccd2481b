"""A timing model of the feeder: layout, runs and results, which overlap with the bytes on the link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from concord.image import Phase
from concord.image.feeder_scripts import InputTransfer, LinkFormat, Route, Rows
from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId

#: Cycles of the RTL (:mod:`concord_rtl.feeder.engine`): of an element with one byte, with two, or of the border, beside
#: the elements of a vector, of a window, and of an exponent.
ELEMENT, LONG_ELEMENT, VECTOR, WINDOW, EXPONENT = 1, 2, 1, 1, 3
#: To write a vector.
WRITING = 5
#: For the words of a script with a FILL, to start a run and notice its end, to fetch a vector, and to pass to the next
#: one of its elements.
FILLING, RUNNING, FETCHING, PASSING = 26, 16, 15, 1


@dataclass(frozen=True)
class Need:
    """A wait: for so many bytes since the script was written, or for room for results."""

    coming: int = 0
    results: int = 0


class FeederClock:
    """Executes a script without any data, with the time that everything takes.

    Parameters
    ----------
    route : Route
        What the script does.
    schedule : sequence of Phase
        Of the image.
    cycles : sequence of int
        Of the runs, one for each phase.
    config : NpuConfig
        Of the device.

    Members
    -------
    came, released : int
        Bytes that came, and those in front of which none is needed.
    produced, taken : int
        Bytes of results that were made, and that the host has.
    ends : list of float
        When samples ended, in cycles.
    """

    def __init__(self, route: Route, schedule: Sequence[Phase], cycles: Sequence[int], config: NpuConfig):
        self._route, self._schedule, self._cycles, self._config = route, schedule, cycles, config
        self._rows = [
            (transfer, rows, _steps(transfer, rows))
            for transfer in route.input_transfers
            for rows in transfer.rows(schedule)
        ]
        self._output_transfers = route.output_transfers
        self.came = self.released = self.produced = self.taken = 0
        self.ends: list[float] = []
        self._time = 0.0
        self._work = self._run()
        self._waits = next(self._work)

    @property
    def free_bytes(self) -> int:
        """Bytes that the inbox can take."""
        return self._config.inbox - 1 - (self.came - self.released)

    def advance(self, until: float, *, passes: bool = True) -> float | None:
        """Work until a time in cycles; returns when it began to wait for the host, or ``None`` if it works still.

        Whoever goes back to that time from ``until`` says that it ``passes`` not.
        """
        while True:
            waits = self._waits
            if isinstance(waits, Need):
                size = self._config.outbox_depth
                if self.came < waits.coming or self.produced + waits.results - self.taken > size:
                    begun = self._time
                    if passes:
                        self._time = max(begun, until)
                    return begun
            elif self._time + waits > until:
                return None
            else:
                self._time += waits
            self._waits = next(self._work)

    @property
    def sample_cycles(self) -> int:
        """Cycles of a sample if nothing is waited for."""
        fresh = FeederClock(self._route, self._schedule, self._cycles, self._config)
        return sum(cycles for cycles in fresh._sample(0) if isinstance(cycles, int))

    def _run(self) -> Iterator[Need | int]:
        """Needs and cycles of all samples, in order."""
        base = 0
        while True:
            yield from self._sample(base)
            self.ends.append(self._time)
            base = self.released

    def _sample(self, base: int) -> Iterator[Need | int]:
        """Needs and cycles of a sample whose first byte has this place."""
        yield Need(coming=base + 1)
        for phase, cycles in enumerate(self._cycles):
            for transfer, rows, steps in self._rows:
                if rows.phase != phase:
                    continue
                yield FILLING
                for needed, spent, free in steps:
                    self.released = max(self.released, base + free)
                    yield Need(coming=base + needed)
                    yield spent
                base += (rows.end - rows.top) * transfer.line
                yield Need(coming=base)
                self.released = base
            yield RUNNING + cycles
            for output in self._output_transfers[phase]:
                for _ in range(output.count):
                    yield Need(results=output.size)
                    yield FETCHING + output.size + PASSING * output.lanes
                    self.produced += output.size


def _steps(transfer: InputTransfer, rows: Rows) -> list[tuple[int, int, int]]:
    """Bytes that must have come, cycles, and bytes that are not needed any more, for all windows in order.

    Windows of one tap are taken vector by vector, since their bytes are let go one by one.
    """
    feed, native = transfer.feed, transfer.config.native
    (height, width, channels), (kh, kw) = feed.image, feed.kernel
    height -= rows.top
    tiles = -(-feed.lanes // native)
    element = ELEMENT if transfer.size == 1 else LONG_ELEMENT
    vector = VECTOR + (EXPONENT if transfer.kind is LinkFormat.BLOCKS else 0)
    least = _least(transfer)
    if feed.single:
        lanes = [min(native, channels - tile * native) for tile in range(tiles)]
        sizes = [count * transfer.size + (transfer.kind is LinkFormat.BLOCKS) for count in lanes]
        spent = [max(least, count * element + vector + WINDOW * (k == tiles)) for k, count in enumerate(lanes, 1)]
        vectors = rows.count * feed.windows[1] * tiles
        ends = np.cumsum(sizes * (rows.count * feed.windows[1])).tolist()
        free = np.array([0, *ends[:-1]])
        free[vectors - rows.held * feed.windows[1] * tiles :] = 0  # nothing is let go there
        cycles = _whole(np.array(spent * (rows.count * feed.windows[1])))
        cycles[-1] += _converting(transfer)
        return list(zip(ends, cycles.tolist(), free.tolist(), strict=True))
    y0 = feed.origin[0] + rows.first * feed.stride[0] - rows.top
    ys = y0 + np.arange(rows.count)[:, None] * feed.stride[0] + np.arange(kh) * feed.dilation[0]
    xs = feed.origin[1] + np.arange(feed.windows[1])[:, None] * feed.stride[1] + np.arange(kw) * feed.dilation[1]
    inside = ((ys >= 0) & (ys < height)).sum(1)[:, None] * ((xs >= 0) & (xs < width)).sum(1) * channels
    elements = inside * element + (feed.lanes - inside) * ELEMENT
    full = elements * native / feed.lanes  # of a vector; which of its elements are outside makes little difference
    cycles = (tiles - 1) * np.maximum(least, full + vector)
    cycles = _whole(cycles + np.maximum(least, elements - (tiles - 1) * full + vector + WINDOW))
    cycles[-1, -1] += _converting(transfer)
    bottom, right = np.clip(ys.max(1), -1, height - 1), np.clip(xs.max(1), -1, width - 1)
    needed = np.maximum(bottom[:, None] * transfer.line + (right + 1) * transfer.pixel, 0)
    free = np.maximum(y0 + np.arange(rows.count) * feed.stride[0], 0) * transfer.line
    free[rows.count - rows.held :] = 0  # nothing is let go there
    every = np.repeat(free, feed.windows[1])
    return list(zip(needed.ravel().tolist(), cycles.ravel().tolist(), every.tolist(), strict=True))


def _whole(spent: np.ndarray) -> np.ndarray:
    """Whole cycles, in the same shape, of which as many have passed everywhere as of ``spent``, rounded."""
    whole: np.ndarray = np.diff(np.rint(np.cumsum(spent)), prepend=0).astype(int)
    return whole.reshape(spent.shape)


def _least(transfer: InputTransfer) -> float:
    """Cycles from a vector to the next one, in the mean, however few elements they have."""
    close = timing.feeder_close(transfer.kind is LinkFormat.CODED)
    if not _converts(transfer):
        return close + WRITING
    # The vector before must have been played by the end of this one, and the one before that must have been written.
    played = close - timing.feeder_close(coded=False) + timing.feeder_beats(transfer.config)
    return max(played, (close + timing.feeder_convert(transfer.config) + WRITING) / 2)


def _converting(transfer: InputTransfer) -> int:
    """Cycles that the last vector takes longer because it is converted."""
    return timing.feeder_convert(transfer.config) if _converts(transfer) else 0


def _converts(transfer: InputTransfer) -> bool:
    """True if vectors are made of numbers, for narrow memory."""
    return transfer.kind is not LinkFormat.BLOCKS and transfer.port.region is RegionId.NARROW
