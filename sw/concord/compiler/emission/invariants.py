"""Invariants of programs and images, beside those that :mod:`concord.program.verify` proves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from concord.compiler.emission.emit import Emitter
from concord.image import Image, ImageError
from concord.spec import isa
from concord.spec.memmap import RegionId, regions


def program_problems(program: Emitter) -> Iterator[str]:
    """A line for everything that is inconsistent, before or after emission."""
    config = program.config
    depths = {
        RegionId.MATRIX: config.matrix_depth,
        RegionId.NARROW: config.narrow_depth,
        RegionId.WIDE: config.wide_depth,
        RegionId.SLOTS: config.table_slots,
    }
    for region, depth in depths.items():
        spans = [
            (allocation.addr, allocation.count, allocation.name)
            for allocation in program.allocator.allocations.values()
            if allocation.region is region
        ]
        yield from _spans(spans, region.name.lower())
        if program.starts:  # before, what does not fit is still to be told
            yield from (
                f"{name} must lie within the {depth} words of {region.name.lower()} memory"
                for first, count, name in spans
                if first + count > depth
            )
    if program.starts:
        yield from _instructions(program)


def _instructions(program: Emitter) -> Iterator[str]:
    """Every layer begins somewhere, in order, and the program ends."""
    words, layers = program.builder.words(), program.plan.lowered.layers
    if len(program.starts) != len(layers):
        yield f"program must begin {len(layers)} layers, not {len(program.starts)}"
    if list(program.starts) != sorted(program.starts) or program.starts[-1] >= len(words):
        yield f"layers must begin in order and within the program, not at {program.starts}"
    for pc, word in enumerate(words):
        try:
            isa.decode(word)
        except isa.IllegalInstruction as error:
            yield f"instruction {pc} must be legal: {error}"
    if not words or isa.decode(words[-1])[0].op is not isa.Op.HALT:
        yield "program must end with halt"


def image_problems(image: Image) -> Iterator[str]:
    """A line for everything that is inconsistent."""
    try:
        image.check()
    except ImageError as error:
        yield str(error)
        return
    table = regions(image.config)
    states = {(state.port.region, state.port.address) for state in image.states}  # in which outputs may lie
    for region in {part.region for part in image.segments}:
        parts = [part for part in image.segments if part.region is region and (region, part.start) not in states]
        yield from _spans(
            [(part.start, part.count, f"the segment from {part.start} on") for part in parts], region.name.lower()
        )
        loaded = [(part.start, part.count, "a segment") for part in parts]
        for port in (*image.inputs, *image.outputs):
            if port.region is region and table[region].depth:
                taken = [(port.address, port.vectors(image.config), f"port {port.name}")]
                yield from _spans([*loaded, *taken], region.name.lower())


def _spans(spans: Iterable[tuple[int, int, str]], where: str) -> Iterator[str]:
    """Spans, each with its first word, its words and a name, that overlap."""
    for (first, count, name), (start, _, other) in pairwise(sorted(span for span in spans if span[1])):
        if start < first + count:
            yield f"{name} and {other} must not overlap in {where} memory"
