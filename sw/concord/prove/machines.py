"""Other machines beside the emulator: the compiled RTL and the reference machine, sample by sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from concord.derive.flow import layer_names
from concord.host import connect
from concord.host.device import Device
from concord.prove.derived import Subject
from concord.prove.device_state import DeviceState, count_words, run, writers
from concord.prove.difference_search import DifferenceSearch
from concord.prove.facts import RESULTS, Comparison, Count, Difference
from concord.prove.observed import different
from concord.prove.reference import ReferenceDevice
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray


@dataclass(frozen=True)
class Machine:
    """Something that executes programs.

    Parameters
    ----------
    label : str
        For people.
    open : callable
        A device of a configuration.
    vectors : int or None
        Vectors of a run, dense tile steps counted too, that it can do in the time of a sample; no limit if ``None``.
    """

    label: str
    open: Callable[[NpuConfig], Device]
    vectors: int | None = None


MACHINES = {
    "reference": Machine("reference machine", ReferenceDevice, 20_000),
    "rtl": Machine("RTL (Verilator)", lambda config: connect("rtl", config)),
}


class MachineComparison:
    """Compares a device with the emulator.

    Parameters
    ----------
    subject : Subject
    name : str
        On the command line.
    device : Device
        Of the configuration of the subject.
    label, version : str
        Of the device.
    """

    def __init__(self, subject: Subject, name: str, device: Device, label: str, version: str):
        self.subject, self.device = subject, device
        self.comparison = Comparison(name, label, version)
        self._emulator = connect("emulator", subject.image.config)
        self._layer = layer_names(subject.image)
        self._writers = writers(subject.observed.flow)
        for machine in (self._emulator, device):
            machine.load(subject.image)

    def compare(self, inputs: Mapping[str, FloatArray], first_sample: int) -> None:
        """Compare a batch, every run for itself."""
        ports = self.subject.ports(inputs)
        for number in range(len(next(iter(ports.values()))) if ports else 1):
            sample = {name: x[number] for name, x in ports.items()}
            with np.errstate(all="ignore"):
                want = run(self._emulator, self.subject.image, sample)
                begin = time.perf_counter()
                state = run(self.device, self.subject.image, sample)
            self.comparison.seconds += time.perf_counter() - begin
            place = first_sample + number * self.subject.batch
            known = self._compare(want, state, place)
            if known is not None and self.comparison.first is None:
                steps = DifferenceSearch(self._emulator, self.device, self.subject.image, self._layer)
                self.comparison.first = steps.first(sample, place) or known
        self.comparison.samples += len(next(iter(inputs.values()))) if inputs else 1

    def _compare(self, want: DeviceState, state: DeviceState, sample: int) -> Difference | None:
        """Count everything; something that differs, if there is anything."""
        known = None
        for layer, count, difference in self._pairs(want, state, sample):
            self.comparison.add(layer, count)
            known = known or difference
        beyond = np.flatnonzero(np.array(want.flags) != np.array(state.flags))
        if known is None and len(beyond):
            pc = int(beyond[0])
            self.comparison.add(RESULTS, Count(1, 1))
            known = _different(f"flags[{pc}]", sample, want.flags[pc], state.flags[pc])
        return known

    def _pairs(
        self, want: DeviceState, state: DeviceState, sample: int
    ) -> Iterator[tuple[str, Count, Difference | None]]:
        """Compare two states: yields a layer, how much was compared, and the difference if there is one.

        Words that the program has written are counted; others must be the same, too.
        """
        for mem, words in want.memories.items():
            for address, pair in enumerate(zip(words, state.memories[mem], strict=True)):
                writer = self._writers.get((mem, address))
                if writer is not None or pair[0] != pair[1]:
                    layer = RESULTS if writer is None else self._layer(writer.pc) or "program"
                    count = count_words(self.subject.image.config, mem, *pair)
                    place, (emulator, other) = f"{mem.name.lower()}[{address}]", (f"{word:#x}" for word in pair)
                    yield layer, count, _different(place, sample, emulator, other)
        for pc in sorted({writer.pc for writer in self._writers.values()}):
            difference = _different(f"flags[{pc}]", sample, want.flags[pc], state.flags[pc])
            yield self._layer(pc) or "program", Count(1, int(difference is not None)), difference
        for name, values in want.outputs.items():
            wrong, computed = different(state.outputs[name], values), state.outputs[name]
            at = tuple(int(k) for k in np.argwhere(wrong)[0]) if wrong.any() else None
            difference = None if at is None else _different(name, sample, values[at], computed[at], at)
            yield RESULTS, Count(wrong.size, int(wrong.sum())), difference
        for name, number in want.counted.items():
            difference = _different(f"counter {name}", sample, number, state.counted[name])
            yield RESULTS, Count(1, int(difference is not None)), difference


def _different(
    place: str, sample: int, emulator: object, other: object, element: tuple[int, ...] = ()
) -> Difference | None:
    """A place whose values differ; ``None`` if they are the same."""
    texts = str(emulator), str(other)
    return None if texts[0] == texts[1] else Difference(RESULTS, place, element, sample, *texts)


def version_of(name: str) -> str:
    """Tool and version of which a machine is made."""
    if name == "rtl":
        from importlib.metadata import version

        return f"verilator {version('verilator')}"
    return ""


def run_cost(subject: Subject) -> int:
    """Vectors and dense tile steps of a run."""
    return sum(
        chain.positions
        * chain.shape[2]
        * (1 if chain.weight is None and chain.matrix is None else chain.source.shape[2])
        for chain in subject.observed.flow.instances
    )
