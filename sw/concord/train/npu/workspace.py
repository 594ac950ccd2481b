"""Words of the memories and tensor registers, taken for as long as something lies there."""

from __future__ import annotations

from dataclasses import dataclass, field

from concord.spec.config import NpuConfig
from concord.spec.integers import TENSORS


@dataclass
class MemorySpace:
    """Words of a memory, or registers: the first ones that are free are taken."""

    #: Parts that are free: first words and how many, in order.
    free: list[tuple[int, int]] = field(default_factory=list)
    #: Most words that are used at a time, from the first one on.
    used: int = 0
    _taken: dict[int, int] = field(default_factory=dict)
    _users: dict[int, int] = field(default_factory=dict)

    def take(self, count: int = 1) -> int:
        """Take so many neighbours; the first of them."""
        for k, (first, size) in enumerate(self.free):
            if size >= count:
                self.free[k : k + 1] = [(first + count, size - count)] if size > count else []
                break
        else:
            first = self.used
            if self.free and sum(self.free[-1]) == self.used:
                first = self.free.pop()[0]
            self.used = first + count
        self._taken[first], self._users[first] = count, 1
        return first

    def share(self, first: int) -> int:
        """Count one user more of what was taken, who will give it back."""
        self._users[first] += 1
        return first

    def give_back(self, first: int) -> None:
        """Count one user less of what was taken."""
        self._users[first] -= 1
        if self._users[first]:
            return
        joined: list[tuple[int, int]] = []
        for start, size in sorted([*self.free, (first, self._taken.pop(first))]):
            if joined and sum(joined[-1]) == start:
                joined[-1] = joined[-1][0], joined[-1][1] + size
            else:
                joined.append((start, size))
        self.free = joined

    @property
    def taken(self) -> int:
        """Words that are taken now."""
        return sum(self._taken.values())


@dataclass
class Workspace:
    """The memories and registers of an NPU: words of vector memories, tiles, and tensor registers."""

    config: NpuConfig
    narrow: MemorySpace = field(default_factory=MemorySpace)
    wide: MemorySpace = field(default_factory=MemorySpace)
    tiles: MemorySpace = field(default_factory=MemorySpace)
    registers: MemorySpace = field(default_factory=MemorySpace)

    def check(self) -> None:
        """``ValueError`` with everything that is too small."""
        config = self.config
        needed = (
            ("words of the narrow memory", self.narrow.used, config.narrow_depth),
            ("words of the wide memory", self.wide.used, config.wide_depth),
            ("words of the matrix memory", self.tiles.used * config.steps, config.matrix_depth),
            ("tensor registers", self.registers.used, TENSORS),
        )
        small = [f"{count} {what}, not {there}" for what, count, there in needed if count > there]
        if small:
            raise ValueError(f"training on the NPU needs {', '.join(small)}")
