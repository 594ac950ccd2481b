"""A device at the end of a line that knows what time it is: nothing is computed, and everything takes its time."""

from concord.cycles import counts_of
from concord.host.called_line import line_of
from concord.host.feeder_clock import FeederClock
from concord.host.link import Link
from concord.host.linked import LinkedDevice
from concord.host.timed_line import FedCore, LineTimes, RunningCore
from concord.program import trace


class TimedDevice(LinkedDevice):
    """Has an image, and takes its cycles for it."""

    def __init__(self, image, spec, later=0.0, line=line_of):
        config, schedule = image.config, image.schedule()
        phases = [counts_of(trace(image.program, config, phase.pc), config).cycles for phase in schedule]
        latency = 0.0 if spec is None else spec.adapter.latency + later
        times = LineTimes() if spec is None else LineTimes.of(spec, config.clock_hz, latency)
        super().__init__(Link(line(config, RunningCore(phases), times)), config, spec)
        self.image, self.phases, self.computed = image, phases, sum(phases)

    def _stream(self, image, schedule, batch):
        """With another script another clock."""
        fed = super()._stream(image, schedule, batch)
        if fed is not None and fed.route.script != self.feeder.script:
            clock = FeederClock(fed.route, schedule, self.phases, self.config)
            self.link.transport.answers = FedCore(clock, self.config)
        return fed

    def load(self, image):
        """It is there."""

    def counters(self):
        return {"CYCLES": self.computed}

    def flags(self):
        return {}
