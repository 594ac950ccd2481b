"""What ``make prove`` compares: trained networks, examples, random programs, and operations one by one.

Every part gives a :class:`Found`; parts run in processes of their own.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from concord.networks.calibrated import choose_formats
from concord.prove import DERIVED, Subject, prove
from concord.prove.run import labels
from concord.prove.runtimes import RUNTIMES
from concord.spec.presets import ECP5_25F, ECP5_85F, TINY, UP5K, with_mantissas
from concord_bench import tasks
from support.corner_programs import corner_program
from support.derive_flag_numbers import CONDITIONS, prove_condition
from support.derive_numbers import prove as prove_primitive
from support.derived_modules import image_of_memories, program_rng, random_inputs
from support.program_coverage import covered, required
from support.program_gen import random_program
from support.small_examples import SMALL

#: Configurations of random programs: tile engines, serial, stochastic rounding or not, narrow and wide mantissas.
CONFIGS = {
    "tiny": TINY,
    "2 engines": TINY.replace(engines=2),
    "4 engines": TINY.replace(engines=4),
    "serial": UP5K,
    "3 bits": with_mantissas(TINY, 3),
    "12 bits": TINY.replace(act_mant=12, wgt_mant=12, wgt_exp_max=4, acc_width=68),
    "ecp5-25f": ECP5_25F,
}
#: Those that the RTL executes, too: each needs a simulation of its own.
ON_RTL = ("tiny", "2 engines", "serial")
#: Recorded samples of a network, and random ones beside them.
RECORDED, RANDOM = 40, 24


@dataclass
class Found:
    """What came of a part.

    Parameters
    ----------
    kind, name : str
        Heading, and what was compared.
    counts : dict
        By pair: values, and how many differ.
    differences, left_out : list of str
    coverage : Counter
        Of random programs.
    seconds : float
    """

    kind: str
    name: str
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    coverage: Counter = field(default_factory=Counter)
    seconds: float = 0.0

    def count(self, pair, values, different):
        """Add values of a pair."""
        before = self.counts.get(pair, (0, 0))
        self.counts[pair] = before[0] + values, before[1] + different

    def add(self, proof):
        """Add what :func:`concord.prove.prove` has found."""
        for one in proof.comparisons:
            self.count(f"emulator = {one.label}", one.count.values, one.count.different)
            if one.first is not None:
                self.differences.append(f"{proof.name}: {one.label} differs first in {one.first.text}")
        for name, why in proof.left_out.items():
            if not why.startswith("not asked for"):
                self.left_out.append(f"{self.name}: {labels()[name]}: {why}")


def there():
    """Derived software that can be run here without being compiled first."""
    return [name for name, runtime in RUNTIMES.items() if not runtime.missing and not runtime.asked]


def network(name, rtl):
    """A trained network on recorded samples and on random ones."""
    found = Found("networks", name)
    data = tasks.folder()
    task = next(task for task in tasks.TASKS if task.model == name)
    graph, _, _ = tasks.load(task, data)
    given = tasks.calibration(task, graph, data)
    package = choose_formats(graph, ECP5_85F, given, batch=task.batch).chosen.compiled.package
    subject = Subject(name, package.image, package)
    wild = subject.random_samples(RANDOM, 1)
    inputs = {key: np.concatenate([np.asarray(x)[:RECORDED], wild[key]]) for key, x in given.items()}
    samples = len(next(iter(inputs.values())))
    found.add(prove(subject, inputs, samples=samples, machine_samples=rtl))
    _in_c(found, subject, inputs, samples)
    return found


def _in_c(found, subject, inputs=None, samples=32):
    """Compare the C text, if there is a compiler."""
    if RUNTIMES["c"].missing:
        found.left_out.append(f"{subject.name}: C: {RUNTIMES['c'].missing}")
        return
    found.add(prove(subject, inputs, samples=samples, machine_samples=0, only=["c"]))


def example(name):
    """An example program."""
    found = Found("examples", name)
    subject = Subject(name, SMALL[name]().image())
    found.add(prove(subject, samples=32, machine_samples=2))
    _in_c(found, subject)
    return found


def programs(name, first, last):
    """Random programs and programs of corners for a configuration, two samples each."""
    config, found = CONFIGS[name], Found("random programs", name)
    only = [*there(), "reference", *(["rtl"] if name in ON_RTL else [])]
    for seed in range(first, last):
        for kind, make in (("random", partial(random_program, size=12)), ("corners", corner_program)):
            words, memories = make(config, program_rng(f"{name} {seed}"))
            image = image_of_memories(words, memories)
            inputs = random_inputs(image, 2, seed)
            found.coverage += covered(image, inputs)
            subject = Subject(f"{kind} {seed} for {name}", image)
            try:
                found.add(prove(subject, inputs, only=only))
            except ValueError:  # something refuses the program: the others, one by one
                _one_by_one(found, subject, inputs, only)
    return found


def _one_by_one(found, subject, inputs, only):
    for one in only:
        try:
            found.add(prove(subject, inputs, only=[one]))
        except ValueError as error:
            if one not in DERIVED:
                raise
            found.left_out.append(f"{subject.name}: {one} refuses it: {error}")


def missing(coverage, name):
    """What random programs of a configuration have not covered."""
    return sorted(required(CONFIGS[name]) - set(coverage))


def operation(backend, name):
    """An operation of derived software, the long way: all formats and patterns."""
    from support import derive_runners

    label, run = derive_runners.runner(backend)
    found = Found("operations", f"{label}, {name}")
    try:
        compare = prove_condition if name in CONDITIONS else prove_primitive
        found.count(f"golden model = {label}", compare(name, run, every=True), 0)
    except AssertionError as error:
        found.count(f"golden model = {label}", 1, 1)
        found.differences.append(f"{label}, {name}: {error}")
    return found


def timed(part, *arguments):
    """A part, with its time."""
    begin = time.monotonic()
    found = part(*arguments)
    found.seconds = time.monotonic() - begin
    return found
