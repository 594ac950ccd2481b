"""Other machines beside the emulator: the compiled RTL and the reference machine, sample by sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from concord.derive.flow import layer_names
from concord.host import connect
from concord.host.device import Device
from concord.host.rtl import find_library
from concord.prove.derived import Subject
from concord.prove.device_state import DeviceState, count_words, run, writers
from concord.prove.difference_search import DifferenceSearch
from concord.prove.facts import RESULTS, Comparison, Count, Difference
from concord.prove.observed import different
from concord.prove.reference import ReferenceDevice
from concord.spec.config import NpuConfig


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


#: The simulation of a configuration is looked for once: sources do not change while programs are compared.
_library = cache(find_library)

MACHINES = {
    "reference": Machine("reference machine", ReferenceDevice, 20_000),
    "rtl": Machine("RTL (Verilator)", lambda config: connect("rtl", config, library=_library(config))),
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

    def compare(self, inputs: Mapping[str, NDArray[np.float64]], first_sample: int) -> None:
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
        known = self._words(want, state, sample)
        for pc in sorted({writer.pc for writer in self._writers.values()}):
            same = want.flags[pc] == state.flags[pc]
            self.comparison.add(self._layer(pc) or "program", Count(1, int(not same)))
            if not same:
                known = known or self._other(f"flags[{pc}]", sample, want.flags[pc], state.flags[pc])
        for name, values in want.outputs.items():
            wrong = different(state.outputs[name], values)
            self.comparison.add(RESULTS, Count(wrong.size, int(wrong.sum())))
            if wrong.any():
                at = tuple(int(k) for k in np.argwhere(wrong)[0])
                known = known or self._other(name, sample, values[at], state.outputs[name][at], at)
        for name, count in want.counted.items():
            same = count == state.counted[name]
            self.comparison.add(RESULTS, Count(1, int(not same)))
            if not same:
                known = known or self._other(f"counter {name}", sample, count, state.counted[name])
        beyond = np.flatnonzero(np.array(want.flags) != np.array(state.flags))
        if known is None and len(beyond):
            pc = int(beyond[0])
            self.comparison.add(RESULTS, Count(1, 1))
            known = self._other(f"flags[{pc}]", sample, want.flags[pc], state.flags[pc])
        return known

    def _words(self, want: DeviceState, state: DeviceState, sample: int) -> Difference | None:
        """Words that the program has written are counted; others must be the same, too."""
        known = None
        for mem, words in want.memories.items():
            for address, (word, other) in enumerate(zip(words, state.memories[mem], strict=True)):
                writer = self._writers.get((mem, address))
                if writer is None and word == other:
                    continue
                layer = RESULTS if writer is None else self._layer(writer.pc) or "program"
                self.comparison.add(layer, count_words(self.subject.image.config, mem, word, other))
                if word != other and known is None:
                    known = self._other(f"{mem.name.lower()}[{address}]", sample, f"{word:#x}", f"{other:#x}")
        return known

    @staticmethod
    def _other(place: str, sample: int, emulator: object, other: object, element: tuple[int, ...] = ()) -> Difference:
        return Difference(RESULTS, place, element, sample, str(emulator), str(other))


def version_of(name: str) -> str:
    """What a machine is made of."""
    if name == "rtl":
        from importlib.metadata import version

        return f"verilator {version('verilator')}"
    return ""


def run_cost(subject: Subject) -> int:
    """Vectors and dense tile steps of a run."""
    return sum(
        chain.positions * chain.shape[2] * (chain.source.shape[2] if chain.weight is not None else 1)
        for chain in subject.observed.flow.instances
    )
