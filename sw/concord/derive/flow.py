"""The symbolic run: what every vector of a program is made of.

Programs have no branches, so all chains of a run, and all their addresses, are known without any input. This module
executes the control instructions, keeps for every word of the vector memories which vector it holds, and notes for
every chain which vectors it reads: reaching definitions, at the granularity of vectors. The order rules of docs/isa.md
count: a chain whose vectors read what others of the same chain write is cut into the segments of
:meth:`concord.program.access.Access.segments`. The same is kept for rows of the matrix memory that the program writes;
a dense product that reads one of them has vectors as weights.

Vectors are numbered (*vids*). Vector v has N elements; an element of its own has the number ``v * N + lane`` (*eid*),
and constants have negative ones: ``-1 - pattern``. A copy from memory to memory makes no vector: what it writes is what
it has read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, cached_property, partial

import numpy as np
import numpy.typing as npt

from concord.golden import binary16, blocks
from concord.image import Image, Memories
from concord.program import Chain, Quant, Trace, trace
from concord.program.access import VECTORS, Access, Segment
from concord.program.allocator import COPIED
from concord.program.chains import VectorCopy
from concord.program.flags import where_of
from concord.program.matrix_writes import row_words
from concord.program.vector_copies import ExternalVectors
from concord.program.weights import ProductWeights, weights_key
from concord.spec.config import NpuConfig
from concord.spec.formats import BlockFormat, ExponentMode, Rounding
from concord.spec.isa import COPY_UNIT, Mem, Op, Trap
from concord.spec.memmap import RegionId
from concord.utils.arrays import FloatArray, Ids

#: Element that a tap outside of the image reads.
OUTSIDE = -1


class SourceKind(Enum):
    """First value of a chain."""

    COPY = "copy"
    DENSE = "dense"
    DEPTHWISE = "depthwise"
    MAXIMUM = "max"
    REDUCE = "redmax"


@dataclass(frozen=True)
class InstanceOp:
    """An operation of a multifunction unit: with operand vectors ``[positions, rows]``, a table slot, or neither."""

    op: Op
    operand: Ids | None = None
    table: int | None = None

    def with_rows(self, other: InstanceOp) -> InstanceOp:
        """The operation for more rows of the same positions."""
        if self.operand is None or other.operand is None:
            return self
        return replace(self, operand=np.concatenate([self.operand, other.operand], axis=1))


@dataclass(eq=False)
class Instance:
    """One execution of a chain, or of a part of one.

    Parameters
    ----------
    number : int
        Number in the order of execution, from 0 on.
    pc : int
        Address of the ``v_rd``; -1 for the conversion of an input.
    layer : str
        Of the program.
    where : str
        What its flags belong to, as in :mod:`concord.program.flags`; empty where there are none.
    mem : Mem
        Memory of the source.
    kind : SourceKind
    shape : tuple of int
        Outer, inner, rows.
    source : Ids ``[positions, rows, taps * cols]``
        Vectors; one row of them for a dense product.
    taps : tuple of int
        Height and width of the window, and columns of a tap.
    weight : FloatArray or None
        ``[rows, N, K]``, exact.
    weight_key : tuple
        Equal for equal weights, or where the program writes them.
    matrix : Ids ``[1, rows, N, taps * cols]`` or None
        Of a dense product whose weights the program writes, if only some of them: the vectors that are its weights.
    mfu_ops : tuple of InstanceOp
    wide, narrow : Ids ``[positions, rows]`` or None
        Vectors of the value, and of its conversion; ``wide`` is the source where nothing is computed.
    quant : Quant
        Of the conversion.
    form : BlockFormat or None
        What it converts to: that of weights for rows of the matrix memory.
    noise : array ``[positions, rows, N]`` or None
    copied : tuple of (str, int) or None
        Of a product with weights of which some are copied, their name and their first column in the external memory;
        -1 for those that stay in the matrix memory.
    """

    number: int
    pc: int
    layer: str
    where: str
    mem: Mem
    kind: SourceKind
    shape: tuple[int, int, int]
    source: Ids
    taps: tuple[int, int, int]
    wide: Ids
    weight: FloatArray | None = None
    weight_key: tuple[object, ...] = ()
    matrix: Ids | None = None
    mfu_ops: tuple[InstanceOp, ...] = ()
    narrow: Ids | None = None
    quant: Quant = field(default_factory=Quant)
    form: BlockFormat | None = None
    noise: npt.NDArray[np.uint16] | None = None
    copied: tuple[str, int] | None = None

    def goes_on(self, other: Instance) -> bool:
        """True if another product is that of the same vectors with the next block of the same copied weights.

        What else it reads must be older than this one.
        """
        if self.copied is None or other.copied is None or self.weight is None or other.weight is None:
            return False
        (name, column), (next_name, next_column) = self.copied, other.copied
        alike = self.shape[:2] == other.shape[:2] and np.array_equal(self.source, other.source)
        older = all(ids.max() < self.wide.min() for ids in other.reads())
        return name == next_name and column < next_column and alike and older and self.noise is None

    def add_rows(self, other: Instance) -> None:
        """Take over the rows of a product that :meth:`goes_on`."""
        assert self.weight is not None and other.weight is not None
        self.shape = *self.shape[:2], self.shape[2] + other.shape[2]
        self.wide = np.concatenate([self.wide, other.wide], axis=1)
        if self.narrow is not None and other.narrow is not None:
            self.narrow = np.concatenate([self.narrow, other.narrow], axis=1)
        self.weight = np.concatenate([self.weight, other.weight])
        self.weight_key = "blocks", self.weight_key, other.weight_key
        self.mfu_ops = tuple(first.with_rows(more) for first, more in zip(self.mfu_ops, other.mfu_ops, strict=True))
        self.copied = other.copied

    @property
    def positions(self) -> int:
        """Outer times inner."""
        return self.shape[0] * self.shape[1]

    @property
    def computes(self) -> bool:
        """True if the value is more than a copy."""
        return self.kind is not SourceKind.COPY or bool(self.mfu_ops)

    def reads(self) -> list[Ids]:
        """Vectors that are read: the source, operands, and those of the matrix."""
        operands = [mfu_op.operand for mfu_op in self.mfu_ops if mfu_op.operand is not None]
        return [self.source, *operands, *([] if self.matrix is None else [self.matrix])]


@dataclass(frozen=True)
class Store:
    """Vectors that a chain writes, those of one pass.

    Parameters
    ----------
    chain : int
        Number of chains that were dispatched before it, in all phases.
    pc : int
        Address of its ``v_rd``.
    mem : Mem
    address, vectors, number : Ids ``[vectors]``
        Words, what is written there, and which vector of the chain it is: ``position * rows + row``.
    """

    chain: int
    pc: int
    mem: Mem
    address: Ids
    vectors: Ids
    number: Ids


@dataclass
class Flow:
    """Results of a symbolic run.

    Parameters
    ----------
    config : NpuConfig
    instances : list of Instance
        In the order of execution.
    elements : Ids ``[vectors, N]``
        Elements of every vector: eids, or constants.
    inputs : dict of Ids
        By port, the eid of every element of what the host is given.
    outputs : dict of Ids
        By port, its vectors.
    memories : Memories
        With the tables.
    stores : list of Store
        In the order of execution.
    """

    config: NpuConfig
    instances: list[Instance]
    elements: Ids
    inputs: dict[str, Ids]
    outputs: dict[str, Ids]
    memories: Memories
    stores: list[Store] = field(default_factory=list)


def constant(patterns: npt.NDArray[np.uint16]) -> Ids:
    """Numbers of constant elements."""
    return np.asarray(-1 - patterns.astype(np.int64))


def pattern(eids: Ids) -> npt.NDArray[np.uint16]:
    """Inverse of :func:`constant`."""
    return np.asarray(-1 - eids).astype(np.uint16)


def symbolic_run(image: Image, inputs: dict[str, Ids], sizes: dict[str, int], pc: int = 0, flags: bool = False) -> Flow:
    """Run a program symbolically.

    Parameters
    ----------
    image : Image
        Program and constants.
    inputs : dict of Ids
        By input port, for every element ``[vectors, N]`` the number of the element that the host is given, or a
        constant (negative).
    sizes : dict of int
        By input port, elements that the host is given.
    pc : int
        Address at which the program begins, if the image does not say it.
    flags : bool
        Whether instances say what their flags belong to.

    Raises
    ------
    ValueError
        If the program traps, or leaves the memories, or does what has no place in a model.
    """
    return _Run(image, inputs, sizes, flags).go(pc)


class _Run:
    """State of a symbolic run."""

    def __init__(self, image: Image, inputs: dict[str, Ids], sizes: dict[str, int], flags: bool):
        self.image, self.config = image, image.config
        self.memories = Memories.of(image)
        self.instances: list[Instance] = []
        self._elements: list[Ids] = []
        self._count = 0
        #: The last product of vectors with copied weights, by the name of these.
        self._products_of_copied: dict[tuple[str, bytes], Instance] = {}
        self.words = {
            Mem.WIDE: self._known(constant(self.memories.wide)),
            Mem.NARROW: self._known(constant(blocks.to_binary16(self.memories.narrow_mant, self.memories.narrow_exp))),
        }
        self.eids = {name: self._fresh_elements(size) for name, size in sizes.items()}
        self.ports = {port.name: self._port(port.name, inputs[port.name]) for port in image.inputs}
        self.outputs = {port.name: np.zeros(port.vectors(self.config), dtype=np.int64) for port in image.outputs}
        #: The vector in every row of a tile of the matrix memory that the program has written, and in others that
        #: products have read beside them; OUTSIDE where there is none yet.
        self.rows, self.constant_rows = (np.full(self.config.matrix_rows, OUTSIDE) for _ in range(2))
        self._accesses: dict[Chain, tuple[Access, list[Segment]]] = {}
        self._weights = ProductWeights(self.memories)
        self._layers = layer_names(image)
        self._where = cache(partial(where_of, image) if flags else lambda _: "")
        self._stores: list[Store] = []
        self._chains = 0

    def go(self, pc: int) -> Flow:
        """All phases."""
        runs = [trace(self.memories.program.tolist(), self.config, phase.pc) for phase in self.image.schedule(pc)]
        self._external = ExternalVectors(self.config, runs)
        self._external.check()
        self._held = {mem: self._known(self._loaded(mem)) for mem in Mem}
        regions = {port.name: port.region for port in (*self.image.inputs, *self.image.outputs)}
        for phase, run in zip(self.image.schedule(pc), runs, strict=True):
            for part in phase.inputs:
                place = slice(part.address, part.address + part.count)
                self.words[VECTORS[regions[part.port]]][place] = self.ports[part.port][
                    part.first : part.first + part.count
                ]
            self._program(run)
            for part in phase.outputs:
                place = slice(part.address, part.address + part.count)
                self.outputs[part.port][part.first : part.first + part.count] = self.words[VECTORS[regions[part.port]]][
                    place
                ]
        self._arrange_inputs()
        elements = np.concatenate(self._elements)
        return Flow(self.config, self.instances, elements, self.eids, self.outputs, self.memories, self._stores)

    # Vectors -----------------------------------------------------------------------------------

    def _known(self, elements: Ids) -> Ids:
        """Vectors whose elements are known to be others."""
        first = self._count
        self._elements.append(elements.reshape(-1, self.config.native))
        self._count += len(self._elements[-1])
        return np.arange(first, self._count)

    def _fresh(self, count: int) -> Ids:
        """Vectors with elements of their own."""
        native = self.config.native
        return self._known(self._count * native + np.arange(count * native))

    def _fresh_elements(self, count: int) -> Ids:
        vectors = self._fresh(-(-count // self.config.native))
        return np.asarray(vectors[0] * self.config.native + np.arange(count))

    def _port(self, name: str, order: Ids) -> Ids:
        """Vectors of an input; a narrow one is converted by the host."""
        eids = np.where(order < 0, order, self.eids[name][np.maximum(order, 0)])
        vectors = self._known(eids)
        if self.image.port(name).region is RegionId.WIDE:
            return vectors
        narrow = self._fresh(len(vectors))
        wide, shape = vectors[:, None], (1, len(vectors), 1)
        copy = Instance(0, -1, name, "", Mem.WIDE, SourceKind.COPY, shape, wide[:, None], (1, 1, 1), wide)
        self._add(replace(copy, narrow=narrow[:, None], form=self.config.act))
        return narrow

    def _arrange_inputs(self) -> None:
        """Vectors of inputs by position."""
        for instance in self.instances:
            if instance.pc >= 0 or instance.narrow is None:
                continue
            lines, tiles = self._walk(instance)
            per_line, count = lines * tiles, instance.narrow.size
            if count % per_line == 0:
                instance.shape = count // per_line, lines, tiles
                instance.wide, instance.narrow = instance.wide.reshape(-1, tiles), instance.narrow.reshape(-1, tiles)
                instance.source = instance.wide[:, :, None]

    def _walk(self, instance: Instance) -> tuple[int, int]:
        """Positions of a line, and vectors of a position: by the shape of the port, or as its first reader walks it."""
        shape, native = self.image.port(instance.layer).shape or (1,), self.config.native
        if len(shape) > 2 or shape[-1] != native:
            return (shape[-2] if len(shape) > 1 else 1), -(-shape[-1] // native)
        assert instance.narrow is not None
        readers = (r for r in self.instances if r.pc >= 0 and np.isin(r.source, instance.narrow).any())
        reader = next(readers, None)
        if reader is None:
            return 1, 1
        return reader.shape[1], reader.taps[2] if reader.kind is SourceKind.DENSE else reader.shape[2]

    def _add(self, instance: Instance) -> None:
        instance.number = len(self.instances)
        self.instances.append(instance)

    # Chains ------------------------------------------------------------------------------------

    def _program(self, run: Trace) -> None:
        if run.trap is not Trap.NONE:
            raise ValueError(f"program must end with halt, not trap with {run.trap.name} at {run.pc}")
        run.refuse_integers("be derived")
        noise = blocks.Noise(self.config.mfu_lanes)
        for chain in run.items:
            if isinstance(chain, VectorCopy):
                self._copy(chain)
            if not isinstance(chain, Chain):
                continue
            taken = None
            if chain.quant.rounding is Rounding.STOCHASTIC and chain.converts:
                taken = noise.take(chain.vectors * self.config.beats).reshape(-1, chain.rows, self.config.native)
            self._chain(chain, taken)
            self._chains += 1

    def _loaded(self, mem: Mem) -> Ids:
        """Elements of the vectors that the external memory holds at first and that runs copy."""
        fields = self._external.loaded(mem, self.memories)
        return constant(fields[0].astype(np.uint16) if mem is Mem.WIDE else blocks.to_binary16(*fields))

    def _copy(self, copy: VectorCopy) -> None:
        """A copy between the external and a vector memory makes no vector."""
        held, words, slots = self._held[copy.mem], self.words[copy.mem], self._external.slots(copy)
        if copy.out:
            held[slots] = words[copy.addresses]
        else:
            words[copy.addresses] = held[slots]

    def _chain(self, chain: Chain, noise: npt.NDArray[np.uint16] | None) -> None:
        if chain.scale is not None:
            raise ValueError(
                "programs must not have vv_scale to be derived by themselves: use concord derive with the folder of "
                "compile --exact, which has the network on codes that they come from"
            )
        if chain not in self._accesses:
            access = Access.of(chain, self.config)
            self._accesses[chain] = access, list(access.segments())
        access, segments = self._accesses[chain]
        for segment in segments:
            source = access.source[segment.positions, segment.rows]
            words = np.append(self.words[chain.mem], [OUTSIDE, OUTSIDE])
            vectors = words[source]
            for rows in segment.passes:
                inner = slice(rows.start - segment.rows.start, rows.stop - segment.rows.start)
                segment_noise = None if noise is None else noise[segment.positions, rows]
                self._pass(access, segment.positions, rows, vectors[:, inner], segment_noise)

    def _pass(
        self, access: Access, positions: slice, rows: slice, source: Ids, noise: npt.NDArray[np.uint16] | None
    ) -> None:
        """Rows whose operands are read before any of them is written."""
        chain = access.chain
        operands = [None if at is None else self.words[Mem.WIDE][at[positions, rows]] for at in access.operands]
        mfu_ops = tuple(
            InstanceOp(mfu_op.op, operand, mfu_op.table)
            for mfu_op, operand in zip(chain.mfu_ops, operands, strict=True)
        )
        kind = _kind(chain)
        shape = source.shape[:2]
        whole = shape == (chain.outer * chain.inner, chain.rows)
        outer, inner = (chain.outer, chain.inner) if whole else (1, shape[0])
        copied = kind is SourceKind.COPY and not mfu_ops
        wide = source[:, :, 0] if copied else self._fresh(shape[0] * shape[1]).reshape(shape)
        narrow = None
        again = copied and chain.mem is Mem.NARROW and chain.quant.mode is ExponentMode.DYNAMIC
        again &= chain.into_matrix is None
        if again:  # converting a block once more changes nothing, in any rounding
            narrow = source[:, :, 0]
        elif chain.converts:
            narrow = self._fresh(shape[0] * shape[1]).reshape(shape)
        taps = (chain.window.kh, chain.window.kw, chain.cols) if chain.reduce is not None else (1, 1, 1)
        where, form = self._where(chain.pc), self.config.act if chain.into_matrix is None else self.config.wgt
        sizes = outer, inner, shape[1]
        base = Instance(0, chain.pc, self._layers(chain.pc), where, chain.mem, kind, sizes, source, taps, wide)
        base = replace(base, mfu_ops=mfu_ops, narrow=narrow, quant=self._quant(chain), noise=noise, form=form)
        if kind in (SourceKind.DENSE, SourceKind.DEPTHWISE):
            self._products(chain, rows, base)
        elif base.computes or (narrow is not None and not again):
            self._add(base)
        for mem, at in access.targets.items():
            vectors = wide if mem is Mem.WIDE else narrow
            assert vectors is not None
            _store(self.words[mem], at[positions, rows].ravel(), vectors.ravel())
            number = np.arange(chain.vectors).reshape(-1, chain.rows)[positions, rows].ravel()
            store = Store(self._chains, chain.pc, mem, at[positions, rows].ravel(), vectors.ravel(), number)
            self._stores.append(store)
        if access.rows is not None:
            assert narrow is not None
            _store(self.rows, access.rows[positions, rows].ravel(), narrow.ravel())

    def _quant(self, chain: Chain) -> Quant:
        """Conversion of the vectors of a chain: a static exponent of rows is one that weights can have."""
        quant, wgt = chain.quant, self.config.wgt
        if chain.into_matrix is None:
            return quant
        return replace(quant, exp=min(max(quant.exp, wgt.exp_min), wgt.exp_max))

    def _matrix(self, chain: Chain) -> Ids | None:
        """The vectors ``[rows, N, taps * cols]`` that are the weights of a product, if the program writes any."""
        config = self.config
        words = chain.matrix_words(config)
        tiles = words // config.steps
        every = tiles.reshape(-1)[:, None] * config.rows + np.arange(config.rows)
        if words.max() >= config.matrix_depth or (self.rows[every] == OUTSIDE).all():
            return None
        if not chain.dense or (words[..., 0] % config.steps).any():
            raise ValueError(
                f"products of rows that m_wr has written must be dense and read whole tiles to be derived, "
                f"not as at pc {chain.pc}"
            )
        rows = tiles[..., :1] * config.rows + np.arange(config.rows)  # [groups, taps, cols, T*N]
        rows = rows.reshape(len(rows), -1, config.engines, config.native).transpose(0, 2, 3, 1)
        rows = rows.reshape(-1, *rows.shape[2:])[: chain.rows]
        vectors = self.rows[rows]
        if (vectors == OUTSIDE).all():
            return None
        others = np.unique(rows[vectors == OUTSIDE])
        self._read_constants(others[self.constant_rows[others] == OUTSIDE])
        return np.asarray(np.where(vectors == OUTSIDE, self.constant_rows[rows], vectors))

    def _read_constants(self, rows: Ids) -> None:
        """Make vectors of rows of tiles that no chain has written; ``ValueError`` if they are no binary16 numbers."""
        words, row = row_words(rows, self.config), (rows % self.config.rows)[:, None]
        mant, exp = self.memories.matrix_mant[words, row], self.memories.matrix_exp[words, row]
        values = blocks.dequantize(mant, exp).reshape(len(rows), self.config.native)
        bits = binary16.encode(values)
        if (binary16.decode(bits) != values).any():
            raise ValueError("weights beside rows that m_wr has written must be binary16 numbers to be derived")
        self.constant_rows[rows] = self._known(constant(bits))

    def _products(self, chain: Chain, rows: slice, base: Instance) -> None:
        """A product; one instance for every source that rows of it have."""
        matrix = self._matrix(chain)
        key: tuple[object, ...] = weights_key(chain, self.config)
        weight = self._weights.of(chain).values if matrix is None else None
        if matrix is not None:
            key = ("matrix",)
        if base.kind is SourceKind.DEPTHWISE:
            assert weight is not None
            self._add(replace(base, weight=weight[rows], weight_key=(*key, rows.start, rows.stop)))
            return
        starts = [0] + [r for r in range(1, base.shape[2]) if (base.source[:, r] != base.source[:, r - 1]).any()]
        for start, stop in zip(starts, [*starts[1:], base.shape[2]], strict=True):
            some = slice(start, stop)
            part = slice(rows.start + start, rows.start + stop)
            self._add_rows(
                chain,
                replace(
                    base,
                    shape=(*base.shape[:2], stop - start),
                    source=base.source[:, start : start + 1],
                    wide=base.wide[:, some],
                    narrow=None if base.narrow is None else base.narrow[:, some],
                    noise=None if base.noise is None else base.noise[:, some],
                    mfu_ops=tuple(
                        replace(s, operand=None if s.operand is None else s.operand[:, some]) for s in base.mfu_ops
                    ),
                    weight=None if weight is None else weight[part],
                    matrix=None if matrix is None else matrix[None, part],
                    weight_key=(*key, part.start, part.stop),
                ),
            )

    def _add_rows(self, chain: Chain, instance: Instance) -> None:
        """Add a product; with a block of copied weights, as more rows of that of the same vectors with the one before.

        So software is the same whether weights are copied or not.
        """
        instance.copied = self._copied(chain)
        if instance.copied is None:
            self._add(instance)
            return
        key = instance.copied[0], instance.source.tobytes()
        before = self._products_of_copied.get(key)
        if before is not None and before.goes_on(instance):
            before.add_rows(instance)
        else:
            self._products_of_copied[key] = instance
            self._add(instance)

    def _copied(self, chain: Chain) -> tuple[str, int] | None:
        """Name of weights of which some are copied, and the first column; -1 for those that stay.

        ``None`` where none are copied, or the image has no map.
        """
        column = chain.copies[-1].column if chain.copies else -1
        region, place = (RegionId.DRAM, column // COPY_UNIT) if chain.copies else (RegionId.MATRIX, chain.matrix)
        name = next((name for span, name in self._parts_of_copied[region] if place in span), None)
        return None if name is None else (name, column)

    @cached_property
    def _parts_of_copied(self) -> dict[RegionId, list[tuple[range, str]]]:
        """Places of weights of which some are copied, in both memories, with their name."""
        places = {
            (item["name"], item["memory"]): range(item["address"], item["address"] + item["words"])
            for item in self.image.metadata.get("map", ())
        }
        matrix, dram = (region.name.lower() for region in (RegionId.MATRIX, RegionId.DRAM))
        copied = [(name, span) for (name, memory), span in places.items() if memory == dram]
        names = [(name.removesuffix(COPIED), span) for name, span in copied]
        staying = [(places[name, matrix], name) for name, _ in names if (name, matrix) in places]
        return {RegionId.DRAM: [(span, name) for name, span in names], RegionId.MATRIX: staying}


def _kind(chain: Chain) -> SourceKind:
    match chain.reduce:
        case Op.MV_MUL:
            return SourceKind.DENSE if chain.dense else SourceKind.DEPTHWISE
        case Op.V_MAX:
            return SourceKind.MAXIMUM
        case Op.V_REDMAX:
            return SourceKind.REDUCE
    return SourceKind.COPY


def _store(words: Ids, at: Ids, vectors: Ids) -> None:
    """Write in order: of several vectors for one address the last one stays."""
    last = len(at) - 1 - np.unique(at[::-1], return_index=True)[1]
    words[at[last]] = vectors[last]


def layer_names(image: Image) -> Callable[[int], str]:
    """Function from an address to the name of its layer; the name is empty where the image does not say it."""
    names = [layer["name"] for layer in image.metadata.get("layers", [])]
    starts: Sequence[tuple[int, int]] = [(int(pc), int(index)) for pc, index in image.metadata.get("program", ())]

    def name(pc: int) -> str:
        index = max(((start, index) for start, index in starts if start <= pc), default=(0, -1))[1]
        return str(names[index]) if 0 <= index < len(names) else ""

    return name
