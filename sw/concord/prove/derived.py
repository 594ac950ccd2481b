"""Derived software beside the emulator: every word that chains write, and results."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from concord.compiler.emission.package import Package
from concord.derive.flow import layer_names
from concord.derive.ir import Model
from concord.derive.model import ObservedModel, derive_image, derive_package, observe
from concord.graph.element_types import of_type
from concord.graph.host_inputs import whole_ranges, with_missing
from concord.host.emulated import EmulatedDevice
from concord.image import Image
from concord.program.flags import diagnose_flags
from concord.prove.difference_search import chain_text
from concord.prove.facts import RESULTS, Comparison, Count, Difference
from concord.prove.observed import Recorder, Written, different, of_derived, written
from concord.prove.runtimes import Run, Runtime, SamplesByFlag
from concord.prove.samples import random_samples
from concord.spec.formats import BINARY16_MAX, Flag
from concord.utils.arrays import Float32s, FloatArray, Ints

Inputs = Mapping[str, FloatArray]
#: Values that are compared at once, of the largest kind: what fits into some hundred MiB.
_VALUES = 1 << 22
#: Share of values that are missing where some may be.
_MISSING = 0.125


@dataclass(frozen=True)
class Subject:
    """Subject of a comparison: a compiled network, or an image alone.

    Parameters
    ----------
    name : str
        For people.
    image : Image
    package : Package or None
    """

    name: str
    image: Image
    package: Package | None = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of a sample, by input."""
        if self.package is None:
            return {port.name: port.shape for port in self.image.inputs}
        return {name: tuple(shape) for name, shape in self.package.input_shapes.items()}

    @property
    def batch(self) -> int:
        """Samples of a run."""
        return 1 if self.package is None else self.package.arrangement.batch

    def random_samples(self, count: int, seed: int) -> dict[str, FloatArray]:
        """Samples ``[count, *shape]`` by input, within what a device takes, as :func:`random_samples` makes them."""
        made = random_samples(self.shapes, count, seed)
        if self.package is None:
            return {name: np.clip(x, -BINARY16_MAX, BINARY16_MAX) for name, x in made.items()}
        arrangement, samples = self.package.arrangement, {}
        kinds = {name: kind for name, kind in self.package.element_types.items() if name in made}
        whole, missing = whole_ranges(self.package.front, kinds), with_missing(self.package.front)
        rng = np.random.default_rng(seed)
        for name, x in made.items():
            if name in whole:
                low, high = (int(end) for end in whole[name])
                samples[name] = rng.integers(low, high, x.shape, endpoint=True).astype(np.float64)
                continue
            if name not in arrangement.inputs:
                samples[name] = np.where(rng.random(x.shape) < _MISSING, np.nan, x) if name in missing else x
                continue
            limit = np.full((1, *x.shape[1:]), float(BINARY16_MAX))
            samples[name] = np.clip(x, arrangement.restored(name, -limit), arrangement.restored(name, limit))
        return samples

    def ports(self, inputs: Inputs) -> dict[str, FloatArray]:
        """Samples as the driver gives them to a device."""
        return dict(inputs) if self.package is None else self.package.pack(inputs)

    @cached_property
    def derived(self) -> Model:
        """The derived model with its flags, as ``concord derive --flags`` writes it."""
        return derive_image(self.image, True) if self.package is None else derive_package(self.package, True)

    @cached_property
    def observed(self) -> ObservedModel:
        """The derived model with all of its values."""
        return observe(self.package or self.image)

    @cached_property
    def chains(self) -> list[list[Written]]:
        """Words that every chain writes."""
        return written(self.observed)


@dataclass(frozen=True)
class Emulated:
    """Outcome of the emulator: results by name, every word that a chain has written, ``[values, runs]``, and flags.

    Flags are sticky: those of the whole batch, by place and name.
    """

    results: dict[str, FloatArray]
    values: Float32s
    flags: frozenset[tuple[str, str]]


def emulate(subject: Subject, inputs: Inputs) -> Emulated:
    """Run a batch on the emulator, and keep what every chain writes."""
    recorder = Recorder(subject.chains)
    device = EmulatedDevice(subject.image.config, workers=1, after=recorder)
    with device, np.errstate(all="ignore"):
        device.load(subject.image)
        ports = subject.ports(inputs)
        outputs = device.run(ports)
        if subject.package is not None:
            results = subject.package.arrangement.unpack(outputs, len(next(iter(inputs.values()))))
            results |= subject.package.host_outputs(inputs, results)
        else:
            results = {name: np.asarray(x, np.float64) for name, x in outputs.items()}
        values = recorder.values()
        flags = frozenset((record.where, record.flag) for record in diagnose_flags(subject.image, device.flags()))
    return Emulated(results, values, flags)


@dataclass
class ValuePlaces:
    """Places of the compared values: by value the entry of ``entries``, word, and lane."""

    entries: list[Written]
    entry: Ints
    place: Ints
    layer: Ints
    layers: list[str]

    @classmethod
    def of(cls, subject: Subject) -> ValuePlaces:
        """Places of the values of all chains, in the order of execution."""
        name = layer_names(subject.image)
        entries = [entry for chain in subject.chains for entry in chain]
        layers = list(dict.fromkeys(name(entry.store.pc) for entry in entries))
        sizes = [len(entry.place) for entry in entries]
        number = np.array([layers.index(name(entry.store.pc)) for entry in entries], dtype=np.int64)
        place = np.concatenate([entry.place for entry in entries]) if entries else np.zeros(0, np.int64)
        return cls(
            entries,
            np.repeat(np.arange(len(entries)), sizes),
            place,
            np.repeat(number, sizes) if sizes else place,
            layers,
        )

    def difference(self, subject: Subject, at: int, sample: int, emulator: float, other: float) -> Difference:
        """The value with the number ``at``."""
        entry = self.entries[self.entry[at]]
        first = int(np.searchsorted(self.entry, self.entry[at]))
        vector, lane = entry.inside[at - first].tolist()
        kept = entry.keep[vector]
        return Difference(
            layer=self.layers[self.layer[at]],
            place=f"{entry.store.mem.name.lower()}[{entry.store.address[kept]}]",
            element=(lane,),
            sample=sample,
            emulator=_text(emulator),
            other=_text(other),
            pc=entry.store.pc,
            instructions=chain_text(subject.image, entry.store.pc),
            execution=entry.store.chain,
            vector=int(entry.store.number[kept]),
        )


class DerivedComparison:
    """Compares one kind of derived software with the emulator, batch by batch.

    Parameters
    ----------
    subject : Subject
    name : str
        On the command line.
    runtime : Runtime
    folder : Path
        For its files.
    """

    def __init__(self, subject: Subject, places: ValuePlaces, name: str, runtime: Runtime, folder: Path):
        self.subject, self.places, self.runtime = subject, places, runtime
        self.comparison = Comparison(name, runtime.label, runtime.version)
        begin = time.perf_counter()
        self._plain = runtime.load_flagged(subject.derived, folder, "derived")
        self._inside: Run = runtime.load(subject.observed.model, folder, "observed")
        self.comparison.seconds += time.perf_counter() - begin
        package = subject.package
        if not runtime.host and package is not None and (package.host_graph is not None or package.front is not None):
            self.comparison.notes.append("what the host computes is left out")

    def compare(self, inputs: Inputs, emulated: Emulated, first_sample: int) -> None:
        """Compare a batch; ``first_sample`` is the number of its first sample."""
        begin = time.perf_counter()
        with np.errstate(all="ignore"):
            results, flags = self._plain(inputs if self.runtime.host else self._npu_inputs(inputs))
            inside = self._run_inside(inputs)
        self.comparison.seconds += time.perf_counter() - begin
        self.comparison.samples += len(next(iter(inputs.values())))
        self._values(inside, emulated.values, first_sample)
        self._results(results, emulated.results, first_sample)
        self._flags(flags, emulated.flags, first_sample)

    def _npu_inputs(self, inputs: Inputs) -> Inputs:
        """Inputs of the NPU, from the inputs of the network."""
        if self.subject.package is None:
            return inputs
        return {name: np.asarray(x) for name, x in self.subject.package.npu_inputs(inputs).items()}

    def _run_inside(self, inputs: Inputs) -> FloatArray:
        inputs = self._npu_inputs(inputs)
        group, model = self.subject.observed.group, self.subject.observed.model
        if group > 1:
            inputs = {name: _grouped(np.asarray(x), group) for name, x in inputs.items()}
        outputs = self._inside(inputs)
        return of_derived([outputs[model.names[value.name]] for value in model.outputs], self.places.place)

    def _values(self, values: FloatArray, want: Float32s, first_sample: int) -> None:
        runs = values.shape[1]
        with np.errstate(invalid="ignore"):  # NaNs that signal
            wrong = different(values, want[:, :runs].astype(np.float64))
        by_layer = np.bincount(self.places.layer, wrong.sum(axis=1), len(self.places.layers)).astype(int)
        sizes = np.bincount(self.places.layer, minlength=len(self.places.layers)) * runs
        for name, size, count in zip(self.places.layers, sizes.tolist(), by_layer.tolist(), strict=True):
            self.comparison.add(name or "program", Count(size, count))
        if wrong.any() and self.comparison.first is None:
            at, run = (int(k) for k in np.argwhere(wrong)[0])
            sample = first_sample + run * self.subject.batch
            self.comparison.first = self.places.difference(
                self.subject, at, sample, float(want[at, run]), float(values[at, run])
            )

    def _results(self, results: Mapping[str, Any], want: Mapping[str, Any], first_sample: int) -> None:
        package = self.subject.package
        host = None if package is None else package.host_graph
        types = {} if package is None or not self.runtime.host else package.output_types
        for name, raw in want.items():
            if name not in results and host is not None and name not in host.outputs:
                continue  # of the NPU, for the host alone
            if name not in results and not self.runtime.host:
                continue  # of the host
            values = of_type(raw, types.get(name)).astype(np.float64)
            computed = np.asarray(results[name], np.float64)
            wrong = different(computed, values)
            self.comparison.add(RESULTS, Count(wrong.size, int(wrong.sum())))
            if wrong.any() and self.comparison.first is None:
                sample, *element = (int(k) for k in np.argwhere(wrong)[0])
                at = (sample, *element)
                self.comparison.first = Difference(
                    RESULTS, name, tuple(element), first_sample + sample, _text(values[at]), _text(computed[at])
                )

    def _flags(self, raised: SamplesByFlag, want: frozenset[tuple[str, str]], first_sample: int) -> None:
        """Sticky flags of the batch; each flag of each layer is a value."""
        pairs = {(place, flag) for place, names in raised.items() for flag in names}
        places = {where for where, _ in want | pairs} | {name for name in self.places.layers if name}
        wrong = sorted(want ^ pairs)
        self.comparison.add(RESULTS, Count(len(places) * len(Flag), len(wrong)))
        if wrong and self.comparison.first is None:
            (place, flag), texts = wrong[0], ("not raised", "raised")
            at = (texts[wrong[0] in want], texts[wrong[0] in pairs])
            self.comparison.first = Difference(place, f"flag {flag}", (), first_sample, *at)


def chunk(subject: Subject) -> int:
    """Samples of a batch: few enough for what is compared at once, a multiple of those of a run."""
    size = sum(len(entry.place) for chain in subject.chains for entry in chain)
    return max(2, min(64, _VALUES // max(1, size))) * subject.batch


def _grouped(x: FloatArray, group: int) -> FloatArray:
    """Samples by run, filled up with the last one."""
    missing = -len(x) % group
    whole = np.concatenate([x, np.repeat(x[-1:], missing, axis=0)])
    return whole.reshape(-1, group, *x.shape[1:])


def _text(value: float) -> str:
    return repr(float(value))
