"""The program up to every layer: what a device has computed there, and in how many cycles.

Later layers reuse the memory of a tensor, so it is read after a ``halt`` in the place of the first instruction of the
next layer. Of layers in row tiles no tensor is ever there as a whole: such a network is run in one piece, as it
would be with larger memories. That gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from concord.compiler.emission.emit import TileStarts
from concord.compiler.model import Compiled, in_one_piece
from concord.cycles import counts_of
from concord.image import Image, Port
from concord.image.feeder_layout import Feeding
from concord.networks.layer_results import LayerElements, Result, parts, result_of
from concord.networks.window_steps import WindowSteps
from concord.program import Trace, trace
from concord.program.access import REGIONS
from concord.spec import isa
from concord.spec.isa import Mem, Op
from concord.utils.arrays import Array

#: The instruction word.
HALT = isa.encode(Op.HALT)
#: Arrays ``[runs, *shape]`` by port.
Outputs = Mapping[str, Array]


def ends(compiled: Compiled) -> list[list[int]]:
    """Addresses of the instructions that ``halt`` replaces after every layer: one for every row tile that differs."""
    last = [[end] for end in (*compiled.starts[1:], len(compiled.image.program) - 1)]
    for part in compiled.tile_starts:
        for index, end in enumerate(part.starts[1:], part.first):
            last[index].append(end)
    return last


def layer_at(compiled: Compiled, pc: int) -> int:
    """The layer that an instruction belongs to."""
    parts = (*compiled.tile_starts, TileStarts(0, compiled.starts))
    return max((start, index) for part in parts for index, start in part.layers if start <= pc)[1]


@dataclass(frozen=True)
class ProgramPrefix:
    """The program as far as a layer.

    Parameters
    ----------
    image : Image
        Stops after the layer, and has an output for every copy of what the layer computes.
    parts : list of LayerElements
        What the layer computes.
    batch : int
        Samples per run.
    """

    image: Image
    parts: list[LayerElements]
    batch: int

    def results(self, outputs: Outputs, samples: int) -> list[Result]:
        """Results of ``samples`` samples by prefix of the program, from the outputs of the image."""
        return [
            result_of(
                part,
                {mem: outputs[_port(k, mem)] for mem in Mem if _port(k, mem) in outputs},
                self.batch,
                samples,
            )
            for k, part in enumerate(self.parts)
        ]


def prefixes(compiled: Compiled) -> Iterator[ProgramPrefix]:
    """The program up to every layer; of a network in row tiles, the program for the largest memories that are possible.

    Raises
    ------
    concord.program.allocator.CapacityError
        If a network in row tiles does not fit into those in one piece.
    """
    compiled = in_one_piece(compiled) if compiled.row_tiling is not None else compiled
    image, batch = compiled.image, compiled.package.arrangement.batch
    for layer, (end,) in zip(compiled.lowered.layers, ends(compiled), strict=True):
        wanted = parts(compiled.lowered, layer)
        outputs = tuple(port for k, part in enumerate(wanted) for port in _copies(compiled, k, part))
        yield ProgramPrefix(
            replace(image, program=(*image.program[:end], HALT), outputs=outputs, feeding=Feeding()), wanted, batch
        )


def _copies(compiled: Compiled, k: int, part: LayerElements) -> Iterator[Port]:
    """An output for every copy of a part."""
    for mem in Mem:
        copy = compiled.plan.copy(part.root, mem)
        if copy is not None:
            yield Port(_port(k, mem), REGIONS[mem], copy.addr, (part.root.vectors, part.root.native))


def _port(part: int, mem: Mem) -> str:
    return f"{part}.{mem.name}"


def without_overlap(cycles: Sequence[int], least: Sequence[int]) -> list[int]:
    """Cycles of layers, each with those that its steps need at least; the sum is the same.

    A program that stops after a layer waits until that leaves the pipe, while the next layer goes on in the whole one:
    what the next layer has begun by then is its own.
    """
    ends = list(accumulate(cycles))
    for index in range(len(ends) - 1, 0, -1):
        ends[index - 1] = min(ends[index - 1], ends[index] - least[index])
    return [end - begin for begin, end in pairwise([0, *ends])]


def cycles(compiled: Compiled, steps: Sequence[WindowSteps] | None = None) -> list[int]:
    """Cycles of every layer for one run: differences of consecutive prefixes.

    Apart from ``steps``, those of the windows of sliding products by phase, they do not depend on the values, so row
    tiles may be cut short as well.
    """
    image, known = compiled.image, dict[tuple[int, Trace], int]()
    totals = [0]
    for places in ends(compiled):
        words = list(image.program)
        for end in places:
            words[end] = HALT
        total = 0
        for k, phase in enumerate(image.schedule()):
            walk = trace(words, image.config, phase.pc)
            key = k if steps is not None and walk.slides else -1, walk
            if key not in known:
                known[key] = counts_of(walk, image.config, steps[k] if steps is not None else None).cycles
            total += known[key]
        totals.append(total)
    return [int(count) for count in np.diff(totals)]
