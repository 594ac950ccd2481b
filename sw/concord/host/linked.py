"""A device behind the byte link: compiled RTL or a board."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from concord.host.device import COUNTERS, Counters, Device, Outputs
from concord.host.errors import DeviceError, LinkError, MismatchError, RunTimeout
from concord.host.feeder import FeederClient
from concord.host.link import Identity, Link
from concord.host.transport import ColumnStore
from concord.image import Image, MemorySegment, Phase
from concord.image.columns import digest_of, digest_start, writes_columns
from concord.image.feeder_scripts import FeedError, Route, Stream, stream
from concord.spec.boards import BOARD_SPECS
from concord.spec.config import SPEC_VERSION, NpuConfig
from concord.spec.isa import Trap
from concord.spec.links import LinkSpec, window_of
from concord.spec.memmap import REGISTERS, Reg, Region, RegionId
from concord.spec.presets import PRESETS, presets_of
from concord.spec.stored import outdated

#: One WAIT takes at most this part of a second on a device with the clock of its configuration.
_WAIT_SECONDS = 0.1
_CLEAR_TIMEOUT = 10.0


class LinkedDevice(Device):
    """Talks to a device over a :class:`Link`.

    Parameters
    ----------
    link : Link
        Closed with the device.
    config : NpuConfig or None
        What the device should be; ``None`` recognises the named configurations.
    carrier : LinkSpec or None
        What carries the bytes, as far as it is known; ``None`` in a simulation in which they take no time.
    """

    def __init__(self, link: Link, config: NpuConfig | None = None, carrier: LinkSpec | None = None):
        super().__init__(identify(link.synchronise(), config))
        self.link, self.carrier = link, carrier
        link.max_payload = self.config.max_payload
        link.window = window_of(link.transport.controlled, self.config.request_buffer)
        link.resumed = self._resumed
        #: Cycles that one WAIT may take.
        self.wait_cycles = link.transport.wait_cycles or int(self.config.clock_hz * _WAIT_SECONDS)
        self.feeder = FeederClient(self)
        self._posting = False  # writes do not wait for their replies
        self._states_lost = False  # a run has failed in which they may have changed
        #: Told the bytes of each frame written to a memory, for a progress bar.
        self.progress: Callable[[int], None] | None = None
        #: Route of the inputs of the last batch to the feeder; ``None`` if the host laid them out, and why in words.
        self.route: Route | None = None
        self.input_route = ""

    def close(self) -> None:
        self.link.close()

    def load(self, image: Image) -> None:
        self.feeder.invalidate()
        super().load(image)
        if writes_columns(image.program):  # a write by the host: the device knows that contents are not kept
            region = self.regions[RegionId.DRAM]
            self._write(region, region.depth - 1, bytes(region.nbytes))
        self._states_lost = False

    def reset_states(self) -> None:
        super().reset_states()
        self._states_lost = False

    def _run_batch(
        self, image: Image, schedule: Sequence[Phase], batch: Mapping[str, Any], size: int, timeout: float | None
    ) -> Outputs:
        """Raw inputs through the feeder, if there is one and it can lay them out."""
        if self._states_lost and image.states:
            names = [state.port.name for state in image.states]
            raise DeviceError(f"states {names} must be set again, as a run was given up: call reset_states() or load()")
        raw_stream = self._stream(image, schedule, batch)
        try:
            if raw_stream is None:
                return super()._run_batch(image, schedule, batch, size, timeout)
            return self.feeder.run(image, raw_stream, size, timeout)
        except LinkError:
            self._states_lost = True
            raise

    def _run_sample(
        self, image: Image, schedule: Sequence[Phase], sample: Mapping[str, Any], timeout: float | None
    ) -> Outputs:
        """Inputs, start and the wait for the end follow each other as fast as the line goes."""
        self._posting = True
        try:
            return super()._run_sample(image, schedule, sample, timeout)
        except BaseException:
            self.link.quiesce()
            raise
        finally:
            self._posting = False

    def _stream(self, image: Image, schedule: Sequence[Phase], batch: Mapping[str, Any]) -> Stream | None:
        """Raw inputs as they go through the feeder, or ``None``."""
        try:
            raw_stream = stream(image.feeding, schedule, (image.inputs, image.outputs), batch, self.config)
        except FeedError as reason:
            self.route, self.input_route = None, f"laid out by the host: {reason}"
            return None
        self.route, self.input_route = raw_stream.route, f"raw: {raw_stream.route.text}"
        return raw_stream

    def _resumed(self, identity: Identity) -> None:
        """The link goes on after a call was given up: wait for a run that it may have started, and see what is loaded.

        Raises
        ------
        MismatchError
            If there is another configuration.
        DeviceError
            If there is another program than that of the image.
        """
        identify(identity, self.config)
        self.feeder.invalidate()
        self._idle(_CLEAR_TIMEOUT)
        if self.image is None:
            return
        program = [*self.image.program]
        if self.read(RegionId.PROGRAM, 0, len(program)) != program:
            self.image = None
            raise DeviceError("device must have the program of its image, not another one: load the image again")

    def _start(self, pc: int, adds: bool) -> None:
        self._control(start=1, adds=adds, pc=pc)

    def wait(self, timeout: float | None = None) -> None:
        self._check(self._idle(timeout))

    def idle(self, status: int) -> bool:
        """True if a word of STATUS says that nothing is going on. Raises :class:`TrapError` as ``wait``."""
        fields = _unpack(Reg.STATUS, status)
        if not fields["busy"]:
            self._check(fields)
        return not fields["busy"]

    def report_written(self, count: int) -> None:
        """Bytes of a write have arrived."""
        if self.progress is not None:
            self.progress(count)

    def _check(self, status: Mapping[str, int]) -> None:
        """Raise :class:`TrapError` if the last run ended with a trap."""
        if status["trapped"]:
            self.link.quiesce()
            (word,) = self.read(RegionId.REGS, Reg.TRAP)
            trap = _unpack(Reg.TRAP, word)
            raise self._trapped(Trap(trap["code"]), trap["pc"])

    def clear_flags(self) -> None:
        self._control(clear_flags=1)
        self._idle(_CLEAR_TIMEOUT)

    def counters(self) -> Counters:
        words = self.read(RegionId.REGS, 0, len(Reg))
        words[Reg.CYCLES] |= words[Reg.CYCLES_HIGH] << 32
        return {reg.name: words[reg] for reg in COUNTERS}

    def _idle(self, timeout: float | None) -> dict[str, int]:
        """Wait until nothing is going on; return the fields of STATUS."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            status = _unpack(Reg.STATUS, self.link.wait(self.wait_cycles))
            if not status["busy"]:
                return status
            if end is not None and time.monotonic() > end:
                raise RunTimeout(f"the device is still busy after {timeout} s")

    def _control(self, **fields: int) -> None:
        layout = REGISTERS[Reg.CONTROL].layout
        word = layout.pack(**({field.name: 0 for field in layout.fields} | fields))
        region = self.regions[RegionId.REGS]
        self._write(region, Reg.CONTROL, word.to_bytes(region.nbytes, "little"))

    def _load_columns(self, segments: Sequence[MemorySegment]) -> None:
        """Fill the external memory, unless the device says that it has these contents already.

        Their digest is in the last columns.
        """
        if not segments:
            return
        region, digest, place = self.regions[RegionId.DRAM], digest_of(segments), digest_start(segments, self.config)
        if place is not None and self.dram_state().kept and self._read(region, place, region.depth - place) == digest:
            self.report_written(sum(len(segment.data) for segment in segments))
            return
        super()._load_columns(segments)
        if place is not None:
            self._write(region, place, digest)
            self._control(keep_dram=1)

    def _read(self, region: Region, addr: int, count: int) -> bytes:
        return self.link.read(region, addr, count)

    def _write(self, region: Region, addr: int, data: bytes) -> None:
        transport = self.link.transport
        if region.id is RegionId.DRAM and isinstance(transport, ColumnStore) and transport.store_columns(addr, data):
            self.link.write(region, addr, data[: region.nbytes])  # so that the device sees a write
            self.report_written(len(data))
            return
        if not self._posting:
            self.link.write(region, addr, data, None if region.id == RegionId.REGS else self.progress)
            return
        self.link.post_write(region, addr, data)
        self.report_written(len(data))


def _unpack(reg: Reg, word: int) -> dict[str, int]:
    return REGISTERS[reg].layout.unpack(word)


def identify(identity: Identity, config: NpuConfig | None) -> NpuConfig:
    """Return the configuration of a device; :class:`MismatchError` if it is not the expected one or not known."""
    if identity.version != SPEC_VERSION:
        raise MismatchError(f"device must have specification version {SPEC_VERSION}, not {identity.version}")
    known = {config.fingerprint: config for board in BOARD_SPECS for config in presets_of(board)}
    known |= {config.fingerprint: config for config in PRESETS.values()}
    if config is None:
        if identity.fingerprint not in known:
            raise MismatchError(
                f"device has fingerprint {identity.fingerprint:#018x}, which none of {list(PRESETS)} has: "
                "say which configuration it is"
            )
        return known[identity.fingerprint]
    if identity.fingerprint != config.fingerprint:
        actual = known.get(identity.fingerprint)
        text = f"device must have fingerprint {config.fingerprint:#018x}, not {identity.fingerprint:#018x}"
        if actual is not None:
            text += f": it is a {actual.name}; expected / device: {config.difference(actual)}"
        if what := outdated(config):
            text += f"\n  no ready bitstream fits {what}: compile the network again"
        raise MismatchError(text)
    return config
