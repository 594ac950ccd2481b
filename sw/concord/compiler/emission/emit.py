"""A program, the contents of the memories and what the host reads and writes: everything of an image but its name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from concord.compiler.emission.chains import Chains
from concord.compiler.emission.data_section import DataSection
from concord.compiler.emission.time_steps import StepBlock
from concord.compiler.ir.layers import Layer, Recurrent
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.compiler.memory.copies import place as place_copies
from concord.compiler.memory.plan import Plan, output_memory, plan_chunk, share, stream_residual
from concord.compiler.memory.row_tiling import RowTiling
from concord.image import Port, State
from concord.program.access import REGIONS
from concord.program.allocator import Allocator
from concord.program.builder import ProgramBuilder
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem


def all_tensors(mem: Mem) -> str:
    """Name of the allocation that holds all tensors in a memory."""
    return f"tensors.{mem.name.lower()}"


class TileStarts(NamedTuple):
    """Instructions of row tiles: their first layer, and the address at which each of the layers begins."""

    first: int
    starts: tuple[int, ...]

    @property
    def layers(self) -> Iterator[tuple[int, int]]:
        """Layers by number, and where they begin."""
        return enumerate(self.starts, self.first)


@dataclass
class Emitter:
    """Writes the program of a plan for ``config``.

    Parameters
    ----------
    row_tiling : RowTiling or None
        Which row tiles the plan is for, if it is.

    Members
    -------
    starts : list of int
        Address of the first instruction of every layer.
    tile_starts : list of TileStarts
        The same of the layers in row tiles, for all instructions of row tiles but those of the last one.
    """

    plan: Plan
    config: NpuConfig
    formats: Formats = DEFAULT
    row_tiling: RowTiling | None = None
    starts: list[int] = field(default_factory=list)
    tile_starts: list[TileStarts] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.data_section = DataSection(self.plan, self.config, self.formats)
        self.chains = Chains(self.data_section)

    @property
    def places(self) -> dict[int, int]:
        """Layers by the addresses at which their instructions begin, those of all row tiles."""
        parts = (*self.tile_starts, TileStarts(0, tuple(self.starts)))
        return {pc: index for part in parts for index, pc in part.layers}

    @property
    def allocator(self) -> Allocator:
        """Allocator of all memories."""
        return self.data_section.allocator

    @property
    def builder(self) -> ProgramBuilder:
        """The program."""
        return self.chains.builder

    def write(self, allocate: Callable[[], None], program: Callable[[], None]) -> None:
        """Store constants, call ``allocate`` for tensors and ``program`` for the instructions.

        Raises
        ------
        CapacityError
            If constants and tensors do not fit.
        """
        self.data_section.fill()
        allocate()
        self.allocator.check()  # what lies beyond the end cannot even be addressed
        self.ports()
        program()

    def layers(self, first: int) -> None:
        """All layers from ``first`` on, each as a whole, and the end of the program."""
        chains = self.chains
        if not first:
            chains.begin_copies()
        layers = self.plan.lowered.layers
        for index, layer in enumerate(layers[first:], first):
            self.starts.append(len(self.builder))
            if index == 0:
                chains.narrow_inputs({storage: storage.height for storage, _ in self.plan.lowered.inputs.values()})
            if isinstance(layer, Recurrent):
                StepBlock(chains, layer, self.plan.temporaries[index]).run()
            elif index in self.plan.streamed:
                chains.in_chunks(index)
            else:
                following = takewhile(lambda later: isinstance(later[1], Layer), enumerate(layers[index:], index))
                chains.between([(k, later.out[0]) for k, later in following])
                chains.layer(index, 0, layer.out[0])
        self.builder.halt()

    def place(self) -> None:
        """Place all tensors; what does not fit in wide memory is widened in chunks as far as that is possible."""
        plan, used = self.plan, {mem: self.allocator.used(REGIONS[mem]) for mem in Mem}
        while True:
            share(plan)
            ends = {mem: place_copies(plan.within(mem), used[mem]) for mem in Mem}
            if ends[Mem.WIDE] <= self.config.wide_depth or not stream_residual(plan):
                break
        ends[Mem.WIDE] = self._chunks(used[Mem.WIDE], ends[Mem.WIDE])
        for mem in Mem:
            self.allocator.allocate(all_tensors(mem), REGIONS[mem], ends[mem] - used[mem], "tensors")

    def _chunks(self, start: int, end: int) -> int:
        """Let recurrent blocks whose input weights are copied compute those of as many steps as there is room for.

        Returns the end of the wide tensors.
        """
        plan, wide = self.plan, Mem.WIDE
        for index, block in enumerate(plan.lowered.layers):
            if not (isinstance(block, Recurrent) and self.data_section.copies_inputs(block)):
                continue

            def fits(chunks: int, index: int = index, block: Recurrent = block) -> bool:
                plan_chunk(plan, index, block, -(-block.time_steps // chunks))
                return place_copies(plan.within(wide), start) <= self.config.wide_depth

            chunks = 1 + bisect_left(range(1, block.time_steps), True, key=fits)
            plan_chunk(plan, index, block, -(-block.time_steps // chunks))
            end = place_copies(plan.within(wide), start)
        return end

    def ports(self) -> None:
        """Note where inputs and outputs lie."""
        lowered = self.plan.lowered
        for name, (storage, _) in lowered.inputs.items():
            copy = self.plan.copy(storage, Mem.WIDE) or self.plan.copy(storage, Mem.NARROW)
            if copy is not None:
                port = Port(name, REGIONS[copy.mem], copy.addr, (storage.vectors, self.config.native))
                if name in lowered.states:
                    self.allocator.states.append(State(port, lowered.states[name]))
                else:
                    self.allocator.inputs.append(port)
        for name in lowered.graph.outputs:
            (storage,) = lowered.storages.of(lowered.views[name])
            mem = output_memory(lowered, name)
            addr, shape = self.plan.addr(storage, mem, 0), (len(storage.span), self.config.native)
            self.allocator.outputs.append(Port(name, REGIONS[mem], addr, shape))
