"""Compare a program on the emulator with all other implementations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np

from concord.derive.flow import layer_names
from concord.graph.element_types import as_places
from concord.host.errors import DeviceError
from concord.networks.folder import load
from concord.prove.derived import DerivedComparison, Subject, ValuePlaces, chunk, emulate
from concord.prove.facts import RESULTS, Proof
from concord.prove.machines import MACHINES, MachineComparison, run_cost, version_of
from concord.prove.runtimes import RUNTIMES
from concord.utils.arrays import FloatArray

#: Names on the command line.
DERIVED = tuple(RUNTIMES)
IMPLEMENTATIONS = (*DERIVED, *MACHINES)
#: Samples, and those of them that machines run, if nothing is said.
SAMPLES, MACHINE_SAMPLES = 32, 1


def prove(
    what: Path | Subject,
    inputs: Mapping[str, FloatArray] | None = None,
    *,
    samples: int = SAMPLES,
    machine_samples: int = MACHINE_SAMPLES,
    only: Collection[str] | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Proof:
    """Compare a compiled network or an image on all implementations with the emulator.

    Parameters
    ----------
    what : Path or Subject
        A folder or a file, or what is in it.
    inputs : mapping of str to array, optional
        ``[samples, *shape of a sample]`` by input; random ones if left out.
    samples : int
        Number of samples that are made, or used.
    machine_samples : int
        How many of them the reference machine and the RTL run; with 0 they are left out.
    only : collection of str, optional
        Of :data:`IMPLEMENTATIONS`; those must be there. All that are there if left out.
    seed : int
        Of random samples.
    say : callable
        Told what is being done.

    Raises
    ------
    ValueError
        For inputs that do not fit, an implementation that was asked for and is not there, or if nothing is compared.
    """
    subject = what if isinstance(what, Subject) else _subject(what)
    if inputs is None:
        arrays = subject.random_samples(samples, seed)
        source = f"random, seed {seed}"
    else:
        numbers = as_places(inputs, {} if subject.package is None else subject.package.texts)
        arrays = {name: np.asarray(x, np.float64)[:samples] for name, x in numbers.items()}
        source = "given"
    subject.ports(arrays)  # refuses what does not fit
    count = len(next(iter(arrays.values()))) if arrays else 1
    if not count:
        raise ValueError("inputs must have at least one sample, not none")
    say("deriving")
    places = ValuePlaces.of(subject)
    proof = _empty(subject, count, source)
    if inputs is not None and subject.package is not None:
        proof.input_flags += [flag.hint for flag in subject.package.input_flags(arrays)]
    with tempfile.TemporaryDirectory(prefix="concord-prove-") as folder:
        derived = _derived(subject, places, only, Path(folder), proof)
        size = chunk(subject)
        for first in range(0, count, size):
            say(f"sample {first} of {count}")
            some = {name: x[first : first + size] for name, x in arrays.items()}
            want = emulate(subject, some)
            for software in derived:
                software.compare(some, want, first)
        proof.comparisons += [software.comparison for software in derived]
    few = {name: x[: machine_samples * subject.batch] for name, x in arrays.items()}
    for name in MACHINES:
        if only is None or name in only:
            say(MACHINES[name].label)
            _machine(subject, name, few, machine_samples, only, proof)
        else:
            proof.left_out[name] = "not asked for"
    if not proof.count.values:
        reasons = ", ".join(f"{labels()[name]} ({why})" for name, why in proof.left_out.items())
        raise ValueError(f"at least one implementation must be compared with the emulator, not none: {reasons}")
    return proof


def _subject(path: Path) -> Subject:
    image, package = load(path)
    name = path.stem if package is None else path.resolve().name
    return Subject(name, image.carried, None if package is None else package.carried)


def _empty(subject: Subject, samples: int, source: str) -> Proof:
    config, flow = subject.image.config, subject.observed.flow
    name = layer_names(subject.image)
    layers = dict.fromkeys(name(store.pc) or "program" for store in flow.stores)
    return Proof(
        subject.name,
        config.name,
        f"{config.fingerprint:016x}",
        samples,
        source,
        (*layers, RESULTS),
        1 + max((store.chain for store in flow.stores), default=-1),
        sum(len(store.address) for store in flow.stores),
    )


def _derived(
    subject: Subject, places: ValuePlaces, only: Collection[str] | None, folder: Path, proof: Proof
) -> list[DerivedComparison]:
    """Derived software of all kinds that are there."""
    comparisons = []
    for name, runtime in RUNTIMES.items():
        asked = name in only if only is not None else not runtime.asked
        why = runtime.missing if asked else "not asked for" + f"; --with {name} does it" * (only is None)
        if why and only is not None and name in only:
            raise ValueError(f"{runtime.label} cannot be run: {why}")
        if why:
            proof.left_out[name] = why
            continue
        try:
            comparisons.append(DerivedComparison(subject, places, name, runtime, folder))
        except ValueError as error:  # operators or sums that a backend refuses
            if only is not None:
                raise
            proof.left_out[name] = f"refused: {error}"
    return comparisons


def _machine(
    subject: Subject,
    name: str,
    few: Mapping[str, FloatArray],
    samples: int,
    only: Collection[str] | None,
    proof: Proof,
) -> None:
    """Compare one machine, or say why not."""
    machine = MACHINES[name]
    work = run_cost(subject)
    if not samples:
        proof.left_out[name] = "0 samples asked for"
        return
    if only is None and machine.vectors is not None and work > machine.vectors:
        proof.left_out[name] = (
            f"a run has {work:,} vectors, it is done up to {machine.vectors:,}; --with {name} does it"
        )
        return
    try:
        device = machine.open(subject.image.config)
    except (DeviceError, ModuleNotFoundError, OSError) as error:
        if only is not None:
            raise
        proof.left_out[name] = f"cannot be built: {error}"
        return
    with device:
        device_comparison = MachineComparison(subject, name, device, machine.label, version_of(name))
        device_comparison.compare(few, 0)
    proof.comparisons.append(device_comparison.comparison)


def labels() -> dict[str, str]:
    """Names of every implementation for people."""
    return {name: runtime.label for name, runtime in RUNTIMES.items()} | {
        name: machine.label for name, machine in MACHINES.items()
    }
