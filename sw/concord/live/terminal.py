"""Display of a session in the terminal: figures and classes on the way, and a summary in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from concord.display.terminal import counted, printable
from concord.live.session import FlagCount, LiveState, LiveSummary
from concord.utils.arrays import FloatArray

#: Classes that are shown.
SHOWN = 10
#: Columns of a bar.
_BAR = 30


def shown_classes(scores: FloatArray) -> list[int]:
    """Classes to show: all in their order, or, if there are too many, those with the highest scores."""
    if len(scores) <= SHOWN + 2:
        return list(range(len(scores)))
    return [int(k) for k in np.argsort(-scores, kind="stable")[:SHOWN]]


def shares(scores: FloatArray) -> FloatArray:
    """Lengths of bars of scores, 0 to 1: scores from 0 to 1 as they are, others from the least to the greatest."""
    finite = np.nan_to_num(scores, nan=0.0, posinf=np.finfo(np.float64).max, neginf=np.finfo(np.float64).min)
    low, high = float(finite.min(initial=0)), float(finite.max(initial=1))
    return np.asarray((finite / 2 - low / 2) / (high / 2 - low / 2))


def score_text(score: float | None) -> str:
    """A score as it is written."""
    return "" if score is None else f"{score:.3g}" if abs(score) >= 1000 else f"{score:.3f}"


def milliseconds(seconds: float) -> str:
    """A time."""
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def figures(state: LiveState) -> list[str]:
    """Figures of a state, a text each."""
    texts = [
        f"frame {state.frames:,}",
        f"{state.rate:.1f} frames/s",
        f"latency {milliseconds(state.latency)} (median {milliseconds(state.median)}, 95 % {milliseconds(state.p95)})",
    ]
    return [*texts, f"{state.dropped:,} dropped"] if state.dropped else texts


def panel(state: LiveState | None, label: Callable[[int], str]) -> RenderableType:
    """Panel that is shown on the way."""
    if state is None:
        return Text("waiting for the source")
    classification = state.classification
    table = Table.grid(padding=(0, 2, 0, 0))
    lengths = shares(classification.scores)
    for k in shown_classes(classification.scores):
        colour, style = ("green", "bold") if k == classification.best else ("blue", "")
        bar = ProgressBar(1.0, float(lengths[k]), width=_BAR, complete_style=colour, finished_style=colour)
        table.add_row(Text(printable(label(k)), style), Text(score_text(float(classification.scores[k])), style), bar)
    lines: list[RenderableType] = [
        Text("  ".join(figures(state))),
        Text(f"class {printable(classification.label)}  {score_text(classification.score)}", "bold green"),
        table,
    ]
    return Group(*lines, *(Text(line, "red") for line in flag_lines(state.flags)))


def flag_lines(flags: tuple[FlagCount, ...]) -> Iterator[str]:
    """A line for each flag."""
    for count in flags:
        yield printable(f"{count.flag.text} (in {counted(count.frames, 'frames')})")


def line(state: LiveState) -> str:
    """A frame as a line of a file or a pipe."""
    classification = state.classification
    flags = "".join(f"  {count.where} {count.flag}" for count in classification.flags)
    score = f"  {score_text(classification.score)}" if classification.score is not None else ""
    return f"{state.capture.position:.2f} s  {classification.label}{score}  {milliseconds(state.latency)}{flags}"


def summary_lines(summary: LiveSummary) -> Iterator[str]:
    """The end of a session."""
    if not summary.frames:
        yield "no frame has run"
        return
    yield (
        f"{counted(summary.frames, 'frames')} in {summary.seconds:.3g} s, {summary.rate:.1f} per second; "
        f"latency: median {milliseconds(summary.median)}, 95 % within {milliseconds(summary.p95)}; "
        f"{counted(summary.dropped, 'frames')} dropped"
    )
    yield "classes: " + ", ".join(f"{label} {count:,}" for label, count in summary.classes.items())
    if not summary.flags:
        yield "no flags were raised"
    for count in summary.flags:
        yield f"{count.flag.hint} (in {counted(count.frames, 'frames')} of {summary.frames:,})"
