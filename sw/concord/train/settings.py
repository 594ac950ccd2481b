"""Settings of a training run, and the file that they are read from."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from concord.spec.formats import BLOCK_ROUNDINGS
from concord.spec.training import TrainingFormats
from concord.train.augment import Augmentation
from concord.train.losses import ONLY, OutputLoss, check_loss
from concord.train.overflow_settings import OverflowSettings
from concord.train.tensor import Dyadic
from concord.utils.numbers import exact_number, number_of

#: Figures by which a training can be stopped, and whether more of one is better.
METRICS = {"loss": False, "accuracy": True, "test_loss": False, "test_accuracy": True}


@dataclass(frozen=True)
class Convergence:
    """Condition for the end of a training: a figure of its epochs has not become better for some of them.

    Parameters
    ----------
    metric : str
        One of :data:`METRICS`: of the samples of the epoch while they were learned, or of the test samples after it.
    patience : int
        Epochs, one after the other, of which none has a better figure than the best one before.
    output : str
        Whose figure it is, of several outputs; empty: of all together.
    """

    metric: str
    patience: int
    output: str = ""

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"stop.metric must be one of {', '.join(METRICS)}, not {self.metric!r}")
        if type(self.patience) is not int or self.patience < 1:
            raise ValueError(f"stop.patience must be a whole number from 1 on, not {self.patience!r}")
        if type(self.output) is not str:
            raise ValueError(f"stop.output must be the name of an output, not {self.output!r}")

    def best(self, figures: Sequence[float]) -> int:
        """The epoch with the best of some figures, the first one of several that are alike."""
        sign = -1 if METRICS[self.metric] else 1
        return min(range(len(figures)), key=lambda epoch: sign * figures[epoch])

    def converged(self, figures: Sequence[float]) -> bool:
        """True if a training has converged after the last of the epochs that have these figures."""
        return len(figures) > self.patience and len(figures) - 1 - self.best(figures) >= self.patience


@dataclass(frozen=True)
class Settings:
    """Everything that decides the trained weights, beside network and data.

    Parameters
    ----------
    epochs, batch : int
        Passes over the samples, and samples of a step.
    rate, momentum, decay : Fraction
        Of :class:`concord.train.optimiser.Optimiser`; each is rounded to a number of 16 bits where it is used.
    schedule : tuple of (int, Fraction)
        From this epoch on, counted from 0, the rate is that many times what it was before.
    loss : str
        ``cross_entropy`` or ``mse``, of the only output.
    losses : dict of str to OutputLoss
        By name, of all outputs, in the place of ``loss``.
    shards : int
        Parts of a batch that are computed by themselves, each with exponents and statistics of its own; as many
        workers can share a step.
    seed : int
        Of random weights, of the order of samples, and of noise.
    formats : TrainingFormats
        Widths, blocks and roundings.
    overflow : OverflowSettings or None
        Of an accumulator of few bits; ``None``: sums are exact.
    stop : Convergence or None
        When it ends before all epochs are over.
    """

    epochs: int = 10
    batch: int = 32
    rate: Fraction = Fraction(1, 16)
    momentum: Fraction = Fraction(9, 10)
    decay: Fraction = Fraction(0)
    schedule: tuple[tuple[int, Fraction], ...] = ()
    loss: str = "cross_entropy"
    seed: int = 1
    shards: int = 1
    formats: TrainingFormats = field(default_factory=TrainingFormats)
    overflow: OverflowSettings | None = None
    stop: Convergence | None = None
    losses: Mapping[str, OutputLoss] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch", 1), ("seed", 0), ("shards", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least or value >= 1 << 62:
                raise ValueError(f"{name} must be a whole number from {least} on, not {value!r}")
        if not self.rate > 0:
            raise ValueError(f"rate must be above 0, not {float(self.rate)!r}")
        for name in ("momentum", "decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 0 to below 1, not {float(getattr(self, name))!r}")
        check_loss(self.loss)
        if ONLY in self.losses:
            raise ValueError("losses must have the names of outputs, not an empty one")
        for epoch, factor in self.schedule:
            if epoch < 0 or not factor > 0:
                raise ValueError(
                    f"schedule must have epochs from 0 and factors above 0, not {(epoch, float(factor))!r}"
                )
        if self.overflow is not None:
            self.overflow.check(self.formats)
            if self.stop is not None:
                raise ValueError(
                    "stop must not be given with [overflow]: its ranges end with the last epoch, which must be known"
                )
        if self.stop is not None:
            self._check_stop(self.stop)

    def _check_stop(self, stop: Convergence) -> None:
        if stop.output and stop.output not in self.losses:
            raise ValueError(
                f"stop.output must be one of losses, {', '.join(self.losses) or 'none'}, not {stop.output!r}"
            )
        by = self.losses[stop.output].loss if stop.output else "a sum of several losses" if self.losses else self.loss
        if "accuracy" in stop.metric and by != "cross_entropy":
            raise ValueError(f"stop.metric must be a loss with {by}, which has no accuracy, not {stop.metric!r}")

    def losses_of(self, outputs: Collection[str]) -> dict[str, OutputLoss]:
        """Losses by which the outputs of a network are judged, in their order; that of the only one has no name.

        Raises
        ------
        ValueError
            If there are several outputs and no ``losses``, or these have other names.
        """
        if not self.losses and len(outputs) == 1:
            return {ONLY: OutputLoss(self.loss)}
        if set(self.losses) != set(outputs):
            there = ", ".join(sorted(self.losses)) or "none"
            raise ValueError(f"losses must have one for each of the outputs {', '.join(outputs)}, not {there}")
        return {name: self.losses[name] for name in outputs}

    def rate_of(self, epoch: int) -> Fraction:
        """The rate of an epoch, a number of 16 bits."""
        rate = self.rate
        for start, factor in self.schedule:
            rate *= factor if epoch >= start else 1
        return Dyadic.nearest(rate).value

    @property
    def facts(self) -> dict[str, Any]:
        """Everything as texts and numbers; for checkpoints."""
        facts = asdict(self)
        for name in ("overflow", "stop", "losses"):
            if not facts[name]:
                del facts[name]
        for entry in facts.get("losses", {}).values():
            entry["weight"] = str(entry["weight"])
        for name in ("rate", "momentum", "decay"):
            facts[name] = str(facts[name])
        facts["schedule"] = [[epoch, str(factor)] for epoch, factor in self.schedule]
        return facts


@dataclass(frozen=True)
class TrainingPlan:
    """A training run as a file describes it.

    Parameters
    ----------
    settings : Settings
        Of the training.
    model : Path or list of dict
        An ONNX file, or layers for :func:`concord.train.describe.described`.
    input_shape : tuple of int or None
        Of a sample, for layers.
    random : bool
        Whether weights are random at the start.
    batchnorm : bool
        Whether BatchNormalization of the file is trained, and not folded before.
    fitted : bool
        Whether weights of the file are rounded for the samples at the start, see :mod:`concord.train.start`.
    augmentation : Augmentation or None
        Changed samples on top of those that are there.
    taught : bool
        Whether targets are what the network of the file gives, and not the labels.
    data : Path
        An npz file.
    names : dict
        ``x``, ``y``, ``test_x``, ``test_y``: arrays of the file; of labels of several outputs, a dict by output.
    outputs : tuple of str
        Layers that are outputs, of layers; empty: the last one.
    scale, zero : float
        The network reads ``(x - zero) * scale``.
    """

    settings: Settings
    model: Path | list[dict[str, Any]]
    input_shape: tuple[int, ...] | None
    random: bool
    data: Path
    names: dict[str, str | dict[str, str]]
    scale: float = 1.0
    zero: float = 0.0
    batchnorm: bool = False
    fitted: bool = False
    augmentation: Augmentation | None = None
    taught: bool = False
    outputs: tuple[str, ...] = ()


_DATA = {"x": "x_train", "y": "y_train", "test_x": "x", "test_y": "y"}


def read_plan(path: Path) -> TrainingPlan:
    """Read a TOML file.

    Raises
    ------
    ValueError
        With the place of what is not understood.
    """
    try:
        contents = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be TOML: {error}") from error
    _known(contents, ("model", "data", "augment", "train", "formats", "overflow"), str(path))
    model, data = (_table(contents, name, path) for name in ("model", "data"))
    _known(model, ("file", "layers", "input", "outputs", "start", "batchnorm", "rounding"), f"{path} [model]")
    _known(data, ("file", "scale", "zero", "targets", *_DATA), f"{path} [data]")
    start = model.get("start", "random" if "layers" in model else "pretrained")
    if ("file" in model) == ("layers" in model) or start not in ("random", "pretrained"):
        raise ValueError(f'{path} [model] must have file or layers, and start = "random" or "pretrained"')
    if "layers" in model and (start != "random" or "input" not in model):
        raise ValueError(f'{path} [model] must have input, the shape of a sample, and start = "random" with layers')
    named = model.get("outputs", [])
    if "outputs" in model and ("file" in model or not isinstance(named, list) or not named):
        raise ValueError(f"{path} [model] outputs must be a list of names of layers, beside layers, not {named!r}")
    batchnorm = model.get("batchnorm", "fold")
    if batchnorm not in ("train", "fold") or ("batchnorm" in model and "layers" in model):
        raise ValueError(f'{path} [model] batchnorm must be "train" or "fold", beside file, not {batchnorm!r}')
    pretrained = "file" in model and start == "pretrained"
    rounding, targets = model.get("rounding", "nearest"), data.get("targets", "labels")
    if rounding not in ("nearest", "samples") or (rounding == "samples" and (not pretrained or batchnorm == "train")):
        raise ValueError(
            f'{path} [model] rounding must be "nearest", or "samples" beside a pretrained file whose '
            f"BatchNormalization is not trained, not {rounding!r}"
        )
    if targets not in ("labels", "network") or (targets == "network" and not pretrained):
        raise ValueError(
            f'{path} [data] targets must be "labels", or "network" with a pretrained file, not {targets!r}'
        )
    if not isinstance(data.get("file"), str):
        raise ValueError(f"{path} [data] must have file, an npz file")
    where = path.parent / model["file"] if "file" in model else list(model["layers"])
    numbers = {}
    for name, default in (("scale", 1.0), ("zero", 0.0)):
        numbers[name] = number_of(data.get(name, default), f"{path} [data] {name}")
    settings = _settings(contents, path)
    if targets == "network" and settings.losses:
        raise ValueError(f'{path} [data] targets must be "labels" with [train.losses], not {targets!r}')
    if targets == "network" and settings.loss != "mse":
        raise ValueError(f'{path} [train] loss must be "mse" with targets = "network", not {settings.loss!r}')
    return TrainingPlan(
        settings,
        where,
        tuple(model["input"]) if "input" in model else None,
        start == "random",
        path.parent / data["file"],
        {name: _array_names(name, data.get(name, default)) for name, default in _DATA.items()},
        **numbers,
        batchnorm=batchnorm == "train",
        fitted=rounding == "samples",
        augmentation=_augmentation(contents, path, targets == "network") if "augment" in contents else None,
        taught=targets == "network",
        outputs=tuple(map(str, named)),
    )


def _array_names(what: str, name: Any) -> str | dict[str, str]:
    """The name of an array; of labels perhaps one for each output."""
    by_output = isinstance(name, dict) and what.endswith("y")
    return {key: str(each) for key, each in name.items()} if by_output else str(name)


def _augmentation(contents: Mapping[str, Any], path: Path, taught: bool) -> Augmentation:
    values = _table(contents, "augment", path)
    _known(values, tuple(f.name for f in fields(Augmentation)), f"{path} [augment]")
    if "shift" in values:
        values["shift"] = tuple(values["shift"])
    try:
        augmentation = Augmentation(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} [augment]: {error}") from error
    if augmentation.mix and not taught:
        raise ValueError(f'{path} [augment] mix must be 0 unless [data] targets = "network", not {augmentation.mix!r}')
    return augmentation


def _table(contents: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    if not isinstance(contents.get(name), dict):
        raise ValueError(f"{path} must have a table [{name}]")
    return dict(contents[name])


def _known(table: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    if unknown := sorted(set(table) - set(names)):
        raise ValueError(f"{where} must have {', '.join(names)} only, not {', '.join(unknown)}")


def _settings(contents: Mapping[str, Any], path: Path) -> Settings:
    values = dict(contents.get("train", {}))
    names = tuple(f.name for f in fields(Settings) if f.name not in ("formats", "overflow"))
    _known(values, names, f"{path} [train]")
    try:
        for name in ("rate", "momentum", "decay"):
            if name in values:
                values[name] = exact(values[name])
        if "schedule" in values:
            values["schedule"] = tuple((int(epoch), exact(factor)) for epoch, factor in values["schedule"])
        if "stop" in values:
            _known(stop := _table(values, "stop", path), ("metric", "patience", "output"), f"{path} [train] stop")
            values["stop"] = Convergence(**stop)
        if "losses" in values:
            if "loss" in values:
                raise ValueError("[train] must have loss, that of the only output, or losses, not both")
            values["losses"] = {
                name: _output_loss(name, of_output) for name, of_output in _table(values, "losses", path).items()
            }
        formats = read_formats(contents.get("formats", {}), f"{path} [formats]")
        overflow = OverflowSettings.read(contents["overflow"], "[overflow]") if "overflow" in contents else None
        return Settings(**values, formats=formats, overflow=overflow)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _output_loss(name: str, values: Any) -> OutputLoss:
    """A loss by its name, or a table with its weight, too."""
    options = {"loss": values} if isinstance(values, str) else dict(values)
    _known(options, ("loss", "weight"), f"[train.losses] {name}")
    if "weight" in options:
        options["weight"] = exact(options["weight"])
    return OutputLoss(**options)


def exact(number: Any) -> Fraction:
    """Number as it is written, such as 0.1 or "1/10", not its binary neighbour."""
    return exact_number(number, "a rate or factor")


def read_formats(table: Mapping[str, Any], where: str) -> TrainingFormats:
    """Formats from a table: ``weight = 5`` or ``gradient = {bits = 16, rounding = "stochastic", block = 32}``."""
    formats = TrainingFormats()
    _known(table, tuple(TrainingFormats.names()), where)
    for name, value in table.items():
        options = {"bits": value} if isinstance(value, int) else dict(value)
        _known(
            options,
            ("bits", "point", "rounding", "growth") if name == "accumulator" else ("bits", "block", "rounding"),
            where,
        )
        if "rounding" in options:
            names = {rounding.name.lower(): rounding for rounding in BLOCK_ROUNDINGS}
            if options["rounding"] not in names:
                raise ValueError(f"rounding must be one of {', '.join(names)}, not {options['rounding']!r}")
            options["rounding"] = names[options["rounding"]]
        old: Any = getattr(formats, name)
        changes: dict[str, Any] = {name: replace(old, **options)}
        formats = replace(formats, **changes)
    return formats
