"""Options of a compilation, for the command line and for Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from concord.compiler.calibration.calibration import classifies
from concord.compiler.calibration.mantissas import Budget
from concord.graph.ir import Graph
from concord.spec.partition import PARTITIONS


@dataclass(frozen=True)
class Widths:
    """Widths of mantissas.

    Parameters
    ----------
    auto : bool
        Whether what is not given is to be chosen.
    npu : int or None
        Bits of the mantissas of a configuration of its own.
    layers : dict
        Bits of the mantissas of the weights by layer.
    """

    auto: bool = False
    npu: int | None = None
    layers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Widths:
        """Read texts like ``auto``, ``5`` and ``layer=5``; ``ValueError`` for anything else."""
        whole: list[int] = []
        layers: dict[str, int] = {}
        for text in filter(lambda text: text != "auto", texts):
            layer, equals, width = text.rpartition("=")
            if not width.isdecimal() or (equals and (not layer or layer in layers)) or (not equals and whole):
                raise ValueError(f"mantissa must be auto, one width, and one layer=width per layer, not {text!r}")
            if equals:
                layers[layer] = int(width)
            else:
                whole.append(int(width))
        return cls("auto" in texts, whole[0] if whole else None, layers)


@dataclass(frozen=True)
class Options:
    """How to compile a network.

    Parameters
    ----------
    widths : Widths
        Mantissas.
    budget : str or None
        What mantissas that are chosen may lose: ``"0.5"`` points or ``"5%"``; ``None`` for the default.
    other_npu : bool
        Whether mantissas may be chosen that are those of another NPU.
    ranges : sequence of str or mapping
        Values of inputs without samples, ``"LOW,HIGH"`` or ``"NAME=LOW,HIGH"``, or pairs by name.
    accumulator : str, int or None
        ``"full"`` or ``None``: no sum can leave it. ``"auto"``: as wide as the network needs. Or a number of bits.
    guard : int or None
        For ``"auto"``: bits above what samples need; ``None`` for the default.
    batch : int
        Samples per run.
    output_formats : sequence of str
        ``"binary16"`` or ``"narrow"`` for all outputs, or ``"NAME=narrow"`` for one.
    quick : bool
        Whether samples say what they can without a comparison of candidates.
    partition : str
        What the host may compute, one of :data:`concord.spec.partition.PARTITIONS`.
    """

    widths: Widths = field(default_factory=Widths)
    budget: str | None = None
    other_npu: bool = False
    ranges: Sequence[str] | Mapping[str, tuple[float, float]] = ()
    accumulator: str | int | None = None
    guard: int | None = None
    batch: int = 1
    output_formats: Sequence[str] = ()
    quick: bool = False
    partition: str = "ends"

    def check(self, samples: bool) -> None:
        """Refuse options that do not go together; ``samples``: whether there are samples."""
        if (self.budget is not None or self.widths.auto) and not (self.widths.auto and samples):
            raise ValueError("--mantissa auto needs --calibrate, and --budget both of them")
        if self.ranges and samples:
            raise ValueError("--input-range is for networks without --calibrate, whose samples say it")
        if self.quick and (not samples or self.widths.auto):
            raise ValueError("--quick must be given with --calibrate, and without --mantissa auto, which is a search")
        if self.partition not in PARTITIONS:
            raise ValueError(f"partition must be one of {', '.join(PARTITIONS)}, not {self.partition!r}")
        self.accumulator_bits()

    def accumulator_bits(self) -> int | None:
        """Bits of the accumulator, 0 if they are to be chosen; ``None`` if no sum can leave it."""
        value = self.accumulator
        if self.guard is not None and value != "auto":
            raise ValueError("--guard must be given with --accumulator auto")
        if value is None or value == "full":
            return None
        if value == "auto":
            return 0
        if isinstance(value, bool) or not str(value).isdecimal() or not int(value):
            raise ValueError(f"accumulator must be full, auto or a number of bits, not {value!r}")
        return int(value)

    def input_ranges(self, graph: Graph) -> dict[str, tuple[float, float]]:
        """Lowest and highest value by input; ``ValueError`` for names and numbers that cannot be meant."""
        return input_ranges(self.ranges, graph)


def budget_of(text: str | None, graph: Graph, labelled: bool) -> Budget:
    """What a budget means, ``0.5`` or ``5%``, or the default; ``ValueError`` if it does not suit the network."""
    classes = labelled or classifies(graph)
    text = text or ("0.5" if classes else "5%")
    try:
        points = float(text.removesuffix("%"))
    except ValueError:
        points = -1.0
    if not points >= 0:
        raise ValueError(f"budget must be points such as 0.5, or a relative error such as 5%, not {text!r}")
    if text.endswith("%"):
        return Budget("error", points)
    if not classes:
        raise ValueError(f"budget must be a relative error such as 5%, as the result is no class, not {text!r}")
    return Budget("accuracy" if labelled else "agreement", points)


def input_ranges(
    ranges: Sequence[str] | Mapping[str, tuple[float, float]], graph: Graph
) -> dict[str, tuple[float, float]]:
    """Ranges of inputs by name, from texts (``LOW,HIGH`` for the only input, or ``NAME=LOW,HIGH``) or pairs.

    Raises
    ------
    ValueError
        For anything else.
    """
    if isinstance(ranges, Mapping):
        ranges = [f"{name}={low!r},{high!r}" for name, (low, high) in ranges.items()]
    pairs: dict[str, tuple[float, float]] = {}
    for text in ranges:
        name, equals, ends = text.rpartition("=")
        if not equals and len(graph.inputs) == 1:
            name = graph.inputs[0]
        try:
            low, high = map(float, ends.split(","))
        except ValueError:
            low = high = float("nan")
        if not low < high or name not in graph.inputs or name in pairs:
            names = ", ".join(graph.inputs)
            raise ValueError(
                f"input-range must be LOW,HIGH of the only input or NAME=LOW,HIGH, once each, of {names}, not {text!r}"
            )
        pairs[name] = low, high
    return pairs


def narrow_outputs(texts: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...]:
    """Outputs that are to leave narrow; ``ValueError`` if a text says something else."""
    kinds: dict[str, str] = {}
    for text in texts:
        name, _, kind = text.rpartition("=")
        if kind not in ("binary16", "narrow") or (name and name not in outputs):
            names = ", ".join(outputs)
            raise ValueError(f"output-format must be binary16, narrow, or one of them for one of {names}, not {text!r}")
        kinds |= dict.fromkeys([name] if name else outputs, kind)
    return tuple(name for name, kind in kinds.items() if kind == "narrow")
