"""The way of a vector through the pipe, cycle by cycle."""

from __future__ import annotations

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord.spec.isa import PipelineStage
from concord.spec.presets import ECP5_85F_256
from concord_bench.pictures.kit import BODY, HEAD, MARGIN, PADDING, WIDTH, Line, Picture

#: Height of a row, between two units, and between two marks of the axis in cycles.
_ROW, _GAP, _MARKS = 28, 9, 10


def units(config: NpuConfig) -> list[tuple[str, str, list[tuple[str, int]]]]:
    """The units that a vector meets, in order: name, colour, and stages with the cycles that they take."""
    stage = PipelineStage
    function = [
        ("multiply", timing.BINARY16_MUL),
        ("add, subtract, max, min", timing.BINARY16_ADD),
        ("ReLU, table", timing.MFU - timing.ACT_OFFSET),
    ]
    names = ((stage.MUL0, stage.ADD0, stage.ACT0), (stage.MUL1, stage.ADD1, stage.ACT1))
    functions = [
        (f"MFU {unit}", "violet", [(f"{s.name}: {what}", n) for s, (what, n) in zip(stages, function, strict=True)])
        for unit, stages in enumerate(names)
    ]
    return [
        (
            stage.READ.name,
            "blue",
            [
                ("hazard gate", timing.HAZARD_GATE),
                ("vector memory", timing.VECTOR_READ),
                ("matrix word follows", timing.MATRIX_DELAY),
            ],
        ),
        (
            "tile engines",
            "green",
            [
                (f"products, sum of {config.lanes} lanes", timing.product_latency(config)),
                ("onto the grid", timing.ALIGN),
                ("accumulate", timing.sum_latency(config) - timing.product_latency(config) - timing.ALIGN),
                ("queue of results", timing.RESULT_QUEUE),
                ("to binary16", timing.ACC_TO_BINARY16),
            ],
        ),
        (stage.REDUCE.name, "amber", [("maximum over a window", timing.reduce_latency(config))]),
        *functions,
        (
            stage.WRITE.name,
            "blue",
            [
                ("early vectors join", timing.MFU_MERGE),
                ("wide: beats of the vector", config.beats),
                ("narrow: to a block", timing.quantizer_latency(config)),
            ],
        ),
    ]


def pipe() -> Picture:
    """The stages of a chain, each with its latency, one below the other along an axis of cycles."""
    config = ECP5_85F_256
    stages = units(config)
    total = sum(cycles for _, _, rows in stages for _, cycles in rows)
    picture = Picture(
        f"A vector on its way through the pipe of {config.name}",
        f"Stages of the chain pipe in order, from top to bottom, each as a bar as long as its latency; {total} cycles.",
    )
    pace = f"The units take {total} cycles; a vector can start every {config.beats}."
    picture.paragraph(Line(pace, BODY, quiet=True))
    picture.y += PADDING
    names = max(Line(name, BODY, bold=True).width for name, _, _ in stages) + PADDING
    said = max(Line(what).width for _, _, rows in stages for what, _ in rows)
    left = MARGIN + names + PADDING + said
    cycle = (WIDTH - MARGIN - left - Line(str(total), bold=True).width) / total
    top, at = picture.y, 0
    bottom = top + sum(_ROW * len(rows) + _GAP for _, _, rows in stages)
    for mark in range(0, total + 1, _MARKS):
        picture.path((left + mark * cycle, top - PADDING), (left + mark * cycle, bottom), faint=True)
        picture.text(left + mark * cycle, bottom, Line(str(mark), quiet=True), "middle")
    for name, colour, rows in stages:
        picture.box(MARGIN, picture.y, names, _ROW * len(rows), colour, [Line(name, BODY, bold=True)])
        for what, cycles in rows:
            x = left + at * cycle
            picture.text(MARGIN + names + PADDING, picture.y + 3, Line(what))
            picture.bar(x, picture.y + 5, cycles * cycle, _ROW - 10, colour)
            picture.text(x + cycles * cycle + PADDING / 2, picture.y + 3, Line(str(cycles), bold=True))
            picture.y += _ROW
            at += cycles
        picture.y += _GAP
    picture.y += HEAD + PADDING
    sooner = timing.mfu_latency(early=False) - timing.mfu_latency(early=True)
    notes = (
        f"A vector that needs neither a table nor MFU 1 leaves MFU 0 in front of its tables, {sooner} cycles earlier."
        " Registers between the units are not drawn."
    )
    picture.paragraph(Line(notes, quiet=True))
    return picture
