"""Plan of memories: the copies of each tensor, and for how long they stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from concord.compiler.ir.layers import Layer, Operand, Recurrent, Reduction
from concord.compiler.ir.layout import Storage
from concord.compiler.lowering.lowered import Lowered
from concord.compiler.memory.copies import Copy
from concord.compiler.memory.dataflow import kept, operation
from concord.graph.passes.dtypes import Dtype, Types
from concord.spec.isa import Mem

#: Chunks that an operand is widened in, two of which are in wide memory at a time.
CHUNKS = 8


#: Memory of every type.
MEMORIES = {Dtype.NARROW: Mem.NARROW, Dtype.WIDE: Mem.WIDE}


@dataclass
class StreamedResidual:
    """Two buffers of wide vectors for ``rows`` rows of positions of an operand each."""

    operand: Operand
    rows: int
    buffers: tuple[Copy, Copy]


@dataclass
class Plan:
    """Copies of all tensors, by root storage and memory.

    Parameters
    ----------
    lowered : Lowered
        The layers.
    copies : dict
        By storage and memory.
    sources : dict
        Memory that every layer reads, by the index of the layer.
    streamed : dict
        Buffers, by the index of the layer, of operands that lie in narrow memory only and are widened chunk by chunk.
    rows : dict
        Memory that the rows of a matrix come from, by the index of the layer.
    constants : dict
        By storage in narrow memory that is loaded before the first run; the data section gives the addresses.
    temporaries : dict
        What recurrent blocks use in between, by the index of the layer.
    """

    lowered: Lowered
    copies: dict[tuple[Storage, Mem], Copy] = field(default_factory=dict)
    sources: dict[int, Mem] = field(default_factory=dict)
    streamed: dict[int, StreamedResidual] = field(default_factory=dict)
    rows: dict[int, Mem] = field(default_factory=dict)
    constants: dict[Storage, Copy] = field(default_factory=dict)
    temporaries: dict[int, dict[str, Copy]] = field(default_factory=dict)
    #: Copies of tensors that are brought back from the external memory, by storage and memory: for layers from each of
    #: these on.
    brought: dict[int, dict[tuple[Storage, Mem], Copy]] = field(default_factory=dict)
    #: Layers at the beginning whose results take no other tensor's place, and how often each of them is computed in a
    #: run.
    unshared: int = 0
    repeats: tuple[int, ...] = ()
    #: Instructions that blocks of weights are expected to leave room for, as a multiple of the program memory.
    program_share: int = 1

    def copy(self, storage: Storage, mem: Mem) -> Copy | None:
        """The copy of a tensor in a memory."""
        if mem is Mem.NARROW and storage.root in self.constants:
            return self.constants[storage.root]
        return self.copies.get((storage.root, mem))

    def copies_of(self, storage: Storage) -> list[Copy]:
        """The copies of a tensor in all memories that have one."""
        return [copy for mem in Mem if (copy := self.copy(storage, mem)) is not None]

    def live(self, storage: Storage, mem: Mem, index: int) -> bool:
        """True if a tensor is in a memory while a layer is computed, as it was written or brought back."""
        copies = self.copy(storage, mem), *(copies.get((storage.root, mem)) for copies in self.brought.values())
        return any(copy is not None and copy.first_use <= index <= copy.last_use for copy in copies)

    def bring(self, first: int) -> None:
        """Let copies of tensors be those that are brought back for layers from ``first`` on, or as before that."""
        brought = self.brought.get(first, {})
        for key in brought:
            self.copies[key], brought[key] = brought[key], self.copies[key]

    def reads(self, index: int) -> Iterator[tuple[Storage, Mem]]:
        """Storages that a layer reads, each with its memory."""
        layer = self.lowered.layers[index]
        if isinstance(layer, Recurrent):
            yield layer.source.storage, Mem.NARROW
            yield from ((walk.storage, Mem.WIDE) for walk in layer.initial.values())
            return
        yield layer.source.storage, self.sources[index]
        streamed = self.streamed[index].operand if index in self.streamed else None
        for operand, storage in layer.operands:
            yield storage, Mem.NARROW if operand is streamed else Mem.WIDE
        if layer.rows is not None:
            yield layer.rows.walk.storage, self.rows[index]
        if layer.second is not None:
            yield layer.second.storage, Mem.NARROW

    def layer(self, index: int) -> Layer:
        """A layer that is a single chain."""
        layer = self.lowered.layers[index]
        if not isinstance(layer, Layer):
            raise TypeError(f"layer {index} must be a single chain, not a recurrent block")
        return layer

    def all(self) -> list[Copy]:
        """Everything that needs a place."""
        buffers = [copy for streamed in self.streamed.values() for copy in streamed.buffers]
        return [
            *self.copies.values(),
            *(copy for copies in self.brought.values() for copy in copies.values()),
            *buffers,
            *(c for used in self.temporaries.values() for c in used.values()),
        ]

    def within(self, mem: Mem) -> list[Copy]:
        """Everything that needs a place in a memory."""
        return [copy for copy in self.all() if copy.mem is mem]

    def addr(self, storage: Storage, mem: Mem, vector: int) -> int:
        """Address of a vector of a tensor."""
        copy = self.copy(storage, mem)
        if copy is None:
            raise KeyError(f"{storage.name} must have a copy in {mem.name.lower()} memory")
        return copy.addr + storage.vector(vector)


def output_memory(lowered: Lowered, name: str) -> Mem:
    """Memory that the host reads an output from."""
    return Mem.NARROW if name in lowered.narrow else Mem.WIDE


def check_outputs(lowered: Lowered) -> None:
    """``ValueError`` if an output is to leave as mantissas and exponents that is not there, or is in wide memory only.

    The state of a cell that is not its result is: it is added to itself in binary16.
    """
    names = lowered.graph.outputs
    if unknown := sorted(set(lowered.narrow) - set(names)):
        raise ValueError(f"narrow outputs must be among {', '.join(names)}, not {', '.join(unknown)}")
    states = {layer.c.root for layer in lowered.layers if isinstance(layer, Recurrent) and layer.c is not None}
    for name in lowered.narrow:
        if any(storage.root in states for storage in lowered.storages.of(lowered.views[name])):
            raise ValueError(f"output {name} must be binary16, as it is the state of a cell, not narrow")


def make_plan(lowered: Lowered, types: Types) -> Plan:
    """Plan of the copies of tensors that are needed, and of their times.

    Parameters
    ----------
    lowered : Lowered
        The layers.
    types : Types
        Decisions of the data-type pass for them (:func:`concord.compiler.memory.dataflow.data_types`).
    """
    last = len(lowered.layers)
    plan = Plan(lowered, constants={storage: Copy(storage, Mem.NARROW, -1, last) for storage in lowered.constants})
    for name in lowered.graph.outputs:
        for storage in lowered.storages.of(lowered.views[name]):
            _need(plan, storage, output_memory(lowered, name), last)
    for index in range(last - 1, -1, -1):
        layer = lowered.layers[index]
        if isinstance(layer, Recurrent):
            _plan_block(plan, layer, index, types)
            continue
        name = operation(index, layer)
        plan.sources[index] = mem = MEMORIES[types.reads[name, 0]]
        _need(plan, layer.source.storage, mem, index)
        for k, (_, storage) in enumerate(layer.operands, 1):
            _need(plan, storage, MEMORIES[types.reads[name, k]], index, operand=True)
        if layer.rows is not None:
            k = len(layer.operands) + 1
            plan.rows[index] = mem = MEMORIES[types.reads[name, k]]
            _need(plan, layer.rows.walk.storage, mem, index)
        if layer.second is not None:
            _need(plan, layer.second.storage, Mem.NARROW, index)
    for index, layer in enumerate(lowered.layers):
        for copy in plan.copies_of(layer.target):  # of a larger tensor, of which others may be read earlier
            copy.first_use, copy.last_use = min(copy.first_use, index), max(copy.last_use, index)
    for storage, _ in lowered.inputs.values():
        for copy in plan.copies_of(storage):
            copy.first_use = -1
    for name in lowered.states:
        for copy in plan.copies_of(lowered.inputs[name][0]):
            copy.last_use = last
    return plan


def _plan_block(plan: Plan, block: Recurrent, index: int, types: Types) -> None:
    """Copies of what a recurrent block reads, keeps and uses in between."""
    name = operation(index, block)
    _need(plan, block.source.storage, MEMORIES[types.reads[name, 0]], index)
    for storage, kind in kept(block):
        copy = _need(plan, storage, MEMORIES[kind], index)
        if storage is block.c:
            copy.first_use = index
    for k, walk in enumerate(block.initial.values(), 1):
        _need(plan, walk.storage, MEMORIES[types.reads[name, k]], index)
    names = dict.fromkeys(block.cell.temporaries, Mem.WIDE) | dict.fromkeys(block.cell.narrow_temporaries, Mem.NARROW)
    plan.temporaries[index] = {name: _temporary(block, index, name, mem) for name, mem in names.items()}
    plan_chunk(plan, index, block, 1)


def plan_chunk(plan: Plan, index: int, block: Recurrent, steps: int) -> None:
    """Let a recurrent block have room for the input parts of so many steps."""
    for gate in block.cell.gates:
        name = f"p_{gate}"
        plan.temporaries[index][name] = _temporary(block, index, name, Mem.WIDE, steps)


def _temporary(block: Recurrent, index: int, name: str, mem: Mem, steps: int = 1) -> Copy:
    return Copy(Storage(f"{block.name}.{name}", 1, steps, block.tiles, block.target.native), mem, index, index)


def _need(plan: Plan, storage: Storage, mem: Mem, index: int, operand: bool = False) -> Copy:
    root = storage.root
    if root in plan.constants:
        return plan.constants[root]
    copy = plan.copies.setdefault((root, mem), Copy(root, mem, len(plan.lowered.layers), index))
    copy.last_use = max(copy.last_use, index)
    if not operand:
        copy.operands = None
    elif copy.operands is not None:
        copy.operands.add(index)
    return copy


def stream_residual(plan: Plan) -> bool:
    """Stream the largest wide tensor that is only an operand: keep it narrow, and widen it in chunks.

    Returns whether there is one.

    Its values are then those of the narrow tensor: the price of what does not fit otherwise.
    """
    choices = [copy for copy in plan.copies.values() if copy.mem is Mem.WIDE and _can_be_streamed(plan, copy)]
    if not choices:
        return False
    copy = max(choices, key=lambda c: c.storage.vectors)
    narrow = _need(plan, copy.storage, Mem.NARROW, copy.last_use)
    narrow.first_use = min(narrow.first_use, copy.first_use)
    for index in copy.operands or ():
        layer = plan.layer(index)
        (operand,) = (operand for operand, storage in layer.operands if storage is copy.storage)
        rows = -(-layer.out[0] // CHUNKS)
        size = rows * layer.out[1] * layer.out[2]
        first, second = (
            Copy(Storage(f"{layer.name}.chunk{k}", 1, 1, size, copy.storage.native), Mem.WIDE, index, index)
            for k in range(2)
        )
        plan.streamed[index] = StreamedResidual(operand, rows, (first, second))
    del plan.copies[copy.storage, Mem.WIDE]
    return True


def _can_be_streamed(plan: Plan, copy: Copy) -> bool:
    """True if every layer that reads the copy walks all of it, position by position, as its only such operand."""
    if not copy.operands or copy.storage.height < 2 or copy.first_use < 0:
        return False
    for index in copy.operands:
        layer = plan.layer(index)
        operands = [operand for operand, storage in layer.operands if storage is copy.storage]
        if len(operands) != 1 or index in plan.streamed or not (operands[0].inner and operands[0].outer):
            return False
    return True


def share(plan: Plan) -> None:
    """Let results take the place of what their layer reads for the last time, where every vector is read before."""
    for copy in plan.copies.values():
        copy.over = None
    taken: set[int] = set()
    for index, layer in enumerate(plan.lowered.layers):
        if index < plan.unshared or isinstance(layer, Recurrent):
            continue
        for mem in Mem:
            target = plan.copy(layer.target, mem)
            if target is None or target.storage is not layer.target or target.first_use != index:
                continue
            for candidate in _replaceable(plan, index, mem):
                if candidate.last_use == index and id(candidate) not in taken:
                    target.over = candidate
                    taken.add(id(candidate))
                    break


def _replaceable(plan: Plan, index: int, mem: Mem) -> Iterable[Copy]:
    """Copies in ``mem`` that a layer reads vector by vector, each before it writes the vector in the same place.

    That holds for all that it reads of a tensor: a window, or an operand in another order, would read what other
    positions have replaced.
    """
    layer = plan.layer(index)
    walk, streamed = layer.source, plan.streamed.get(index)
    alone = layer.reduction is Reduction.NONE
    in_order = alone and _in_order(layer, walk.start, (walk.row, walk.stride, walk.row_stride))
    reads = [(walk.storage, plan.sources[index], in_order)]
    reads += [] if layer.second is None else [(layer.second.storage, Mem.NARROW, False)]
    for operand, storage in layer.operands:
        widened = streamed is not None and streamed.operand is operand
        in_order = _in_order(layer, operand.start, (operand.row, operand.inner, operand.outer))
        reads.append((storage, Mem.NARROW if widened else Mem.WIDE, in_order))
    for storage, where, _ in reads:
        if where is not mem or storage.parent is not None or storage.vectors != layer.target.vectors:
            continue
        copy = plan.copy(storage, mem)
        if copy is not None and all(in_order for other, _, in_order in reads if other.root is storage):
            yield copy


def _in_order(layer: Layer, start: int, strides: tuple[int, int, int]) -> bool:
    """True if vectors are read in the order in which results are written; strides of loops of one iteration are any."""
    _, width, tiles = layer.out
    loops = zip(strides, (1, tiles, width * tiles), reversed(layer.out), strict=True)
    return not start and all(stride == step or count == 1 for stride, step, count in loops)
