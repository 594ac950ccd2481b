"""``python -m concord_bench.npu_equality``: training on the NPU and on the host, compared after every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from concord.cli.common import EXISTING, POSITIVE, readable, wide_console
from concord.demo.train import load_digits
from concord.demo.training import samples_of
from concord.display.tables import text_table
from concord.host import Device, connect
from concord.host.emulated import EmulatedDevice
from concord.spec.config_file import read_config
from concord.train import Samples, Settings, Trainer, described
from concord.train.npu import NpuTrainer, training_config
from concord_bench.evidence.floats import FloatTrainer, initial
from concord_bench.npu_training import BATCH, NETWORKS, ROOMY


class DifferenceError(RuntimeError):
    """A number that the NPU has come to is not that of the host."""


@dataclass(frozen=True)
class Equality:
    """Numbers that were compared, and accuracy that the network has reached.

    Parameters
    ----------
    steps : int
        Taken from random weights on.
    numbers : int
        Weights, accumulators, exponents and momentum of all steps together, each compared.
    cycles : tuple of int
        The fewest and the most of a step; a short last batch takes fewer.
    accuracy : tuple of float
        On the samples that were learned from, and on the others.
    """

    steps: int
    numbers: int
    cycles: tuple[int, int]
    accuracy: tuple[float, float]


def data() -> tuple[Samples, Samples]:
    """Handwritten digits to learn from, and others to judge by."""
    digits = load_digits()
    return samples_of(digits.x_train, digits.y_train), samples_of(digits.x_test, digits.y_test)


def compare_steps(
    device: Device,
    network: str,
    learned: Samples,
    test: Samples,
    settings: Settings,
    watch: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Equality:
    """Train on a device, in the emulator and on the host, and compare the device with both after every step.

    Parameters
    ----------
    device : Device
        With integer chains, and room for the network.
    network : str
        One of :data:`concord_bench.npu_training.NETWORKS`.
    learned, test : Samples
        To learn from, and to judge by.
    settings : Settings
        Of all three.
    watch : callable
        Gets the numbers of the steps and gives them back, for a bar of progress.

    Raises
    ------
    DifferenceError
        At the first number that differs, or if counters are not those of the emulator.
    """

    def trainer(kind: Callable[..., Any], *on: Device) -> Any:
        return kind(*on, described(list(NETWORKS[network]), (1, 8, 8)), learned, settings, random=True)

    host, npu, model = trainer(Trainer), trainer(NpuTrainer, device), trainer(NpuTrainer, EmulatedDevice(device.config))
    compared, cycles = 0, []
    for step in watch(range(settings.epochs * host.steps)):
        for trained in (host, npu, model):
            trained.step()
        npu.synchronise()
        compared += _compared(host, npu, f"step {step}")
        got, want = npu.device.counters(), model.device.counters()
        if got != want:
            raise DifferenceError(f"step {step}: counters must be {want}, as in the emulator, not {got}")
        cycles.append(got["CYCLES"])
    accuracy = tuple(host.judge(samples)[1] or 0.0 for samples in (learned, test))
    return Equality(len(cycles), compared, (min(cycles), max(cycles)), (accuracy[0], accuracy[1]))


def _compared(host: Trainer, npu: Trainer, where: str) -> int:
    """Number of numbers of two trainers that are the same, which is all of them."""
    count = 0
    for (name, want), (_, got) in zip(_numbers(host), _numbers(npu), strict=True):
        if different := np.flatnonzero(want != got).tolist():
            at = different[0]
            text = f"{name}[{at}] must be {want.flat[at]}, as on the host, not {got.flat[at]}"
            raise DifferenceError(f"{where}: {text}; {len(different)} of {want.size} differ")
        count += want.size
    return count


def _numbers(trainer: Trainer) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Arrays of everything that a step changes."""
    for name, parameter in trainer.network.parameters.items():
        for kind in ("weight", "acc", "exp", "velocity", "velocity_exp"):
            if getattr(parameter, kind) is not None:
                yield f"{name}.{kind}", np.asarray(getattr(parameter, kind))


def float_accuracy(network: str, learned: Samples, test: Samples, settings: Settings) -> str:
    """Accuracy of PyTorch on both kinds of samples, or why there is none."""
    try:
        reference = FloatTrainer(
            initial(described(list(NETWORKS[network]), (1, 8, 8)), settings.seed), learned, settings
        )
    except (ImportError, ValueError) as error:
        return f"none: {error}"
    reference.fit()
    return _shares(reference.judge(samples)[1] for samples in (learned, test))


def _shares(values: Iterable[float | None]) -> str:
    return ", ".join(f"{100 * (share or 0):.2f} %" for share in values)


@click.command()
@click.option(
    "--on", default="rtl", show_default=True, help="What trains beside the host: emulator, rtl or a serial port."
)
@click.option("--network", default="dense", show_default=True, type=click.Choice(list(NETWORKS)))
@click.option(
    "--config", "file", type=EXISTING,
    help="Configuration in TOML; default: that of training, with more memory for other networks than the dense one.",
)  # fmt: skip
@click.option("--epochs", default=12, show_default=True, type=POSITIVE)
@click.option("--rate", default="1/16", show_default=True, type=Fraction)
@click.option("--momentum", default="0", show_default=True, type=Fraction)
@click.option("--seed", default=1, show_default=True, type=int)
@readable
def main(on: str, network: str, file: Path | None, epochs: int, rate: Fraction, momentum: Fraction, seed: int) -> None:
    """Train a network for digits from scratch, and compare every number after every step.

    The first number that differs ends it with exit status 1, and so does a step that is counted otherwise than in the
    emulator. Beside the accuracy is that of PyTorch with the same weights at the start and the same samples in
    each step.
    """
    from rich.progress import track

    console = wide_console()
    learned, test = data()
    settings = Settings(epochs, BATCH, rate, momentum, seed=seed)
    config = read_config(file) if file else training_config() if network == "dense" else ROOMY
    with connect(on, config) as device:

        def watch(steps: Iterable[int]) -> Iterable[int]:
            return track(steps, f"steps on {on}", console=console)

        try:
            got = compare_steps(device, network, learned, test, settings, watch)
        except DifferenceError as error:
            raise click.ClickException(str(error)) from error
    rows = (
        ("steps", f"{got.steps:,}, {len(learned):,} samples, batch {BATCH}"),
        ("numbers compared after every step", f"{got.numbers // got.steps:,}"),
        ("numbers compared", f"{got.numbers:,}, none different"),
        ("cycles of a step", f"{got.cycles[0]:,} to {got.cycles[1]:,}, as the emulator counts"),
        ("accuracy, learned and other samples", _shares(got.accuracy)),
        ("the same of PyTorch, float32", float_accuracy(network, learned, test, settings)),
    )
    console.print(
        text_table(f"{network}, trained from scratch on {on} ({device.config.name})", rows=rows, header=False)
    )


if __name__ == "__main__":
    main()
