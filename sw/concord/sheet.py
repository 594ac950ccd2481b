"""The memory sheet of one program: which name lies where in which memory, and what the constants are.

Allots addresses from 0 upwards in the order of the calls. Nothing fails while allotting; :meth:`Sheet.check` says
everything that does not fit at once, with the largest tenants of every memory that overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from concord.program import Span
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId

Floats = npt.NDArray[np.float64]
Function = Callable[[Floats], npt.ArrayLike]

_LISTED = 5
_UNITS = {
    RegionId.MATRIX: ("matrix memory", "words"),
    RegionId.NARROW: ("narrow memory", "vectors"),
    RegionId.WIDE: ("wide memory", "vectors"),
    RegionId.TABLE: ("table memory", "entries"),
    RegionId.SLOTS: ("table slots", "slots"),
    RegionId.PROGRAM: ("program memory", "words"),
}


@dataclass(frozen=True)
class TableSpec:
    """What a table holds: ``function(code * 2**-scale)`` for the codes ``low..high``."""

    function: Function
    low: int
    high: int
    scale: int


class CapacityError(ValueError):
    """A program that does not fit into the memories of a configuration."""


@dataclass(frozen=True)
class Item:
    """One tenant of a memory: ``count`` words from ``addr`` on."""

    name: str
    region: RegionId
    addr: int
    count: int
    doc: str

    @property
    def span(self) -> Span:
        """The words it occupies."""
        return Span(self.region, self.addr, self.count)


def tiles(elements: int, native: int) -> int:
    """Native vectors that hold ``elements``."""
    return -(-elements // native)


def to_vectors(values: npt.ArrayLike, native: int) -> Floats:
    """Split the last axis into native vectors, padded with zeros: ``[..., n]`` to ``[..., tiles, native]``."""
    array = np.asarray(values, dtype=np.float64)
    count = tiles(array.shape[-1], native)
    padded = np.zeros((*array.shape[:-1], count * native))
    padded[..., : array.shape[-1]] = array
    return padded.reshape(*array.shape[:-1], count, native)


def from_vectors(vectors: npt.ArrayLike, elements: int) -> Floats:
    """Inverse of :func:`to_vectors`: ``[..., tiles, native]`` to ``[..., elements]``."""
    array = np.asarray(vectors, dtype=np.float64)
    return array.reshape(*array.shape[:-2], -1)[..., :elements]


@dataclass
class Sheet:
    """Tenants of the memories of ``config``, by name."""

    config: NpuConfig
    items: dict[str, Item] = field(default_factory=dict)
    constants: dict[str, Floats] = field(default_factory=dict)
    weights: dict[str, Floats] = field(default_factory=dict)
    tables: dict[str, TableSpec] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    _used: dict[RegionId, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        """Address of a tenant."""
        return self.items[name].addr

    def tiles(self, elements: int) -> int:
        """Native vectors that hold ``elements``."""
        return tiles(elements, self.config.native)

    def allot(self, name: str, region: RegionId, count: int, doc: str = "") -> int:
        """Give ``count`` words of a memory to ``name`` and return the first address."""
        if name in self.items:
            raise ValueError(f"name must be new, not {name!r}")
        addr = self._used.get(region, 0)
        self._used[region] = addr + count
        self.items[name] = Item(name, region, addr, count, doc)
        return addr

    def wide(self, name: str, count: int, doc: str = "") -> int:
        """Allot wide vectors."""
        return self.allot(name, RegionId.WIDE, count, doc)

    def narrow(self, name: str, count: int, doc: str = "") -> int:
        """Allot narrow vectors."""
        return self.allot(name, RegionId.NARROW, count, doc)

    def constant(self, name: str, values: npt.ArrayLike, doc: str = "") -> int:
        """Allot wide vectors that hold ``values``, padded with zeros."""
        vectors = to_vectors(values, self.config.native).reshape(-1, self.config.native)
        self.constants[name] = vectors
        return self.wide(name, len(vectors), doc)

    def input(self, name: str, count: int, doc: str = "") -> int:
        """Allot wide vectors that are written before every run."""
        self.inputs.append(name)
        return self.wide(name, count, doc)

    def output(self, name: str, count: int, doc: str = "") -> int:
        """Allot wide vectors that are read after every run."""
        self.outputs.append(name)
        return self.wide(name, count, doc)

    def matrix(self, name: str, weight: npt.ArrayLike, doc: str = "") -> int:
        """Allot a dense matrix: outputs by inputs, or ``[output, ky, kx, input]`` of a convolution."""
        array = np.asarray(weight, dtype=np.float64)
        array = array[:, None, None, :] if array.ndim == 2 else array
        outputs, height, width, inputs = array.shape
        groups = -(-self.tiles(outputs) // self.config.engines)
        self.weights[name] = array
        return self.allot(name, RegionId.MATRIX, groups * height * width * self.tiles(inputs) * self.config.steps, doc)

    def depthwise(self, name: str, weight: npt.ArrayLike, doc: str = "") -> int:
        """Allot the kernels of a depthwise convolution: ``[channel, ky, kx]``."""
        array = np.asarray(weight, dtype=np.float64)
        channels, height, width = array.shape
        self.weights[name] = array
        return self.allot(name, RegionId.MATRIX, self.tiles(channels) * -(-height * width // self.config.lanes), doc)

    def table(self, name: str, function: Function, low: int, high: int, scale: int, doc: str = "") -> int:
        """Allot a table of ``function`` for the codes ``low..high``, in units of ``2**-scale``; return its slot."""
        self.tables[name] = TableSpec(function, low, high, scale)
        self.allot(f"{name} entries", RegionId.TABLE, high - low + 1)
        return self.allot(name, RegionId.SLOTS, 1, doc or f"{name}, {high - low + 1} entries")

    def sigmoid_tables(self) -> None:
        """Allot the tables ``sigm`` and ``tanh``, each half of the table memory: -8..8 and -4..4."""
        half = self.config.table_depth // 4 - 1
        scale = (half // 4).bit_length()
        self.table("sigm", lambda x: 1.0 / (1.0 + np.exp(-x)), -half - 1, half, scale - 1, "sigmoid")
        self.table("tanh", np.tanh, -half - 1, half, scale, "hyperbolic tangent")

    def used(self, region: RegionId) -> int:
        """Words that are taken."""
        return self._used.get(region, 0)

    def capacity(self, region: RegionId) -> int:
        """Words that there are."""
        config = self.config
        return {
            RegionId.MATRIX: config.matrix_depth,
            RegionId.NARROW: config.narrow_depth,
            RegionId.WIDE: config.wide_depth,
            RegionId.TABLE: config.table_depth,
            RegionId.SLOTS: config.table_slots,
            RegionId.PROGRAM: config.program_depth,
        }[region]

    def check(self) -> None:
        """Raise :class:`CapacityError` with everything that does not fit."""
        if problems := list(self._problems()):
            raise CapacityError(f"does not fit into {self.config.name}: " + "; ".join(problems))

    def _problems(self) -> Iterator[str]:
        for region, (title, unit) in _UNITS.items():
            need, have = self.used(region), self.capacity(region)
            if need <= have:
                continue
            tenants = sorted((i for i in self.items.values() if i.region is region), key=lambda i: -i.count)
            listed = ", ".join(f"{item.name} {item.count}" for item in tenants[:_LISTED])
            more = f" and {len(tenants) - _LISTED} more" if len(tenants) > _LISTED else ""
            yield f"{title} has {have} {unit}, but {need} are needed ({listed}{more})"
