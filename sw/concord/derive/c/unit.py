"""A translation unit in the making: its constants, functions and buffers. It knows nothing of arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import numpy.typing as npt

from concord.derive.c.memory import Buffer
from concord.derive.c.texts import number_array
from concord.derive.names import Names

WEIGHTS, TABLES = "CONCORD_WEIGHTS", "CONCORD_TABLES"


class Unit:
    """Collects the parts of a file.

    Members
    -------
    names : Names
        Of everything in the file.
    constants, functions : list of str
        Texts.
    buffers : list of Buffer
        Pieces of the arena.
    rom : dict of str to int
        Bytes of constants by section.
    """

    def __init__(self, names: Names):
        self.names = names
        self.constants: list[str] = []
        self.functions: list[str] = []
        self.buffers: list[Buffer] = []
        self.rom = {WEIGHTS: 0, TABLES: 0}
        self._known: dict[tuple[str, str, bytes], str] = {}

    def constant(self, values: npt.ArrayLike, kind: str, section: str, *words: str) -> str:
        """The name of a constant array of integers; equal ones are there once."""
        array = np.ascontiguousarray(np.asarray(values)).reshape(-1).astype(kind)
        key = (kind, section, array.tobytes())
        if key not in self._known:
            self._known[key] = self.names.new(*words)
            self.constants.append(number_array(f"{kind}_t", self._known[key], array.tolist(), section))
            self.rom[section] += array.nbytes
        return self._known[key]

    def buffer(self, kind: str, elements: int, *words: str) -> Buffer:
        """A new piece of the arena."""
        buffer = Buffer(self.names.new(*words), kind, elements)
        self.buffers.append(buffer)
        return buffer


class CodeLines:
    """Lines of a function, with braces."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 1

    def add(self, *lines: str) -> None:
        """Add lines."""
        self.lines += ["    " * self._depth + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines in braces after a head."""
        self.add(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.add("}")

    @contextmanager
    def loop(self, variable: str, count: int) -> Iterator[None]:
        """A loop from 0 on."""
        with self.block(f"for (int32_t {variable} = 0; {variable} < {count}; ++{variable})"):
            yield

    @contextmanager
    def loops(self, variables: Sequence[str], counts: Sequence[int]) -> Iterator[None]:
        """Loops inside each other; braces if there are none."""
        with ExitStack() as stack:
            for variable, count in zip(variables, counts, strict=True):
                stack.enter_context(self.loop(variable, count))
            if not variables:
                stack.enter_context(self.block(""))
            yield
