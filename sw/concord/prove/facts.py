"""Results of a comparison."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

#: The layer of values that no layer of the program has: words that devices exchange, and results.
RESULTS = "results"


@dataclass(frozen=True)
class Difference:
    """The first value that is not the same, in the order of execution.

    Parameters
    ----------
    layer : str
        Of the program, or ``results``.
    place : str
        Word of a memory, or output.
    element : tuple of int
        Of the output; of a word of a memory the lane.
    sample : int
        Number of the sample, from 0.
    emulator, other : str
        The two values.
    pc : int or None
        Address of the ``v_rd`` of the chain that has written it.
    instructions : tuple of str
        The chain.
    execution, vector : int
        Number of the chain in the order of dispatch, from 0, and number of the vector in the chain, from 0.
    note : str
        How the place was found, if that is not plain.
    """

    layer: str
    place: str
    element: tuple[int, ...]
    sample: int
    emulator: str
    other: str
    pc: int | None = None
    instructions: tuple[str, ...] = ()
    execution: int = -1
    vector: int = -1
    note: str = ""

    @property
    def text(self) -> str:
        """Difference in a line."""
        where = f"layer {self.layer}" if self.layer not in ("", RESULTS) else ""
        if self.pc is not None:
            chain = f"the chain at {self.pc} ({'; '.join(self.instructions)})"
            where += f"{', ' if where else ''}{chain}, chain {self.execution} of the run, vector {self.vector} of it"
        at = ", ".join(map(str, self.element))
        parts = [where, f"{self.place}, element {at}, sample {self.sample}", self.note]
        return ", ".join(filter(None, parts)) + f": {self.emulator} on the emulator, here {self.other}"


@dataclass(frozen=True)
class Count:
    """Values that were compared, and how many of them differ."""

    values: int = 0
    different: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.values + other.values, self.different + other.different)


@dataclass
class Comparison:
    """One implementation beside the emulator.

    Parameters
    ----------
    name, label, version : str
        Of the implementation: as on the command line, as people read it, and of what executes it.
    samples : int
        Number of samples that were compared.
    layers : dict
        Counts by layer, in the order of execution; ``results`` last.
    first : Difference or None
        The first difference.
    seconds : float
        What the implementation took.
    notes : list of str
        What is not compared.
    """

    name: str
    label: str
    version: str
    samples: int = 0
    layers: dict[str, Count] = field(default_factory=dict)
    first: Difference | None = None
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def add(self, layer: str, count: Count) -> None:
        """Count values of a layer."""
        self.layers[layer] = self.layers.get(layer, Count()) + count

    @property
    def count(self) -> Count:
        """Counts of all layers together."""
        return sum(self.layers.values(), Count())


@dataclass
class Proof:
    """All comparisons of a program.

    Parameters
    ----------
    name : str
        Of the file or folder.
    npu, fingerprint : str
        The configuration.
    samples : int
        Number of samples that there were.
    source : str
        Where they come from; ``given`` in the file.
    comparisons : list of Comparison
    left_out : dict
        By implementation, why it was not run.
    input_flags : list of str
        Inputs that are unlike what the network was compiled for, a line each.
    layers : tuple of str
        In the order of execution.
    chains, words : int
        Chains of a run, and vectors that they write.
    """

    name: str
    npu: str
    fingerprint: str
    samples: int
    source: str
    layers: tuple[str, ...]
    chains: int
    words: int
    comparisons: list[Comparison] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    input_flags: list[str] = field(default_factory=list)

    @property
    def count(self) -> Count:
        """Counts of all comparisons together."""
        return sum((comparison.count for comparison in self.comparisons), Count())

    def to_dict(self) -> dict[str, Any]:
        """The proof as data that JSON can hold."""
        facts = {"given" if name == "source" else name: value for name, value in asdict(self).items()}
        for plain, comparison in zip(facts["comparisons"], self.comparisons, strict=True):
            plain |= asdict(comparison.count)
        return facts | asdict(self.count)

    def to_json(self) -> str:
        """The facts as JSON."""
        return json.dumps(self.to_dict(), indent=1) + "\n"
