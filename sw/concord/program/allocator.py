"""The memory map of one program: which name has which addresses in which memory, and what the constants are.

Addresses are given from 0 upwards in the order of the calls; words that were given back come first. Nothing fails while
memory is allocated. :meth:`Allocator.check` then reports everything that does not fit, with the largest allocations of
every memory that overflows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.functions.tables import Table, TableSet, standard_table
from concord.image import Image, MemorySegment, Phase, Port, PortRange, State
from concord.image.packing import depthwise_words, matrix_words, pack_depthwise, pack_matrix, pack_narrow, pack_vectors
from concord.program import Span, verify_phases
from concord.spec.config import NpuConfig
from concord.spec.integers import TENSORS
from concord.spec.isa import COPY_UNIT
from concord.spec.memmap import RegionId
from concord.spec.operations import Op
from concord.utils.arrays import FloatArray

#: What follows the name of weights in that of those of them that are in the external memory.
COPIED = ", copied"
_LISTED = 5


class CapacityError(ValueError):
    """A program that does not fit into the memories of a configuration.

    Parameters
    ----------
    message : str
        Why.
    short : dict, optional
        Words that there are and that are needed, by the memory that is too small.
    """

    def __init__(self, message: str, short: Mapping[RegionId, tuple[int, int]] | None = None):
        self.short = dict(short or {})
        super().__init__(message)

    @property
    def excess(self) -> float:
        """Words that it takes over words that there are, in the memory that is worst off."""
        return max((need / have for have, need in self.short.values()), default=1.0)


@dataclass(frozen=True)
class Allocation:
    """One allocation in a memory: ``count`` words, or units of its space, from ``addr`` on."""

    name: str
    region: RegionId
    addr: int
    count: int
    doc: str

    @property
    def span(self) -> Span:
        """The words it occupies."""
        return Span(self.region, self.addr, self.count)


@dataclass
class MemorySpace:
    """Words of a memory, or registers: the first ones that are free are taken, and may be given back.

    Parameters
    ----------
    unit : int
        Words of the memory for each that is counted here.

    Members
    -------
    used : int
        Most that are used at a time, from the first one on.
    taken : int
        How many are taken now.
    """

    unit: int = 1
    used: int = 0
    taken: int = 0
    #: Neighbours that are taken: their number and their users, by the first of them.
    _parts: dict[int, tuple[int, int]] = field(default_factory=dict)

    def take(self, count: int = 1) -> int:
        """Take so many neighbours; the first of them."""
        first = self.used if self.taken == self.used else 0
        for start, (size, _) in sorted(self._parts.items()) if not first else ():
            if start - first >= count:
                break
            first = start + size
        self._parts[first] = count, 1
        self.taken += count
        self.used = max(self.used, first + count)
        return first

    @contextmanager
    def lent(self, count: int = 1) -> Iterator[int]:
        """Take so many neighbours for a block of statements; the first of them."""
        first = self.take(count)
        yield first
        self.give_back(first)

    def share(self, first: int, more: int = 1) -> int:
        """Count one user more of what was taken, who will give it back."""
        count, users = self._parts[first]
        self._parts[first] = count, users + more
        return first

    def give_back(self, first: int) -> None:
        """Count one user less of what was taken; without any it is free."""
        self.share(first, -1)
        count, users = self._parts[first]
        if not users:
            self.taken -= count
            del self._parts[first]


@dataclass
class Allocator:
    """Allocates words in the memories of ``config``: by name, or for some time in one of its ``spaces``."""

    config: NpuConfig
    allocations: dict[str, Allocation] = field(default_factory=dict)
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    segments: list[Callable[[], MemorySegment]] = field(default_factory=list)
    constants: dict[str, Span] = field(default_factory=dict)
    spaces: dict[RegionId, MemorySpace] = field(default_factory=lambda: defaultdict(MemorySpace))

    def __post_init__(self) -> None:
        self.tables = TableSet(self.config)
        self.spaces[RegionId.DRAM] = MemorySpace(COPY_UNIT)

    def __getitem__(self, name: str) -> int:
        """Address of an allocation."""
        return self.allocations[name].addr

    def tiles(self, elements: int) -> int:
        """Native vectors that hold ``elements``."""
        return -(-elements // self.config.native)

    def allocate(self, name: str, region: RegionId, count: int, doc: str = "") -> int:
        """Give ``count`` words of a memory to ``name`` and return the first address."""
        if name in self.allocations:
            raise ValueError(f"name must be new, not {name!r}")
        addr = self.spaces[region].take(count)
        self.allocations[name] = Allocation(name, region, addr, count, doc)
        return addr

    def wide(self, name: str, count: int, doc: str = "") -> int:
        """Allocate wide vectors."""
        return self.allocate(name, RegionId.WIDE, count, doc)

    def narrow(self, name: str, count: int, doc: str = "") -> int:
        """Allocate narrow vectors."""
        return self.allocate(name, RegionId.NARROW, count, doc)

    def constant(self, name: str, values: npt.ArrayLike, doc: str = "") -> int:
        """Allocate wide vectors that hold ``values``, padded with zeros."""
        words = pack_vectors(values, self.config)
        addr = self.wide(name, len(words), doc)
        self._load(name, RegionId.WIDE, addr, lambda: words)
        return addr

    def narrow_constant(self, name: str, values: npt.ArrayLike) -> int:
        """Allocate narrow vectors that hold ``values``, as :func:`concord.image.packing.pack_narrow` writes them."""
        words = pack_narrow(values, self.config)
        addr = self.narrow(name, len(words))
        self._load(name, RegionId.NARROW, addr, lambda: words)
        return addr

    def input(self, name: str, shape: tuple[int, ...], doc: str = "", region: RegionId = RegionId.WIDE) -> int:
        """Allocate vectors, wide unless told otherwise, for a tensor that is written before every run."""
        return self._port(self.inputs, name, shape, doc, region)

    def output(self, name: str, shape: tuple[int, ...], doc: str = "", region: RegionId = RegionId.WIDE) -> int:
        """Allocate vectors, wide unless told otherwise, for a tensor that is read after every run."""
        return self._port(self.outputs, name, shape, doc, region)

    def _port(self, ports: list[Port], name: str, shape: tuple[int, ...], doc: str, region: RegionId) -> int:
        addr = self.allocate(name, region, math.prod(shape[:-1]) * self.tiles(shape[-1]), doc)
        ports.append(Port(name, region, addr, shape))
        return addr

    def matrix(self, name: str, weight: FloatArray, doc: str = "", mant: int | None = None) -> int:
        """Allocate a dense matrix: outputs by inputs, or ``[output, ky, kx, input]`` of a convolution.

        ``mant`` are the bits of the mantissas, if fewer than those of the configuration.
        """
        count = matrix_words(self.config, weight.shape[0], weight.shape[-1], math.prod(weight.shape[1:-1]))
        addr = self.allocate(name, RegionId.MATRIX, count, doc)
        self._load(name, RegionId.MATRIX, addr * self.config.rows, lambda: pack_matrix(weight, self.config, mant=mant))
        return addr

    def columns(self, name: str, columns: Callable[[], npt.NDArray[np.uint16]], count: int, doc: str = "") -> int:
        """Allocate ``count`` columns of the external memory that copies read; returns their address in units of them.

        ``columns`` gives what is loaded; it is called only when an image is made.
        """
        unit = self.allocate(name, RegionId.DRAM, -(-count // COPY_UNIT), doc)
        self.constants[name] = Span(RegionId.DRAM, unit * COPY_UNIT, count)
        self.segments.append(
            lambda: MemorySegment(RegionId.DRAM, unit * COPY_UNIT, 2, columns().astype("<u2").tobytes())
        )
        return unit

    def written_matrix(self, name: str, words: int, zeros: Span | None = None, doc: str = "") -> int:
        """Allocate words of the matrix memory that the program writes.

        Parameters
        ----------
        name, words, doc
            What it is called, how much it takes, and what it is for.
        zeros : Span, optional
            Rows of some of these words, counted from the first one, that are zero from the start and stay so.
        """
        addr = self.allocate(name, RegionId.MATRIX, words, doc)
        if zeros is not None:
            first, count = addr + zeros.addr, zeros.count
            nothing = np.zeros((self.config.rows, count // self.config.steps * self.config.native))
            self._load(name, RegionId.MATRIX, first * self.config.rows, lambda: pack_matrix(nothing, self.config))
            self.constants[name] = replace(zeros, addr=first)
        return addr

    def depthwise(
        self, name: str, weight: FloatArray, doc: str = "", mant: int | None = None, sliding: bool = False
    ) -> int:
        """Allocate the kernels of a depthwise convolution: ``[channel, ky, kx]``; ``mant`` as for :meth:`matrix`.

        ``sliding`` lays them out for sliding products.
        """
        count = depthwise_words(self.config, weight.shape[0], math.prod(weight.shape[1:]))
        addr = self.allocate(name, RegionId.MATRIX, count, doc)
        start = addr * self.config.rows
        self._load(
            name, RegionId.MATRIX, start, lambda: pack_depthwise(weight, self.config, mant=mant, sliding=sliding)
        )
        return addr

    def share(self, name: str, other: str) -> int:
        """Give ``name`` the words of another allocation, whose contents are equal, and return the first address."""
        if name in self.allocations:
            raise ValueError(f"name must be new, not {name!r}")
        there = self.allocations[other]
        self.allocations[name] = Allocation(name, there.region, there.addr, 0, f"those of {other}")
        return there.addr

    def _load(self, name: str, region: RegionId, start: int, words: Callable[[], list[int]]) -> None:
        """Note what is loaded; packed only when an image is made, after the check that everything fits."""
        self.constants[name] = self.allocations[name].span
        self.segments.append(lambda: MemorySegment.from_words(region, start, words(), self.config))

    def table(self, name: str, table: Table, doc: str = "") -> int:
        """Store a table and return its slot; equal tables share one."""
        if name in self.allocations:
            raise ValueError(f"name must be new, not {name!r}")
        try:
            slot = self.tables.add(table)
        except ValueError as error:
            raise CapacityError(f"does not fit into {self.config.name}: {error}") from error
        self.allocations[name] = Allocation(
            name, RegionId.SLOTS, slot, 1, doc or f"{name}, {len(table.entries)} entries"
        )
        self.constants[name] = self.allocations[name].span
        return slot

    def entries(self, name: str, entries: tuple[int, ...]) -> None:
        """Store entries of which several tables have a part; :class:`CapacityError` if they do not fit."""
        try:
            self.tables.store(name, entries)
        except ValueError as error:
            raise CapacityError(f"does not fit into {self.config.name}: {error}") from error

    def sigmoid_tables(self) -> None:
        """Store the tables ``sigm`` and ``tanh``, each in half of the table memory."""
        room = self.config.table_depth // 2
        self.table("sigm", standard_table("sigmoid", self.config, room), "sigmoid")
        self.table("tanh", standard_table("tanh", self.config, room), "hyperbolic tangent")

    def map(self) -> list[dict[str, Any]]:
        """Allocations with memory, address, words (of all tile engines, in matrix memory), name, doc."""
        return [
            {
                "memory": item.region.name.lower(),
                "address": item.addr,
                "words": item.count,
                "name": item.name,
                "doc": item.doc,
            }
            for item in self.allocations.values()
        ]

    def image(self, words: list[int], metadata: dict[str, Any] | None = None) -> Image:
        """The image of a program on this allocator, as :meth:`linked` makes it, after :meth:`verify`."""
        made = self.linked(words, metadata)
        self.verify(made)
        return made

    def linked(self, words: list[int], metadata: dict[str, Any] | None = None) -> Image:
        """Program and constants as one image; its metadata have the :meth:`map`.

        Raises
        ------
        CapacityError
            With everything that does not fit.
        """
        self.check(len(words))
        tables = [
            MemorySegment.from_words(RegionId.TABLE, 0, self.tables.memory().tolist(), self.config),
            MemorySegment.from_words(RegionId.SLOTS, 0, self.tables.slots(), self.config),
        ]
        return Image(
            config=self.config,
            program=tuple(words),
            segments=(
                *(make() for make in self.segments),
                *(part for part in tables if part.count),
                *(self._first(state) for state in self.states),
            ),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            phases=tuple(self.phases),
            states=tuple(self.states),
            metadata={"map": self.map()} | (metadata or {}),
        )

    def _first(self, state: State) -> MemorySegment:
        """Words with which a state begins."""
        port, words = state.port, state.first_words(self.config)
        return MemorySegment.from_words(port.region, port.address, words, self.config)

    def verify(self, image: Image) -> None:
        """Prove that the program of an image on this allocator is sound.

        Raises
        ------
        ValueError
            With everything that :func:`concord.program.verify` finds.
        """
        carried = image.carried
        problems = verify_phases(
            image.program,
            self.config,
            [
                (phase.pc, _spans(phase.inputs, carried.inputs), _spans(phase.outputs, carried.outputs))
                for phase in carried.schedule()
            ],
            constants=[self.constants[name] for name in sorted(self.constants)],
        )
        if problems:
            raise ValueError("the program is not sound: " + "; ".join(map(str, problems)))

    def used(self, region: RegionId) -> int:
        """Words that are taken."""
        return self.spaces[region].used * self.spaces[region].unit

    def check(self, program_words: int = 0) -> None:
        """Raise :class:`CapacityError` with everything that does not fit."""
        config = self.config
        memories = {
            RegionId.PROGRAM: ("program memory", config.program_depth, program_words, "words"),
            RegionId.MATRIX: ("matrix memory", config.matrix_depth, self.used(RegionId.MATRIX), "words"),
            RegionId.NARROW: ("narrow memory", config.narrow_depth, self.used(RegionId.NARROW), "vectors"),
            RegionId.WIDE: ("wide memory", config.wide_depth, self.used(RegionId.WIDE), "vectors"),
            RegionId.TENSORS: ("register file", TENSORS, self.used(RegionId.TENSORS), "tensor registers"),
        }
        if config.has(Op.COPY):
            memories[RegionId.DRAM] = "external memory", config.sdram.columns, self.used(RegionId.DRAM), "columns"
        short = {region: memory for region, memory in memories.items() if memory[2] > memory[1]}
        if short:
            problems = [
                f"{title} has {have} {unit}, but {need} are needed{self._largest(region)}"
                for region, (title, have, need, unit) in short.items()
            ]
            raise CapacityError(
                f"does not fit into {config.name}: " + "; ".join(problems),
                {region: (have, need) for region, (_, have, need, _) in short.items()},
            )

    def _largest(self, region: RegionId) -> str:
        """The largest allocations of a memory that has some, one of them what is taken for some time."""
        unit = self.spaces[region].unit
        sizes = {item.name: item.count * unit for item in self.allocations.values() if item.region is region}
        if not sizes:
            return ""
        if (passing := self.used(region) - sum(sizes.values())) > 0:
            sizes["for some time"] = passing
        listed = ", ".join(f"{name} {size}" for name, size in sorted(sizes.items(), key=_size)[:_LISTED])
        return f" ({listed}{f' and {len(sizes) - _LISTED} more' if len(sizes) > _LISTED else ''})"


def _size(item: tuple[str, int]) -> int:
    """Key that sorts the largest one first."""
    return -item[1]


def _spans(parts: Iterable[PortRange], ports: Iterable[Port]) -> list[Span]:
    regions = {port.name: port.region for port in ports}
    return [Span(regions[part.port], part.address, part.count) for part in parts]
