"""Costs of a strategy: cycles of a run, and words of every memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from concord.compiler.emission.emit import Emitter
from concord.compiler.emission.row_tiled import row_tiled
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.lowered import Lowered
from concord.compiler.memory.plan import make_plan
from concord.compiler.pipeline.states import Typed
from concord.cycles import count
from concord.graph.passes.dtypes import Types
from concord.image import Image
from concord.image.feeder_scripts import FeedError, route
from concord.spec.boards import BOARD_SPECS, link_of
from concord.spec.config import NpuConfig
from concord.spec.isa import OPCODE_BITS, VECTOR_ADDR_BITS, Op, decode, encode
from concord.spec.limits import PROGRAM_DEPTH_MAX
from concord.spec.link import CRC_BYTES, HEADER, TARGET
from concord.spec.memmap import RegionId, regions


@dataclass(frozen=True)
class Cost:
    """Cycles of a run, and words of every memory that the program takes."""

    cycles: int
    program: int
    matrix: int
    narrow: int
    wide: int


def cost_of(program: Emitter) -> Cost:
    """The cost of a program that has been written."""
    words, config = program.builder.words(), program.config.replace(program_depth=PROGRAM_DEPTH_MAX)
    starts = [phase.pc for phase in program.allocator.phases] or [0]
    memories = (program.allocator.used(region) for region in (RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE))
    return Cost(sum(_cycles(_untimed(words), config, pc) for pc in starts), len(words), *memories)


def period_of(cycles: int, image: Image) -> tuple[int, bool]:
    """Clock cycles from a run to the next one over the first link of the board, and whether inputs travel raw.

    Raw inputs, of a byte for an element, and results travel while the NPU computes; what the host lays out travels
    before and after, in requests that wait for their replies where the device has no buffer for them, and else twice in
    a phase. Of a configuration without a board nothing is known of its link: the cycles of the run are all there is.

    Parameters
    ----------
    cycles : int
        Clock cycles of the run.
    image : Image
        The program, its ports, and how the feeder lays out inputs.
    """
    config, schedule = image.config, image.schedule()
    if config.board not in BOARD_SPECS:
        return cycles, False
    link = link_of(config.board)
    per_byte = config.clock_hz / link.bytes_per_second
    try:
        raw = route(image.feeding, schedule, (image.inputs, image.outputs), image.feeding.codings, config)
    except FeedError:
        places, area = {port.name: port.region for port in (*image.inputs, *image.outputs)}, regions(config)
        sizes = [
            part.count * area[places[part.port]].nbytes
            for phase in schedule
            for part in (*phase.inputs, *phase.outputs)
        ]
        requests = sum(-(-size // (config.max_payload - TARGET.nbytes)) for size in sizes) + 2 * len(schedule)
        waits = 2 * len(schedule) if link.window(config.request_buffer) else requests
        line = sum(sizes) + requests * 2 * (HEADER.nbytes + CRC_BYTES)
        return round(cycles + per_byte * line + waits * link.adapter.latency * config.clock_hz), False
    elements = sum(transfer.feed.elements for transfer in raw.input_transfers)
    return max(cycles, round(per_byte * max(elements, raw.result_bytes))), True


@lru_cache(maxsize=256)
def _cycles(words: tuple[int, ...], config: NpuConfig, pc: int) -> int:
    """Cycles of a run. A network with other formats often has the same program, and counting takes seconds."""
    return count(words, config, pc).cycles


def _untimed(words: Sequence[int]) -> tuple[int, ...]:
    """The program without the exponents of narrow vectors, which take no part in its cycles."""
    plain = {}
    for word in set(words):
        if word % (1 << OPCODE_BITS) == Op.SET_QUANT:
            form, values = decode(word)
            plain[word] = encode(form.op, **values | {"mode": 0, "exp": 0})
    return tuple(plain.get(word, word) for word in words)


def estimate(layers: Typed, tiled: bool) -> Cost | None:
    """The cost of a strategy that has not led to a program; ``None`` if nothing can be said about it.

    In one piece, the program is written for the largest memories that there can be. Row tiling depends on the memories
    that there are; where it does not fit, it has no cost.

    Parameters
    ----------
    layers : Typed
        State after lowering.
    tiled : bool
        Whether the first layers are computed in tiles of rows.
    """
    write = row_tiled if tiled else _unlimited
    try:
        return cost_of(write(layers.lowered, layers.types, layers.config, layers.formats))
    except ValueError:  # no room, or beyond what instructions can address
        return None


def _unlimited(lowered: Lowered, types: Types, config: NpuConfig, formats: Formats) -> Emitter:
    """The program in one piece for vector memories of the largest depth; no memory is checked."""
    depth = 1 << VECTOR_ADDR_BITS
    program = Emitter(make_plan(lowered, types), config.replace(narrow_depth=depth, wide_depth=depth), formats)
    program.data_section.fill()
    program.place()
    program.layers(0)
    return program
