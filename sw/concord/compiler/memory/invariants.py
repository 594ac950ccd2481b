"""Invariants of memory plans: tensors that a layer reads are live, and no two live tensors share a word."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from concord.compiler.memory.copies import Copy, LiveRange
from concord.compiler.memory.dataflow import tensors
from concord.compiler.memory.plan import MEMORIES, Plan
from concord.graph.passes.dtypes import Types
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem


def problems(plan: Plan, types: Types, config: NpuConfig, constants: int = 0) -> Iterator[str]:
    """A line for everything that is inconsistent.

    Parameters
    ----------
    plan : Plan
        Before or after allocation; addresses are checked as soon as all tensors have one.
    types : Types
        Those of the layers: a tensor is in the memories of the types that it is written in.
    config : NpuConfig
        With the depths of the memories.
    constants : int
        Words at the beginning of wide memory that hold constants.
    """
    last = len(plan.lowered.layers)
    for copy in plan.all():
        if not -1 <= copy.first_use <= copy.last_use <= last:
            yield f"{_name(copy)} must live within layers -1..{last}, not {copy.first_use}..{copy.last_use}"
    yield from _reads(plan)
    yield from _types(plan, types)
    if all(copy.addr >= 0 for copy in plan.all()):
        for mem, depth in ((Mem.NARROW, config.narrow_depth), (Mem.WIDE, config.wide_depth)):
            first = constants if mem is Mem.WIDE else 0
            yield from _places(plan.within(mem), first, depth)


def _name(copy: Copy) -> str:
    return f"{copy.storage.name} in {copy.mem.name.lower()} memory"


def _reads(plan: Plan) -> Iterator[str]:
    """Every layer finds what it reads, and a place for what it writes, while it is computed."""
    for index, layer in enumerate(plan.lowered.layers):
        for storage, mem in plan.reads(index):
            if not plan.live(storage, mem, index):
                yield f"layer {layer.name!r} needs {storage.name} in {mem.name.lower()} memory, where it is not live"
        places = plan.copies_of(layer.target)
        if not places or not all(copy.first_use <= index <= copy.last_use for copy in places):
            yield f"layer {layer.name!r} must have a place for {layer.target.name} while it is computed"
    for storage, _ in plan.lowered.inputs.values():
        for copy in plan.copies_of(storage):
            if copy.first_use != -1:
                yield f"input {_name(copy)} must live from the beginning, not from layer {copy.first_use} on"


def _types(plan: Plan, types: Types) -> Iterator[str]:
    """Tensors lie in the memories that the data-type pass says; streamed ones and constants are narrow."""
    streamed = {stream.operand.storage.root for stream in plan.streamed.values() if stream.operand.storage is not None}
    for storage, name in tensors(plan.lowered).items():
        wanted = {MEMORIES[kind] for kind in types.written.get(name, ())}
        wanted = {Mem.NARROW} if storage in streamed or storage in plan.constants else wanted
        memories = {copy.mem for copy in plan.copies_of(storage)}
        if memories != wanted:
            listed = (" and ".join(sorted(mem.name.lower() for mem in each)) or "no" for each in (wanted, memories))
            yield "{} must be in {} memory, as its types say, not in {}".format(name, *listed)


def _places(copies: list[Copy], first: int, depth: int) -> Iterator[str]:
    """Copies in one memory lie after the constants, within its depth, and apart while both live."""
    for copy in copies:
        if not first <= copy.addr <= copy.addr + copy.vectors <= depth:
            end = copy.addr + copy.vectors - 1
            yield f"{_name(copy)} must lie within {first}..{depth - 1}, not {copy.addr}..{end}"
        if copy.over is not None and (copy.over.addr, copy.over.last_use) != (copy.addr, copy.first_use):
            yield f"{_name(copy)} must take the place of {copy.over.storage.name} when that is read for the last time"
    for held, other in combinations(copies, 2):
        if held.over is other or other.over is held:
            continue
        if any(_overlap(a.at(held.addr), b.at(other.addr)) for a in held.live_ranges for b in other.live_ranges):
            yield f"{_name(held)} and {other.storage.name} must not share words while both live"


def _overlap(live: LiveRange, other: LiveRange) -> bool:
    return live.low < other.high and other.low < live.high and live.overlaps(other)
