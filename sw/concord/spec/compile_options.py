"""Options of compiling: one record for the command line, the Python interface and the pages.

The command makes its options of the fields and of what is known of them (:data:`OPTIONS`), ``concord.compile`` takes
the fields as keywords, and ``python -m concord.spec.docs`` writes them as a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

from concord.spec.boards import BOARD_SPECS, DEFAULT_BOARD
from concord.spec.config import NpuConfig
from concord.spec.formats import ACT_MANT_MAX, MANT_MIN
from concord.spec.links import LINKS
from concord.spec.partition import PARTITIONS
from concord.spec.presets import PRESETS, REMOVED
from concord.spec.rounding_rules import ROUNDINGS


@dataclass(frozen=True)
class MantissaWidths:
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
    def parse(cls, texts: Sequence[str]) -> MantissaWidths:
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
class OptionHelp:
    """Facts about an option besides its name and its default.

    Parameters
    ----------
    help : str
        What it does, as the command line says it.
    page : str
        Where the pages say more: a page under ``docs/``, a heading of ``compiler.md``, or both.
    spelling : str
        How the command line spells it; empty if it has no such option.
    metavar : str
        What stands for the value in the list of options; empty for the usual word.
    choices : tuple of str
        The values that there are.
    guess : bool
        Whether a wrong one is answered with the nearest of ``choices``.
    removed : mapping of str to str
        Values that there were, and those that take their place.
    least, most : int or None
        Range of a whole number; it is none if ``least`` is ``None``.
    file : bool
        Whether the command line takes the name of a file that exists.
    repeated : bool
        Whether the command line takes it several times.
    """

    help: str
    page: str = ""
    spelling: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    guess: bool = False
    removed: Mapping[str, str] = field(default_factory=dict)
    least: int | None = None
    most: int | None = None
    file: bool = False
    repeated: bool = False

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that is none of the choices, or out of the range.

        Raises
        ------
        ValueError
            With the name of the option, what there is, and the value.
        """
        if self.choices and not self.guess and value not in self.choices:
            raise ValueError(f"{name} must be one of {', '.join(self.choices)}, not {value!r}")
        if self.least is None or value is None:
            return
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not whole or value < self.least or (self.most is not None and value > self.most):
            values = f"at least {self.least}" if self.most is None else f"in {self.least}..{self.most}"
            raise ValueError(f"{name} must be {values}, not {value!r}")


def _known(spelling: str, text: str, page: str = "", **facts: Any) -> dict[str, OptionHelp]:
    """Metadata of a field."""
    return {"option": OptionHelp(text, page, spelling, **facts)}


@dataclass(frozen=True, kw_only=True, eq=False)
class CompileOptions:
    """Options with which a network is compiled.

    Parameters
    ----------
    board : str, optional
        For this board, such as ``"ulx3s-85f"``: for the preset with which a user gets most samples per second over its
        link, of those that take the network. ``preset_text`` of the result says which one and why. Without any of the
        three it is the board ``"ulx3s-85f"``.
    preset : str, optional
        For the NPU with this name, such as ``"ecp5-25f"``; with ``board`` it must be one of its presets.
    config : NpuConfig, str or Path, optional
        For this NPU, or the one of this file (:func:`concord.spec.config_file.read_config`); ``warnings`` of the result
        say if its board, or ``board``, has too little for it.
    link : str, optional
        What carries bytes between host and board, such as ``"uart"``; by default the board's first one.
    exact : bool
        Compile a quantised network as it is, on its codes: results are codes, too. It needs an NPU that computes on
        codes, which ``preset`` or ``config`` names.
    rounding : str, optional
        Rule by which codes are rounded: for ONNX ``"onnxruntime"``, the default, or ``"onnx"``; for TensorFlow Lite
        ``"tflite"``, the default, or ``"tflite-single"``.
    calibrate : mapping of str to array, array, tuple of arrays, or iterable of batches, optional
        Samples by input, ``[samples, *shape]``; the array alone if there is one input; or one array for each input, in
        their order. Of a loader the first 256 samples are taken: its batches are one of these, or ``(inputs, labels)``,
        of which the labels are left out. Formats are chosen by what they do to these samples. Without them exponents
        are dynamic, and tables cover what is to be expected.
    labels : array of int, optional
        A class for every sample: with them ``mantissa="auto"`` keeps a budget of accuracy.
    example : array, tuple of arrays, or mapping of str to array, optional
        What a module of PyTorch is called with, ``[samples, *shape]`` by input; by default ``calibrate``. The module is
        exported with the first sample, in evaluation mode, and has the mode again that it had. Without ``calibrate`` an
        example of 16 samples is taken for it, and the expected error is measured on a smaller one, too.
    quick : bool
        Take from the samples what they say without a search: nothing is compared. It takes a fraction of the time, and
        leaves more error. ``evidence`` says what was left out.
    mantissa : int, str or mapping of str to int, optional
        Bits of the mantissas of the NPU; ``"auto"`` for the least memory within the budget; or bits of the weights of
        some layers by name. Texts and lists of texts are those of ``--mantissa``.
    budget : str, optional
        For ``"auto"``: points of accuracy or agreement that may be lost, ``"0.5"``, or a relative error, ``"5%"``.
    input_range : pair of float, or mapping of str to pair, optional
        Least and greatest value of the input, or of inputs by name, where there are no samples. Lists of texts are
        those of ``--input-range``.
    accumulator : str or int, optional
        ``"full"``: no sum can leave it, the default. ``"auto"``: as many bits as the network needs. Or so many bits.
    guard : int, optional
        For ``"auto"``: bits above what the samples need.
    batch : int
        Samples per run, for networks of products and element-wise operations.
    output_format : str or mapping of str to str, optional
        ``"binary16"`` or ``"narrow"`` for all outputs, or for outputs by name. Lists of texts are those of
        ``--output-format``.
    partition : str
        What the host may compute of the network: ``"none"``; ``"ends"``, what has no product in front of it or none
        after it, such as an embedding of whole numbers or the place of the greatest result; or ``"any"``, then also
        what the NPU does not take of a network that it refuses as a whole.
    states : mapping of str to str, optional
        Inputs that the NPU keeps between runs, and the output of a run that each of them is in the next one: the state
        of a recurrent cell, or the keys and values of a decoder. They begin with zeros. Lists of texts are those of
        ``--state``.
    workers : int, optional
        Processes that share the samples; the result does not depend on them.
    cluster : str, optional
        Address of a Dask cluster that does so instead.
    shape : mapping of str to int or sequence of int, optional
        Sizes of inputs by name, batch axis included, or of open dimensions by their names.
    inputs, outputs : sequence of str
        Tensors of the model that become its inputs or outputs: only the part in between is compiled.
    fix : mapping of str to array, optional
        Values of inputs that become constants; a number stands for an array of it.

    Raises
    ------
    ValueError
        For values that an option cannot have.
    """

    board: str | None = field(
        default=None,
        metadata=_known(
            "--board",
            f"Compile for this board, by default {DEFAULT_BOARD}: for that of its presets with which a user gets most "
            "samples per second over its link.",
            "#which-preset",
            choices=tuple(BOARD_SPECS),
            guess=True,
        ),
    )
    preset: str | None = field(
        default=None,
        metadata=_known(
            "--preset",
            "Compile for this configuration; with --board it must be one of the board's.",
            "#which-preset",
            choices=tuple(PRESETS),
            guess=True,
            removed=REMOVED,
        ),
    )
    config: NpuConfig | str | Path | None = field(
        default=None,
        metadata=_known(
            "--config",
            "Compile for the configuration in this file, as `concord fit -o` writes it.",
            "#a-configuration-of-your-own",
            file=True,
        ),
    )
    link: str | None = field(
        default=None,
        metadata=_known(
            "--link",
            "What carries bytes between host and board; by default the board's first one.",
            "link.md",
            choices=LINKS,
            guess=True,
        ),
    )
    exact: bool = field(
        default=False,
        metadata=_known(
            "--exact",
            "Compile a quantised network as it is, on its codes alone: a program in integers, and the tables of its "
            "functions in a file beside it; with --preset or --config also a program for an NPU that computes on "
            "codes. Beside these, only the rule of rounding, the link and the part of the model can be chosen.",
            "integer.md",
        ),
    )
    rounding: str | None = field(
        default=None,
        metadata=_known(
            "--rounding",
            "With --exact: round results as ONNX Runtime does with its optimisations (the default for ONNX), as ONNX "
            "does operator by operator, as TensorFlow Lite's reference kernels do (the default for its files), or as "
            "its default kernels do, which round products in single precision. A folder has a rule of its own.",
            "integer.md#what-a-code-is",
            choices=tuple(name for names in ROUNDINGS.values() for name in names),
        ),
    )
    calibrate: Any = field(
        default=None,
        metadata=_known(
            "--calibrate",
            "npz file with an array for every input; the first axis counts samples.",
            "formats.md",
            file=True,
        ),
    )
    labels: Any = field(
        default=None, metadata=_known("", "A class for every sample; the command takes the array y of the file.")
    )
    example: Any = field(
        default=None,
        metadata=_known("", "What a module of PyTorch is called with; by default the samples.", "models.md"),
    )
    quick: bool = field(
        default=False,
        metadata=_known(
            "--quick",
            "With --calibrate: take from the samples what they say without a search. Tables, biases and what is taken "
            "off inputs follow them; other formats are not tried.",
            "formats.md#without-a-search",
        ),
    )
    mantissa: int | str | Sequence[str] | Mapping[str, int] | None = field(
        default=None,
        metadata=_known(
            "--mantissa",
            f"M: use an NPU whose mantissas have M bits ({MANT_MIN} to {ACT_MANT_MAX}). "
            "LAYER=M: round the weights of this layer to M bits. "
            "auto: choose the widths that take the least memory and keep the budget on the calibration data. "
            "The option can be repeated.",
            "formats.md#width-of-the-mantissas",
            metavar="M|LAYER=M|auto",
            repeated=True,
        ),
    )
    budget: str | None = field(
        default=None,
        metadata=_known(
            "--budget",
            "What --mantissa auto may lose: points of accuracy if the data has labels y, points of agreement with "
            "floating point if the result is a class, or a relative error such as 5%. The default is 0.5 points, or "
            "5% if the result is no class.",
            "formats.md#width-of-the-mantissas",
        ),
    )
    input_range: Mapping[str, tuple[float, float]] | tuple[float, float] | Sequence[str] | None = field(
        default=None,
        metadata=_known(
            "--input-range",
            "Range of an input's values, where there are no calibration data. The default is what the data type or "
            "the codes of the input allow; floats are taken for standard normal within -8 and 8. The option can be "
            "repeated.",
            "formats.md#without-samples",
            metavar="LOW,HIGH|NAME=LOW,HIGH",
            repeated=True,
        ),
    )
    accumulator: str | int | None = field(
        default=None,
        metadata=_known(
            "--accumulator",
            "full (the default): the accumulator holds every possible sum. auto: it holds what the calibration data "
            "need and --guard bits more, or what the largest possible sum needs if that is less; a network that was "
            "trained for an accumulator gets that one. BITS: it has this many bits. A sum that does not fit raises "
            "ACC_OVERFLOW; all sums of the calibration data must fit.",
            "overflow.md#the-accumulator-from-the-evidence",
            metavar="full|auto|BITS",
        ),
    )
    guard: int | None = field(
        default=None,
        metadata=_known(
            "--guard",
            "Bits that --accumulator auto adds to what the samples need; 6 by default.",
            "overflow.md#the-accumulator-from-the-evidence",
            least=0,
            most=32,
        ),
    )
    batch: int = field(
        default=1,
        metadata=_known(
            "--batch", "Samples per run; above 1 only for networks of matrix products.", "#batches", least=1
        ),
    )
    output_format: str | Mapping[str, str] | Sequence[str] | None = field(
        default=None,
        metadata=_known(
            "--output-format",
            "binary16 (the default): outputs leave the NPU as floating-point numbers. narrow: they leave as mantissas "
            "with an exponent per vector, in about half the bytes. The format holds for all outputs, or for the one "
            "with this NAME. The option can be repeated.",
            "driver.md#results",
            metavar="FORMAT|NAME=FORMAT",
            repeated=True,
        ),
    )
    partition: str = field(
        default="ends",
        metadata=_known(
            "--partition",
            "What the host may compute where no instruction does: nothing; ends, what has no product in front of it "
            "or none behind it, such as an embedding or ArgMax; or any, which is also for what does not fit.",
            "#what-the-host-computes",
            choices=PARTITIONS,
        ),
    )
    states: Mapping[str, str] | Sequence[str] | None = field(
        default=None,
        metadata=_known(
            "--state",
            "The NPU keeps this input between runs: it begins with zeros, and is this output of the run before then. "
            "For the state of a recurrent cell, or the keys and values of a decoder. The option can be repeated.",
            "#states",
            metavar="INPUT=OUTPUT",
            repeated=True,
        ),
    )
    workers: int | None = field(
        default=None,
        metadata=_known("--workers", "Number of processes that share the work.", "workers.md", metavar="N", least=1),
    )
    cluster: str | None = field(
        default=None,
        metadata=_known(
            "--cluster",
            "Address of a Dask cluster that shares the work, such as tcp://HOST:8786.",
            "workers.md",
            metavar="ADDRESS",
        ),
    )
    shape: Mapping[str, int | Sequence[int]] | None = field(
        default=None,
        metadata=_known(
            "--shape",
            "Sizes of an input, batch included, such as x=1,3,64,64, or of an open dimension by its name, such as "
            "height=64. The option can be repeated.",
            "#a-part-of-a-model",
            metavar="NAME=SIZES",
            repeated=True,
        ),
    )
    inputs: Sequence[str] = field(
        default=(),
        metadata=_known(
            "--inputs",
            "Tensors that become the inputs: take the part behind them.",
            "#a-part-of-a-model",
            metavar="NAMES",
        ),
    )
    outputs: Sequence[str] = field(
        default=(),
        metadata=_known(
            "--outputs",
            "Tensors that become the outputs: take the part in front of them. Names have commas in between.",
            "#a-part-of-a-model",
            metavar="NAMES",
        ),
    )
    fix: Mapping[str, Any] | None = field(
        default=None,
        metadata=_known(
            "--fix",
            "Make an input a constant: a number, numbers with commas in between, or an npy file. The option can be "
            "repeated.",
            "#a-part-of-a-model",
            metavar="NAME=VALUE",
            repeated=True,
        ),
    )

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            if (value := getattr(self, name)) is not DEFAULTS[name]:
                option.check(name, value)
        assert self.widths is not None
        self.accumulator_bits()

    @cached_property
    def widths(self) -> MantissaWidths:
        """Widths of mantissas; ``ValueError`` for texts that say none."""
        mantissa = self.mantissa
        if mantissa is None:
            return MantissaWidths()
        if isinstance(mantissa, Mapping):
            return MantissaWidths(layers=dict(mantissa))
        return MantissaWidths.parse([str(mantissa)] if isinstance(mantissa, int | str) else list(mantissa))

    @property
    def other_npu(self) -> bool:
        """True if mantissas may be chosen that are those of another NPU."""
        return self.board is None and self.config is None

    @property
    def ranges(self) -> list[str]:
        """Ranges of inputs without samples as texts, ``LOW,HIGH`` of the only one, or ``NAME=LOW,HIGH``."""
        value = self.input_range
        if value is None:
            return []
        if isinstance(value, str):
            return [value]
        if isinstance(value, Mapping):
            return [f"{name}={low!r},{high!r}" for name, (low, high) in value.items()]
        if all(isinstance(text, str) for text in value):
            return [str(text) for text in value]
        low, high = value
        return [f"{low!r},{high!r}"]

    @property
    def output_formats(self) -> list[str]:
        """Formats of outputs as texts, ``FORMAT`` of all, or ``NAME=FORMAT``."""
        value = self.output_format
        if isinstance(value, str):
            return [value]
        if isinstance(value, Mapping):
            return [f"{name}={kind}" for name, kind in value.items()]
        return list(value or ())

    def check(self, samples: bool) -> None:
        """Refuse options that do not go together; ``samples``: whether there are samples."""
        if (self.budget is not None or self.widths.auto) and not (self.widths.auto and samples):
            raise ValueError("--mantissa auto needs --calibrate, and --budget both of them")
        if self.ranges and samples:
            raise ValueError("--input-range is for networks without --calibrate, whose samples say it")
        if self.quick and (not samples or self.widths.auto):
            raise ValueError("--quick must be given with --calibrate, and without --mantissa auto, which is a search")

    @property
    def names_npu(self) -> bool:
        """True if one configuration is named, by a preset or a file."""
        return (self.preset, self.config) != (None, None)

    def check_codes(self) -> None:
        """Refuse options that a network on codes has nothing for, and a rule of rounding without one."""
        if not self.exact:
            if self.rounding is not None:
                raise ValueError("--rounding must be given with --exact: it is a rule for networks on codes")
            return
        others = (name for name in OPTIONS if name not in _OF_CODES and not self._is_default(name))
        if refused := sorted(OPTIONS[name].spelling or name for name in others):
            raise ValueError(f"a network on codes must be given without {', '.join(refused)}")
        if not self.names_npu and (self.board, self.link) != (None, None):
            raise ValueError("--exact must be given with --preset or --config for a --board and a --link")

    def _is_default(self, name: str) -> bool:
        value, default = getattr(self, name), DEFAULTS[name]
        plain = value is None or isinstance(value, int | str | Sequence | Mapping)
        return plain and (value or None) == (default or None)

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


#: Options that a network on codes has.
_OF_CODES = frozenset(("board", "preset", "config", "link", "exact", "rounding", "shape", "inputs", "outputs", "fix"))
#: Facts about every option by its name, in the order of the command line.
OPTIONS: dict[str, OptionHelp] = {item.name: item.metadata["option"] for item in fields(CompileOptions)}
#: Default of every option by its name.
DEFAULTS: dict[str, Any] = {item.name: item.default for item in fields(CompileOptions)}
