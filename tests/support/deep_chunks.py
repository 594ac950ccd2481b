"""Deep tests in pieces that a process runs: by file, divided among machines, and cut to the time that is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

#: Seconds that a process may take by what is known of its tests: files with more are cut.
LONGEST = 300.0
#: Seconds of a process before its first test.
START = 5.0
Expected = Callable[[str], float]


@dataclass(frozen=True)
class Chunk:
    """Tests of a file that a process runs.

    Parameters
    ----------
    file : str
        From the root of the project.
    tests : tuple of str
        Node ids, in the order of the file.
    seconds : float
        What they are expected to take.
    """

    file: str
    tests: tuple[str, ...]
    seconds: float

    def of(self, tests: Iterable[str], expected: Expected) -> Chunk:
        """Some of the tests."""
        chosen = set(tests)
        kept = tuple(test for test in self.tests if test in chosen)
        return replace(self, tests=kept, seconds=sum(map(expected, kept)))

    def fitting(self, seconds: float, expected: Expected) -> Chunk:
        """The first tests, as many as end in so many seconds; maybe none."""
        left, count = seconds - START, 0
        while count < len(self.tests) and (left := left - expected(self.tests[count])) >= 0:
            count += 1
        return self.of(self.tests[:count], expected)


def in_chunks(tests: Iterable[str], expected: Expected) -> list[Chunk]:
    """Chunks with all tests, each of one file and not above ``LONGEST`` unless it is a single test."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    chunks = []
    for file, its in files.items():
        own: list[str] = []
        for test in its:
            if own and sum(map(expected, [*own, test])) > LONGEST:
                chunks.append(Chunk(file, tuple(own), sum(map(expected, own))))
                own = []
            own.append(test)
        chunks.append(Chunk(file, tuple(own), sum(map(expected, own))))
    return chunks


def shard_of(chunks: Sequence[Chunk], number: int, count: int) -> list[Chunk]:
    """Chunks of the ``number``-th of ``count`` machines, of which all are expected to take about as long.

    The longest chunk goes to the machine with the least so far; equal figures give the same parts everywhere.
    """
    if not 1 <= number <= count:
        raise ValueError(f"shard must be one of 1/{count} to {count}/{count}, not {number}/{count}")
    loads, mine = [0.0] * count, []
    for chunk in sorted(chunks, key=lambda chunk: (-chunk.seconds, chunk.tests)):
        place = loads.index(min(loads))
        loads[place] += START + chunk.seconds
        if place == number - 1:
            mine.append(chunk)
    return mine
