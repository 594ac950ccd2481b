"""The column of passes, from a file to an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from concord.compiler.pipeline.column import LOWER, ONE_PIECE, PREPARE, ROW_TILING, TABLES
from concord.frontend.importer import IMPORT
from concord.pipeline.manager import Pass, Pipeline
from concord_bench.pictures.kit import BODY, MARGIN, PADDING, SMALL, WIDTH, Line, Picture, wrapped

#: Height of a pass, the space around it, and between two pipelines.
_PASS, _SPACE, _GAP = 28, 6, 14


@dataclass
class Step:
    """Passes that lead to a state: those that leave it as it is, and the one that makes it."""

    passes: list[Pass] = field(default_factory=list)
    makes: type | None = None
    values: tuple[str, ...] = ()


def steps(passes: Sequence[Pass]) -> list[Step]:
    """Passes by the state that they lead to; checks belong to the pass after them."""
    result: list[Step] = []
    waiting: list[Pass] = []
    for step in passes:
        if step.makes is None:
            waiting.append(step)
        elif result and result[-1].makes is step.makes:
            result[-1].passes += [*waiting, step]
            waiting = []
        else:
            result.append(Step([*waiting, step], step.makes, step.values))
            waiting = []
    return [*result, Step(waiting)] if waiting else result


def sections() -> list[tuple[str, str, type | None, tuple[Pass, ...]]]:
    """Pipelines in order: title, colour, the state they take, and passes; what the last two share is by itself."""
    own, other = list(ONE_PIECE.passes), list(ROW_TILING.passes)
    shared: list[Pass] = []
    while own and other and own[-1] is other[-1]:
        shared.insert(0, own.pop())
        other.pop()
    plain: list[tuple[Pipeline[Any, Any], str]] = [
        (IMPORT, "blue"),
        (PREPARE, "green"),
        (TABLES, "amber"),
        (LOWER, "violet"),
    ]
    return [
        *((pipeline.name, colour, pipeline.takes, pipeline.passes) for pipeline, colour in plain),
        (ONE_PIECE.name, "red", ONE_PIECE.takes, tuple(own)),
        (f"or {ROW_TILING.name}", "red", ROW_TILING.takes, tuple(other)),
        ("both", "blue", None, tuple(shared)),
    ]


def _rows(passes: Sequence[Pass], width: float) -> list[list[Pass]]:
    """Passes beside each other as far as there is room."""
    rows: list[list[Pass]] = [[]]
    room = width
    for step in passes:
        needed = Line(step.name).width + _SPACE
        if needed > room and rows[-1]:
            rows.append([])
            room = width
        rows[-1].append(step)
        room -= needed
    return rows


def _state(step: Step) -> tuple[Line, Line]:
    """The name of the state after a step, and the values that it makes."""
    name = "" if step.makes is None else step.makes.__name__
    return Line(name, bold=True), Line(", ".join(step.values), quiet=True)


def passes() -> Picture:
    """Pipelines from top to bottom, passes in their order, and the states that they lead to."""
    parts = sections()
    picture = Picture(
        "From a file to an image: the passes of the compiler",
        "Pipelines from top to bottom. Each has its passes in order, and the state that they lead to on the right.",
    )
    picture.paragraph(Line("Passes in order on the left, the state that they make on the right.", BODY, quiet=True))
    picture.y += PADDING
    left = max(Line(word, bold=True).width for title, *_ in parts for word in title.split()) + PADDING
    states = [sum(line.width for line in _state(step)) for *_, column in parts for step in steps(column) if step.makes]
    at, state = MARGIN + left + PADDING, WIDTH - MARGIN - max(states)
    made: type | None = None
    for title, colour, takes, column in parts:
        top = picture.y
        if takes not in (None, made):
            picture.text(state, picture.y + 3, Line(f"from {takes.__name__}", quiet=True))
            picture.y += _PASS + _SPACE
        for step in steps(column):
            for row in _rows(step.passes, state - at - 4 * PADDING):
                x = at
                for drawn in row:
                    name = Line(drawn.name)
                    picture.box(x, picture.y, name.width, _PASS, colour if drawn.makes else "grey", [name])
                    x += name.width + _SPACE
                picture.y += _PASS + _SPACE
            if step.makes is not None:
                made = step.makes
                last = picture.y - _SPACE - _PASS
                picture.path((x, last + _PASS / 2), (state - PADDING, last + _PASS / 2), tip=True)
                name, values = _state(step)
                picture.text(state, last + 3, name)
                picture.text(state + name.width, last + 3, values)
        height = picture.y - top - _SPACE
        lines = [Line(words, bold=True) for words in wrapped(title, left - PADDING, SMALL, bold=True)]
        picture.box(MARGIN, top, left, height, colour, lines)
        picture.y += _GAP
    picture.paragraph(Line("Grey passes check, and make nothing.", quiet=True))
    return picture
