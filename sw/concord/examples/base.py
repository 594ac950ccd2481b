"""What all example programs have in common: text, constants, data and the float reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.asm import assemble
from concord.sheet import Sheet, from_vectors, to_vectors
from concord.spec.memmap import RegionId

Floats = npt.NDArray[np.float64]
#: A heading and the lines below it.
Section = tuple[str, list[str]]


@dataclass(frozen=True)
class Example:
    """A program with its data.

    Parameters
    ----------
    name, title : str
        File name without ending, and one line.
    sheet : Sheet
        Where everything lies, and the constants.
    text : str
        The program.
    input_shape, output_shape : tuple of int
        Shape of one sample and of its result; the last axis is the one that is cut into native vectors.
    reference : callable
        What the program computes, in double precision, for a batch.
    tolerance : float
        Greatest error of a result on random data, relative to the largest magnitude of the reference.
    macs : int
        Multiply-accumulates of one run, without padding.
    """

    name: str
    title: str
    sheet: Sheet
    text: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    reference: Callable[[Floats], Floats]
    tolerance: float
    macs: int

    def words(self) -> list[int]:
        """The assembled program."""
        return assemble(self.text)

    def samples(self, count: int, seed: int = 0) -> Floats:
        """Random inputs, normally distributed, as binary16 numbers."""
        values = np.random.default_rng(seed).normal(0, 1, (count, *self.input_shape))
        return values.astype(np.float16).astype(np.float64)

    def to_input(self, x: Floats) -> Floats:
        """A batch of samples as wide vectors: ``[n, vectors, native]``."""
        native = self.sheet.config.native
        return to_vectors(x, native).reshape(len(x), -1, native)

    def from_output(self, vectors: npt.ArrayLike) -> Floats:
        """A batch of results from wide vectors."""
        array = np.asarray(vectors, dtype=np.float64)
        split = array.reshape(len(array), *self.output_shape[:-1], -1, self.sheet.config.native)
        return from_vectors(split, self.output_shape[-1])


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x))."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def chain(first: str, *rest: str) -> list[str]:
    """The lines of one chain, the first one less indented."""
    return [first, *(f"  {line}" for line in rest)]


def program(sheet: Sheet, size: dict[str, int], sections: list[Section]) -> str:
    """The text of a program: definitions of sizes, addresses and slots, then the sections, then ``halt``."""
    sheet.check()
    lines = ["# Sizes: native vectors, positions or steps."]
    lines += [f"{name} = {value}" for name, value in size.items()]
    for region, heading in _HEADINGS.items():
        items = [item for item in sheet.items.values() if item.region is region]
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
