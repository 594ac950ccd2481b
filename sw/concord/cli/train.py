"""``concord train``."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from concord.cli.common import EXISTING, FOLDER, arrays_of, readable, wide_console
from concord.cli.workers import several, workers_options
from concord.spec.training import TRAIN_EXP_MAX
from concord.utils.files import check_place, write_bytes, write_text

if TYPE_CHECKING:
    from concord.overflow.trained import Trained
    from concord.train import Figures, Trainer
    from concord.train.settings import Plan
    from concord.utils.parallel import Engine

#: Exit status after an interruption, as shells have it.
INTERRUPTED = 130
#: Share of the updates of an epoch above which it is said that they were refused, or vanished.
REFUSED, VANISHED = 0.05, 0.5
#: Seconds between checkpoints.
_PERIOD = 30.0


def trainer_of(plan: Plan, engine: Engine | None = None) -> Trainer:
    """A trainer for what a file describes; ``ValueError`` if it cannot be."""
    from concord.frontend import import_model
    from concord.train import Samples, Trainer, augmented, described, fitted, taught

    arrays, names = arrays_of(plan.data), plan.names
    if missing := [names[key] for key in ("x", "y") if names[key] not in arrays and not (plan.taught and key == "y")]:
        raise ValueError(f"{plan.data} must have the arrays {missing}, and has {sorted(arrays)}")
    if isinstance(plan.model, Path):
        graph = import_model(plan.model, batchnorm=plan.batchnorm)
    else:
        graph = described(plan.model, plan.input_shape or ())
    sets = [
        Samples(arrays[names[x]], arrays[names[x if plan.taught else y]], plan.scale, plan.zero)
        for x, y in (("x", "y"), ("test_x", "test_y"))
        if names[x] in arrays and (plan.taught or names[y] in arrays)
    ]
    for what, samples in zip(("training", "test"), sets, strict=False):
        samples.check_inputs(what, graph)
    seed, more = plan.settings.seed, plan.augmentation
    start = fitted(graph, plan.settings.formats, sets[0].inputs(slice(None))) if plan.fitted else graph
    if plan.taught:
        sets = [taught(graph, samples, None if k else more, seed) for k, samples in enumerate(sets)]
    elif more is not None:
        sets[0] = augmented(sets[0], more, seed)
    return Trainer(start, sets[0], plan.settings, sets[1] if len(sets) > 1 else None, plan.random, engine)


@click.command()
@click.argument("config", type=EXISTING)
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder for checkpoint, network and history.")
@click.option("--resume", is_flag=True, help="Go on where the checkpoint in the folder was written.")
@workers_options
@readable
def train(config: Path, output: Path, resume: bool, workers: int | None, cluster: str | None) -> None:
    """Train a network in block floating point as CONFIG, a TOML file, says.

    Writes checkpoint.npz, history.json and, at the end, network.onnx, which `concord compile` takes; with `[overflow]`
    also network.evidence.json, for `concord compile --accumulator auto`. Ctrl-C saves the checkpoint; with --resume
    nothing is lost. Workers share the shards of a batch (`shards` of `[train]`); the bits are the same for any number
    of them.
    """
    from concord.train.settings import read_plan
    from concord.train.trainer import check_alone

    plan = read_plan(config)
    check_alone(plan.settings, (workers, cluster) != (None, None))
    with several(workers, cluster) as engine:
        _train(plan, config, output, resume, engine)


def _train(plan: Plan, config: Path, output: Path, resume: bool, engine: Engine | None) -> None:
    from concord.overflow.trained import evidence_path
    from concord.train import export_onnx

    trainer = trainer_of(plan, engine)
    output.mkdir(parents=True, exist_ok=True)
    saved, network, history = (output / name for name in ("checkpoint.npz", "network.onnx", "history.json"))
    for path in (saved, network, history, evidence_path(network)):
        check_place(path)
    if resume:
        trainer.restore(saved)
    elif saved.exists():
        raise ValueError(f"{saved} is there already; give --resume to go on, or another folder")
    console = wide_console()
    if engine is not None and trainer.settings.shards == 1:
        console.print("shards is 1: one worker at a time computes a step; [train] shards = 4 lets four share it")
    with _interruption() as pressed:
        run(trainer, saved, console, pressed)
    trainer.save(saved)
    write_text(history, json.dumps([asdict(figures) for figures in trainer.history], indent=1) + "\n")
    if not trainer.finished:
        console.print(f"interrupted; go on with: concord train {config} -o {output} --resume", soft_wrap=True)
        raise click.exceptions.Exit(INTERRUPTED)
    found = export_onnx(trainer.trained())
    write_bytes(network, found)
    if (evidence := trainer.evidence(found)) is not None:
        write_text(evidence_path(network), evidence.to_json())
    console.print(summary(trainer.history))
    for line in [*told(trainer.history), *saturated(trainer.history)]:
        console.print(line, soft_wrap=True)
    if evidence is not None:
        for text in said(evidence):
            console.print(text, soft_wrap=True)
    auto = " --accumulator auto" if evidence is not None else ""
    console.print(f"{network}: trained; concord compile {network}{auto}", soft_wrap=True)


def run(trainer: Trainer, saved: Path | None, console: Console, pressed: list[bool]) -> None:
    """Train with a progress bar, a line per epoch, and a checkpoint now and then."""
    columns = (
        TextColumn("epoch {task.fields[epoch]}"), BarColumn(bar_width=24), TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"), TimeRemainingColumn(),
    )  # fmt: skip
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


@contextmanager
def _interruption() -> Iterator[list[bool]]:
    """Whether Ctrl-C was pressed: a step is never left half done."""
    pressed = [False]

    def note(number: int, frame: Any) -> None:
        if pressed[0]:
            raise KeyboardInterrupt
        pressed[0] = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %"


def line(figures: Figures) -> str:
    """An epoch in a line."""
    parts = [f"epoch {figures.epoch + 1}: loss {figures.loss:.4f}"]
    if figures.accuracy is not None:
        parts.append(f"accuracy {_percent(figures.accuracy)}")
    if figures.test_loss is not None:
        parts.append(f"test loss {figures.test_loss:.4f}")
    if figures.test_accuracy is not None:
        parts.append(f"test accuracy {_percent(figures.test_accuracy)}")
    if figures.overflow is not None:
        parts.append(f"overflows {figures.overflow.ended:,} of {figures.overflow.sums:,} sums")
        if figures.overflow.scaled:
            parts.append(f"ranges {figures.overflow.scaled:+} bits")
    if figures.counts.saturated:
        parts.append(f"saturated {figures.counts.saturated:,}")
    return ", ".join(parts)


def summary(history: list[Figures]) -> Table:
    """The first epochs, every few in between, and the last."""
    table = Table(title="Training", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    names: tuple[str, ...] = (
        "epoch",
        "rate",
        "loss",
        "accuracy",
        "test loss",
        "test accuracy",
        "refused",
        "vanished",
        "grown",
    )
    watched = history[-1].overflow is not None
    if watched:
        names += ("overflows",)
    cut = any(f.counts.saturated for f in history)
    if cut:
        names += ("saturated",)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    shown = sorted({0, len(history) - 1, *range(0, len(history), max(1, len(history) // 8))})
    for k in shown:
        f = history[k]
        counted = max(f.counts.elements, 1)
        table.add_row(
            str(f.epoch + 1), f"{f.rate:.6g}", f"{f.loss:.4f}", _percent(f.accuracy),
            "" if f.test_loss is None else f"{f.test_loss:.4f}", _percent(f.test_accuracy),
            _percent(f.counts.refused / counted), _percent(f.counts.vanished / counted), str(f.counts.grown),
            *((_overflows(f),) if watched else ()), *((f"{f.counts.saturated:,}",) if cut else ()),
        )  # fmt: skip
    return table


def _overflows(figures: Figures) -> str:
    """Sums that have left the accumulator while learning, and of the test samples."""
    ended, test = figures.overflow, figures.test_overflow
    learned = "" if ended is None else f"{ended.ended:,}"
    return learned if test is None else f"{learned}, test {test.ended:,}"


def said(evidence: Trained) -> list[str]:
    """What a network that was trained for an accumulator needs, a line each."""
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
    """What there is to say if numbers were beyond the greatest exponent: all that comes behind is wrong."""
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


def told(history: list[Figures]) -> list[str]:
    """What the counts ask for: refused updates of the epoch with most of them, vanished ones of the last."""
    found = []
    share, epoch = max((f.counts.refused / max(f.counts.elements, 1), f.epoch) for f in history)
    if share > REFUSED:
        found.append(
            f"{_percent(share)} of the updates of epoch {epoch + 1} were larger than accumulators hold and were cut "
            "off (refused): a smaller rate, or a smaller accumulator.point, keeps them"
        )
    last = history[-1].counts
    if (share := last.vanished / max(last.elements, 1)) > VANISHED:
        found.append(
            f"{_percent(share)} of the updates of the last epoch were too small for accumulators and were rounded to "
            "zero (vanished): more accumulator bits, or stochastic rounding, keep them"
        )
    return found
