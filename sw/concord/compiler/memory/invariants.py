"""What holds for every memory plan: what a layer reads is live, and no two live tensors share a word."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from concord.compiler.ir.layers import Recurrent
from concord.compiler.ir.layout import Storage
from concord.compiler.memory.copies import Copy, Life
from concord.compiler.memory.plan import Plan
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem


def problems(plan: Plan, config: NpuConfig, constants: int = 0) -> Iterator[str]:
    """A line for everything that is inconsistent.

    Parameters
    ----------
    plan : Plan
        Before or after allocation; addresses are checked as soon as all tensors have one.
    config : NpuConfig
        With the depths of the memories.
    constants : int
        Words at the beginning of wide memory that hold constants.
    """
    last = len(plan.lowered.layers)
    for copy in plan.all():
        if not -1 <= copy.born <= copy.dies <= last:
            yield f"{_name(copy)} must live within layers -1..{last}, not {copy.born}..{copy.dies}"
    yield from _reads(plan)
    if all(copy.addr >= 0 for copy in plan.all()):
        for mem, depth in ((Mem.NARROW, config.narrow_depth), (Mem.WIDE, config.wide_depth)):
            first = constants if mem is Mem.WIDE else 0
            yield from _places([copy for copy in plan.all() if copy.mem is mem], first, depth)


def _name(copy: Copy) -> str:
    return f"{copy.storage.name} in {copy.mem.name.lower()} memory"


def _reads(plan: Plan) -> Iterator[str]:
    """Every layer finds what it reads, and a place for what it writes, while it is computed."""
    for index, layer in enumerate(plan.lowered.layers):
        for storage, mem in _needed(plan, index):
            copy = plan.copy(storage, mem)
            if copy is None or not copy.born <= index <= copy.dies:
                yield f"layer {layer.name!r} needs {storage.name} in {mem.name.lower()} memory, where it is not live"
        written = [copy for mem in Mem if (copy := plan.copy(layer.target, mem)) is not None]
        if not any(copy.born <= index <= copy.dies for copy in written):
            yield f"layer {layer.name!r} must have a place for {layer.target.name} while it is computed"
    for storage, _ in plan.lowered.inputs.values():
        for mem in Mem:
            copy = plan.copy(storage, mem)
            if copy is not None and copy.born != -1:
                yield f"input {_name(copy)} must live from the beginning, not from layer {copy.born} on"


def _needed(plan: Plan, index: int) -> Iterator[tuple[Storage, Mem]]:
    """What a layer reads, and in which memory."""
    layer = plan.lowered.layers[index]
    if isinstance(layer, Recurrent):
        yield layer.source.storage, Mem.NARROW
        yield from ((walk.storage, Mem.WIDE) for walk in layer.initial.values())
        return
    yield layer.source.storage, plan.sources[index]
    streamed = plan.streamed[index].operand if index in plan.streamed else None
    for step in layer.steps:
        if step.operand is not None and step.operand.storage is not None:
            yield step.operand.storage, Mem.NARROW if step.operand is streamed else Mem.WIDE


def _places(copies: list[Copy], first: int, depth: int) -> Iterator[str]:
    """Copies in one memory lie behind the constants, within its depth, and apart while both live."""
    for copy in copies:
        if not first <= copy.addr <= copy.addr + copy.vectors <= depth:
            end = copy.addr + copy.vectors - 1
            yield f"{_name(copy)} must lie within {first}..{depth - 1}, not {copy.addr}..{end}"
        if copy.over is not None and (copy.over.addr, copy.over.dies) != (copy.addr, copy.born):
            yield f"{_name(copy)} must take the place of {copy.over.storage.name} when that is read for the last time"
    for one, other in combinations(copies, 2):
        if one.over is other or other.over is one:
            continue
        if any(_overlap(a, b) for a in _lives(one) for b in _lives(other)):
            yield f"{_name(one)} and {other.storage.name} must not share words while both live"


def _lives(copy: Copy) -> list[Life]:
    """Words of a memory that a copy takes, each with the layers for which it does."""
    return [Life(copy.addr + life.low, copy.addr + life.high, life.born, life.dies) for life in copy.lives]


def _overlap(one: Life, other: Life) -> bool:
    return one.low < other.high and other.low < one.high and one.meets(other)
