"""Common parts of the example programs: text, constants, data and the float reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.image import Image
from concord.program.allocator import Allocator
from concord.program.assembler import assemble
from concord.spec.memmap import RegionId
from concord.utils.arrays import FloatArray

#: A heading and the lines below it.
Section = tuple[str, list[str]]


@dataclass(frozen=True)
class Example:
    """A program with its data.

    Parameters
    ----------
    name, title : str
        File name without ending, and one line.
    allocator : Allocator
        Where everything lies, and the constants.
    text : str
        The program.
    reference : callable
        What the program computes, in double precision, for a batch.
    tolerance : float
        Greatest error of a result on random data, relative to the largest magnitude of the reference.
    macs : int
        Multiply-accumulates of one run, without padding.
    """

    name: str
    title: str
    allocator: Allocator
    text: str
    reference: Callable[[FloatArray], FloatArray]
    tolerance: float
    macs: int

    def words(self) -> list[int]:
        """The assembled program."""
        return assemble(self.text)

    def image(self) -> Image:
        """Program and constants, ready to load."""
        return self.allocator.image(self.words(), {"name": self.name, "title": self.title, "macs": self.macs})

    def samples(self, count: int, seed: int = 0) -> FloatArray:
        """Random inputs, normally distributed, that are binary16 numbers."""
        values = np.random.default_rng(seed).normal(0, 1, (count, *self.allocator.inputs[0].shape))
        return values.astype(np.float16).astype(np.float64)

    def error(self, results: npt.ArrayLike, x: FloatArray) -> float:
        """Greatest error of results, relative to the largest magnitude of the reference."""
        reference = self.reference(x)
        return float(np.abs(np.asarray(results) - reference).max() / np.abs(reference).max())


def chain(text: str) -> list[str]:
    """The lines of one chain, which semicolons part in the text, the first one less indented."""
    first, *rest = text.split("; ")
    return [first, *(f"  {line}" for line in rest)]


def program(allocator: Allocator, size: dict[str, int], sections: list[Section]) -> str:
    """The text of a program: definitions of sizes, addresses and slots, then the sections, then ``halt``."""
    allocator.check()
    lines = ["# Sizes: native vectors, positions or steps."]
    lines += [f"{name} = {value}" for name, value in size.items()]
    for region, heading in _HEADINGS.items():
        items = [item for item in allocator.allocations.values() if item.region is region]
        if items:
            lines += ["", f"# {heading}"]
            lines += [f"{f'{item.name} = {item.addr}':<16}# {item.doc}" for item in items]
    for heading, body in sections:
        if body:
            lines += ["", f"# {heading}", *_indented(body)]
    return "\n".join([*lines, "", "halt", ""])


_HEADINGS = {
    RegionId.MATRIX: "Matrix memory.",
    RegionId.WIDE: "Wide memory.",
    RegionId.NARROW: "Narrow memory.",
    RegionId.SLOTS: "Table slots.",
}


def _indented(lines: list[str]) -> list[str]:
    """Indent the body of loops."""
    depth, out = 0, []
    for line in lines:
        depth -= line.startswith("end_loop")
        out.append("  " * depth + line)
        depth += line.startswith("loop")
    return out
