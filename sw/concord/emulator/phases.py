"""The starts of a program that make up a run, and the words that they need from the memories."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Any

from concord.emulator.inputs import Inputs
from concord.emulator.lanes import COPIED, Memory
from concord.emulator.outputs import Outputs

#: Addresses by memory; of the matrix memory rows of tiles.
Words = dict[Memory, set[int]]


@dataclass(frozen=True)
class BatchPhase:
    """One start of a program in a batch.

    Parameters
    ----------
    pc : int
        Address of the first instruction.
    inputs : Inputs or None
        What differs from sample to sample and is written before it.
    outputs : Outputs
        Results that are returned of every sample after it.
    """

    pc: int
    inputs: Inputs | None
    outputs: Outputs

    @property
    def key(self) -> tuple[Any, ...]:
        """Key of the words that a phase touches: the program, and the places of inputs and outputs."""
        return self.pc, self.inputs.places if self.inputs is not None else (), self.outputs.places


@dataclass
class Footprint:
    """Words that are written, and those that are read before that."""

    written: Words = field(default_factory=lambda: {mem: set() for mem in COPIED})
    live: Words = field(default_factory=lambda: {mem: set() for mem in COPIED})

    def read(self, mem: Memory, words: Set[int]) -> None:
        """Note what is read."""
        self.live[mem] |= words - self.written[mem]

    def write(self, mem: Memory, words: Set[int]) -> None:
        """Note what is written."""
        self.written[mem] |= words

    def merge(self, other: Footprint) -> None:
        """Note everything that another one has noted."""
        for mem in COPIED:
            self.read(mem, other.live[mem])
            self.write(mem, other.written[mem])

    @property
    def overwritten(self) -> Words:
        """Words that the next sample needs as they were."""
        return {mem: self.live[mem] & self.written[mem] for mem in COPIED}


def footprint(phases: Iterable[tuple[BatchPhase, Footprint]]) -> Footprint:
    """Footprint of a whole run, from those of its programs: inputs are written, outputs read."""
    whole = Footprint()
    for phase, program in phases:
        for mem in COPIED:
            whole.write(mem, phase.inputs.addresses(mem) if phase.inputs is not None else set())
        whole.merge(program)
        for mem in COPIED:
            whole.read(mem, phase.outputs.addresses(mem))
    return whole
