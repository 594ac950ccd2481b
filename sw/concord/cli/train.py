"""``concord train``."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from concord.cli.common import (
    EXISTING,
    FOLDER,
    PRESET,
    arrays_of,
    check_link,
    echo,
    gathered,
    readable,
    wide_console,
)
from concord.cli.options import compile_options
from concord.cli.workers import SharingOptions, several, workers_options
from concord.display.terminal import counted
from concord.utils.files import check_place, write_bytes, write_text

if TYPE_CHECKING:
    from concord.host import Device
    from concord.train import Trainer
    from concord.train.settings import TrainingPlan
    from concord.utils.parallel import Engine

#: Exit status after an interruption, as shells have it.
INTERRUPTED = 130


def trainer_of(plan: TrainingPlan, engine: Engine | None = None, device: Device | None = None) -> Trainer:
    """A trainer for what a file describes, on a device if there is one; ``ValueError`` if it cannot be."""
    from concord.frontend import import_model
    from concord.train import Samples, Trainer, augmented, described, fitted, taught

    arrays, names = arrays_of(plan.data), plan.names
    needed = [*_each(names["x"]), *([] if plan.taught else _each(names["y"]))]
    if missing := [name for name in needed if name not in arrays]:
        raise ValueError(f"{plan.data} must have the arrays {missing}, and has {sorted(arrays)}")
    if isinstance(plan.model, Path):
        graph = import_model(plan.model, batchnorm=plan.batchnorm, volumes=True)
    else:
        graph = described(plan.model, plan.input_shape or (), outputs=plan.outputs)
    sets = [
        Samples(_taken(arrays, names[x]), _taken(arrays, names[x if plan.taught else y]), plan.scale, plan.zero)
        for x, y in (("x", "y"), ("test_x", "test_y"))
        if {*_each(names[x]), *([] if plan.taught else _each(names[y]))} <= set(arrays)
    ]
    for what, samples in zip(("training", "test"), sets, strict=False):
        samples.check_inputs(what, graph)
    seed, more = plan.settings.seed, plan.augmentation
    start = fitted(graph, plan.settings.formats, sets[0].inputs(slice(None))) if plan.fitted else graph
    if plan.taught:
        sets = [taught(graph, samples, None if k else more, seed) for k, samples in enumerate(sets)]
    elif more is not None:
        sets[0] = augmented(sets[0], more, seed, plan.settings.losses_of(graph.outputs))
    test = sets[1] if len(sets) > 1 else None
    if device is not None:
        from concord.train.npu import NpuTrainer

        return NpuTrainer(device, start, sets[0], plan.settings, test, plan.random)
    return Trainer(start, sets[0], plan.settings, test, plan.random, engine)


def _each(name: str | dict[str, str]) -> list[str]:
    """Names of arrays."""
    return list(name.values()) if isinstance(name, dict) else [name]


def _taken(arrays: Mapping[str, Any], name: str | dict[str, str]) -> Any:
    """An array, or a dict of one for each output."""
    return {key: arrays[each] for key, each in name.items()} if isinstance(name, dict) else arrays[name]


class TrainingDevice(NamedTuple):
    """NPU to train on; ``None`` without an option."""

    on: str | None
    preset: str | None
    npu_file: Path | None
    link: str | None

    def connected(self) -> AbstractContextManager[Any]:
        """The device, or ``None`` if the host trains."""
        on, preset, file, link = self
        if on is None:
            if (preset, file, link) != (None, None, None):
                raise ValueError("--preset, --config and --link must be given with --on: the host has no NPU")
            return nullcontext()
        if preset is not None and file is not None:
            raise ValueError("--preset must be given without --config: both are the configuration of the NPU")
        from concord.host import connect
        from concord.spec.config_file import read_config
        from concord.spec.presets import PRESETS
        from concord.train.npu import training_config

        check_link(on, link)
        config = read_config(file) if file is not None else PRESETS[preset] if preset is not None else training_config()
        return connect(on, config, link=link)


@click.command()
@click.argument("config", type=EXISTING)
@click.option(
    "-o", "--output", type=FOLDER, required=True, help="Folder for the checkpoint, the network and the history."
)
@click.option("--resume", is_flag=True, help="Continue from the checkpoint in the folder.")
@click.option(
    "--on", help="Train on an NPU: emulator, rtl, or the name of a serial port. Without it, this machine trains."
)
@click.option("--preset", type=PRESET, help="Configuration of the NPU.")
@click.option("--config", "npu_file", type=EXISTING, help="File with the configuration of the NPU.")
@compile_options("link")
@workers_options
@readable
@gathered(npu=TrainingDevice, sharing=SharingOptions)
def train(
    config: Path,
    output: Path,
    resume: bool,
    npu: TrainingDevice,
    sharing: SharingOptions,
) -> None:
    """Train a network in block floating point as CONFIG, a TOML file, says.

    Writes checkpoint.npz, history.json and, at the end, network.onnx, which `concord compile` takes; with `[overflow]`
    also network.evidence.json, for `concord compile --accumulator auto`. Ctrl-C saves the checkpoint; with --resume
    nothing is lost. Workers share the shards of a batch (`shards` of `[train]`); the bits are the same for any number
    of them. With --on an NPU trains; the bits are the same, too, and a run can go on there or here.
    """
    from concord.train.settings import read_plan
    from concord.train.trainer import check_alone

    plan = read_plan(config)
    check_alone(plan.settings, sharing != SharingOptions())
    if npu.on is not None and sharing != SharingOptions():
        raise ValueError("--on must be given without --workers and --cluster: a step is that of one NPU")
    with several(*sharing) as engine, npu.connected() as device:
        _train(plan, config, output, resume, engine, device)


def _train(
    plan: TrainingPlan, config: Path, output: Path, resume: bool, engine: Engine | None, device: Device | None
) -> None:
    from concord.overflow.trained import evidence_path
    from concord.train import console as shown
    from concord.train import export_onnx

    trainer = trainer_of(plan, engine, device)
    output.mkdir(parents=True, exist_ok=True)
    saved, network, history = (output / name for name in ("checkpoint.npz", "network.onnx", "history.json"))
    for path in (saved, network, history, evidence_path(network)):
        check_place(path)
    if resume:
        trainer.restore(saved)
    elif saved.exists():
        raise ValueError(f"{saved} is there already; give --resume to go on, or another folder")
    over = trainer.finished
    console = wide_console()
    if engine is not None and trainer.settings.shards == 1:
        echo("shards is 1: one worker at a time computes a step; [train] shards = 4 lets four share it")
    with _interruption() as pressed:
        shown.run(trainer, saved, console, pressed)
    trainer.save(saved)
    write_text(history, json.dumps([figures.facts for figures in trainer.history], indent=1) + "\n")
    if not trainer.finished:
        echo(f"interrupted; go on with: concord train {config} -o {output} --resume")
        raise click.exceptions.Exit(INTERRUPTED)
    model = export_onnx(trainer.trained())
    write_bytes(network, model)
    if (evidence := trainer.evidence(model)) is not None:
        write_text(evidence_path(network), evidence.to_json())
    console.print(shown.summary(trainer.history))
    said = shown.convergence(trainer), shown.updates_lost(trainer.history), shown.saturated(trainer.history)
    for line in chain.from_iterable(said):
        echo(line)
    if evidence is not None:
        for text in shown.accumulator_needs(evidence):
            echo(text)
    auto = " --accumulator auto" if evidence is not None else ""
    done = f"nothing was trained, as {saved} has {counted(trainer.epoch, 'epochs')} already" if over else "trained"
    echo(f"{network}: {done}; concord compile {network}{auto}")


@contextmanager
def _interruption() -> Iterator[list[bool]]:
    """Flag of Ctrl-C, a list of one bool: a step is never left half done."""
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
