"""Terminal output of a training: a progress bar, a line per epoch, a table, and advice from the counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from concord.display.tables import text_table
from concord.spec.training import TRAIN_EXP_MAX
from concord.train.trainer import Figures, OutputFigures, Trainer

if TYPE_CHECKING:
    from concord.overflow.trained import Trained

#: Share of the updates of an epoch above which it is said that they were refused, or vanished.
REFUSED, VANISHED = 0.05, 0.5
#: Seconds between checkpoints.
_PERIOD = 30.0


def run(trainer: Trainer, saved: Path | None, console: Console, pressed: list[bool]) -> None:
    """Train with a progress bar, a line per epoch, and a checkpoint now and then."""
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    total = trainer.settings.epochs * trainer.steps
    last = monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        at = trainer.epoch * trainer.steps + trainer.done
        task = progress.add_task("", total=total, completed=at, epoch=trainer.epoch + 1, figures="")

        def after(current: Trainer) -> bool:
            nonlocal last
            if current.done == 0:
                console.print(line(current.history[-1]), soft_wrap=True)
            done = current.epoch * current.steps + current.done
            epoch = min(current.epoch + 1, current.settings.epochs)
            progress.update(task, completed=done, epoch=epoch, figures=current.running)
            if saved is not None and monotonic() - last > _PERIOD:
                current.save(saved)
                last = monotonic()
            return pressed[0]

        trainer.fit(after)


def convergence(trainer: Trainer) -> list[str]:
    """Reason for which a training has ended before its last epoch, and where it was best; nothing of others."""
    stop, history = trainer.settings.stop, trainer.history
    if stop is None or not trainer.converged:
        return []
    figures = trainer.followed
    best, name = stop.best(figures), " ".join(filter(None, (stop.output, stop.metric.replace("_", " "))))
    text = (
        f"converged in epoch {len(history)} of {trainer.settings.epochs}: {name} was best in epoch {best + 1} "
        f"({figures[best]:.4f}) and not better since; weights are those of the last epoch"
    )
    return [text]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %"


def _judged(figures: Figures | OutputFigures) -> list[str]:
    """Losses and accuracies."""
    parts = [f"loss {figures.loss:.4f}"]
    if figures.accuracy is not None:
        parts.append(f"accuracy {_percent(figures.accuracy)}")
    if figures.test_loss is not None:
        parts.append(f"test loss {figures.test_loss:.4f}")
    if figures.test_accuracy is not None:
        parts.append(f"test accuracy {_percent(figures.test_accuracy)}")
    return parts


def line(figures: Figures) -> str:
    """An epoch in a line, the outputs after all together."""
    parts = [f"epoch {figures.epoch + 1}: {', '.join(_judged(figures))}"]
    parts += [f"{name}: {', '.join(_judged(of_output))}" for name, of_output in figures.outputs.items()]
    if figures.overflow is not None:
        parts.append(f"overflows {figures.overflow.ended:,} of {figures.overflow.sums:,} sums")
        if figures.overflow.scaled:
            parts.append(f"ranges {figures.overflow.scaled:+} bits")
    if figures.counts.saturated:
        parts.append(f"saturated {figures.counts.saturated:,}")
    return ", ".join(parts)


def summary(history: list[Figures]) -> Table:
    """The first epochs, every few in between, and the last."""
    judged: dict[str, Callable[[Figures], str]] = {
        "epoch": lambda f: str(f.epoch + 1),
        "rate": lambda f: f"{f.rate:.6g}",
        "loss": lambda f: f"{f.loss:.4f}",
        "accuracy": lambda f: _percent(f.accuracy),
        "test loss": lambda f: "" if f.test_loss is None else f"{f.test_loss:.4f}",
        "test accuracy": lambda f: _percent(f.test_accuracy),
    }
    counted: dict[str, Callable[[Figures], str]] = {
        "refused": lambda f: _percent(f.counts.refused / max(f.counts.elements, 1)),
        "vanished": lambda f: _percent(f.counts.vanished / max(f.counts.elements, 1)),
        "grown": lambda f: str(f.counts.grown),
    }
    if history[-1].overflow is not None:
        counted["overflows"] = _overflows
    if any(f.counts.saturated for f in history):
        counted["saturated"] = lambda f: f"{f.counts.saturated:,}"
    of_outputs: dict[str, Callable[[Figures], str]] = {}
    for name in history[-1].outputs:  # one that is called like a column is quoted
        of_outputs |= _columns_of(name, repr(name) if name in judged | counted else name)
    columns = judged | of_outputs | counted
    names = tuple(columns)
    table = text_table("Training", names, right=names, whole=names)
    shown = sorted({0, len(history) - 1, *range(0, len(history), max(1, len(history) // 8))})
    for k in shown:
        table.add_row(*(text(history[k]) for text in columns.values()))
    return table


def _columns_of(output: str, header: str) -> dict[str, Callable[[Figures], str]]:
    """Columns of one of several outputs: its accuracy or, without classes, its loss."""

    def shown(loss: float | None, accuracy: float | None) -> str:
        return _percent(accuracy) if accuracy is not None else "" if loss is None else f"{loss:.4f}"

    return {
        header: lambda f: shown(f.outputs[output].loss, f.outputs[output].accuracy),
        f"test {header}": lambda f: shown(f.outputs[output].test_loss, f.outputs[output].test_accuracy),
    }


def _overflows(figures: Figures) -> str:
    """Sums that have left the accumulator while learning, and of the test samples."""
    ended, test = figures.overflow, figures.test_overflow
    learned = "" if ended is None else f"{ended.ended:,}"
    return learned if test is None else f"{learned}, test {test.ended:,}"


def accumulator_needs(evidence: Trained) -> list[str]:
    """Needs of a network that was trained for an accumulator, a line each."""
    most = max(evidence.layers, key=lambda layer: layer.observed)
    bound = max(evidence.layers, key=lambda layer: layer.bound)
    beyond = sum(layer.beyond for layer in evidence.layers)
    seen = f"products, sums and outputs of {evidence.samples} samples need {most.observed} ({most.name})"
    any_input = f"any input needs at most {bound.bound} ({bound.name})"
    lines = [f"accumulator of {evidence.accumulator_bits} bits: {seen}, {beyond:,} values leave it; {any_input}"]
    if beyond:
        lines.append(
            'sums that leave the accumulator end: method = "evidence" scales ranges, method = "bound" keeps weights '
            "where none can"
        )
    if evidence.register > evidence.accumulator_bits:
        lines.append(
            f'on the one grid of an NPU the layers need {evidence.register} bits: grid = "network" trains for that'
        )
    return lines


def saturated(history: list[Figures]) -> list[str]:
    """Warning if numbers were beyond the greatest exponent: all that comes after is wrong."""
    wrong = [figures for figures in history if figures.counts.saturated]
    if not wrong:
        return []
    count = sum(figures.counts.saturated for figures in wrong)
    text = (
        f"{count:,} numbers needed an exponent above {TRAIN_EXP_MAX} and were cut off (saturated), from epoch "
        f"{wrong[0].epoch + 1} on: what was trained since is wrong; a smaller scale of the data, or a smaller rate, "
        "keeps them"
    )
    return [text]


def updates_lost(history: list[Figures]) -> list[str]:
    """Warnings that the counts ask for: refused updates of the epoch with most of them, vanished ones of the last."""
    warnings = []
    share, epoch = max((f.counts.refused / max(f.counts.elements, 1), f.epoch) for f in history)
    if share > REFUSED:
        warnings.append(
            f"{_percent(share)} of the updates of epoch {epoch + 1} were larger than accumulators hold and were cut "
            "off (refused): a smaller rate, or a smaller accumulator.point, keeps them"
        )
    last = history[-1].counts
    if (share := last.vanished / max(last.elements, 1)) > VANISHED:
        warnings.append(
            f"{_percent(share)} of the updates of the last epoch were too small for accumulators and were rounded to "
            "zero (vanished): a larger rate, more accumulator bits, or stochastic rounding, keep them"
        )
    return warnings
