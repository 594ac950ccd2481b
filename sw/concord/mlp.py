"""Compiler for multilayer perceptrons: the straight road from a network to an image.

Every layer is one chain: product, bias, activation, conversion to narrow; the last one writes wide. Formats are chosen
with evidence: every candidate is compiled and run in the emulator on calibration data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from concord.builder import ProgramBuilder
from concord.image import Image, Port
from concord.network import Dense, Network
from concord.sheet import Sheet
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
#: Runs an image on a batch and returns its outputs by name.
Runner = Callable[[Image, Floats], dict[str, Floats]]

INPUT, OUTPUT = "x", "y"
_TABLES = {"Sigmoid": "sigm", "Tanh": "tanh"}
#: Widths of the mantissas that are compared on the calibration data.
MANTISSAS = (4, 5, 6, 8, 10)


@dataclass(frozen=True)
class Narrow:
    """How a tensor is stored narrow: with a static exponent, or a dynamic one per native vector."""

    exponent: int | None = None

    def __str__(self) -> str:
        return "dynamic exponent" if self.exponent is None else f"static exponent {self.exponent}"


@dataclass(frozen=True)
class CompiledMlp:
    """A compiled network.

    Parameters
    ----------
    network : Network
        What was compiled.
    formats : tuple of Narrow
        One for the input of every layer.
    sheet : Sheet
        Where everything lies.
    words : tuple of int
        The program.
    """

    network: Network
    formats: tuple[Narrow, ...]
    sheet: Sheet
    words: tuple[int, ...]

    @property
    def config(self) -> NpuConfig:
        """The configuration it was compiled for."""
        return self.sheet.config

    @cached_property
    def image(self) -> Image:
        """Program and constants, ready to load."""
        names = [layer.name for layer in self.network.layers]
        layers = [{"name": name, "input": str(f)} for name, f in zip(names, self.formats, strict=True)]
        metadata = {"name": self.network.name, "macs": self.network.macs, "layers": layers}
        return self.sheet.image(list(self.words), metadata)

    @cached_property
    def tapped(self) -> Image:
        """The same with the narrow input of every layer as a further output, so that layers can be compared."""
        names = tap_names(self.network)
        taps = [
            Port(name, RegionId.NARROW, self.sheet[name], (layer.inputs,))
            for name, layer in zip(names, self.network.layers, strict=True)
        ]
        return replace(self.image, outputs=(*taps, *self.image.outputs))


def tap_names(network: Network) -> list[str]:
    """Names of the tensors that are stored narrow: the input, then the outputs of the layers but the last."""
    return ["input", *(f"{layer.name}.out" for layer in network.layers[:-1])]


def compile_mlp(network: Network, config: NpuConfig, formats: Sequence[Narrow] | None = None) -> CompiledMlp:
    """Compile a network; all exponents are dynamic unless ``formats`` says otherwise, one for the input of every layer.

    Raises
    ------
    concord.sheet.CapacityError
        Naming everything that does not fit.
    """
    chosen = tuple(formats) if formats is not None else (Narrow(),) * len(network.layers)
    if len(chosen) != len(network.layers):
        raise ValueError(f"formats must be {len(network.layers)}, one for the input of every layer, not {len(chosen)}")
    sheet = _allot(network, config)
    sheet.check()
    words = _program(network, sheet, chosen)
    return CompiledMlp(network, chosen, sheet, tuple(words))


def _allot(network: Network, config: NpuConfig) -> Sheet:
    sheet = Sheet(config)
    sheet.input(INPUT, (network.inputs,), "input")
    sheet.output(OUTPUT, (network.outputs,), "result")
    for name, layer in zip(tap_names(network), network.layers, strict=True):
        sheet.narrow(name, sheet.tiles(layer.inputs), f"input of {layer.name}")
    for layer in network.layers:
        sheet.matrix(f"{layer.name}.weight", layer.weight)
        sheet.constant(f"{layer.name}.bias", layer.bias)
    if any(layer.activation in _TABLES for layer in network.layers):
        sheet.sigmoid_tables()
    return sheet


def _program(network: Network, sheet: Sheet, formats: Sequence[Narrow]) -> list[int]:
    names = tap_names(network)
    builder = ProgramBuilder()
    builder.set_shape(rows=sheet.tiles(network.inputs), cols=1)
    _set_quant(builder, formats[0])
    builder.v_rd("wide", sheet[INPUT], row=1)
    builder.v_wr("narrow", sheet[names[0]], row=1)
    for k, layer in enumerate(network.layers):
        last = k == len(network.layers) - 1
        builder.set_shape(rows=sheet.tiles(layer.outputs), cols=sheet.tiles(layer.inputs))
        if not last and formats[k + 1] != formats[k]:
            _set_quant(builder, formats[k + 1])
        _layer(builder, sheet, layer, names[k])
        if last:
            builder.v_wr("wide", sheet[OUTPUT], row=1)
        else:
            builder.v_wr("narrow", sheet[names[k + 1]], row=1)
    builder.halt()
    return builder.words()


def _layer(builder: ProgramBuilder, sheet: Sheet, layer: Dense, source: str) -> None:
    """One layer up to its activation."""
    builder.v_rd("narrow", sheet[source])
    builder.mv_mul(sheet[f"{layer.name}.weight"])
    builder.vv_add(sheet[f"{layer.name}.bias"], row=1)
    if layer.activation == "Relu":
        builder.v_relu()
    elif layer.activation is not None:
        builder.v_tbl(sheet[_TABLES[layer.activation]])


def _set_quant(builder: ProgramBuilder, narrow: Narrow) -> None:
    if narrow.exponent is None:
        builder.set_quant(mode="dynamic")
    else:
        builder.set_quant(mode="static", exp=narrow.exponent)


# Formats with evidence -------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """One way to store the tensors, and what came of it on the calibration data.

    Parameters
    ----------
    label : str
        Short name.
    formats : tuple of Narrow
        What was compiled.
    error : float
        Root mean square error of the result, relative to the reference.
    accuracy : float or None
        Share of samples with the right label, where there are labels.
    agreement : float
        Share of samples whose largest output is the same as in the reference.
    """

    label: str
    formats: tuple[Narrow, ...]
    error: float
    accuracy: float | None
    agreement: float


@dataclass(frozen=True)
class Evidence:
    """Why the formats are what they are: the candidates, the chosen one first, and other widths of the mantissas."""

    candidates: tuple[Candidate, ...]
    mantissas: tuple[tuple[int, Candidate], ...]
    reference_accuracy: float | None

    @property
    def chosen(self) -> Candidate:
        """The best candidate."""
        return self.candidates[0]


def relative_error(computed: Floats, reference: Floats) -> float:
    """Root mean square error relative to the root mean square of the reference."""
    return float(np.linalg.norm(computed - reference) / max(float(np.linalg.norm(reference)), 1e-30))


def static_exponent(largest: float, config: NpuConfig) -> int:
    """The least static exponent that saturates nothing up to ``largest``."""
    exponent = int(np.frexp(largest)[1]) - 1 - config.act.headroom if largest > 0 else config.act.exp_min
    if largest > config.act.q_max * 2.0**exponent:
        exponent += 1
    return min(max(exponent, config.act.exp_min), config.act.exp_max)


def choose_formats(
    network: Network, config: NpuConfig, run: Runner, x: Floats, labels: Integers | None = None
) -> Evidence:
    """Compile and run the candidates on calibration data and rank them.

    The best has the highest accuracy (agreement with the reference if there are no labels), then the least error.
    Static exponents are set so that no calibration value saturates, or one lower so that the largest do.
    """
    reference = network(x)
    inputs = [x.reshape(len(x), -1), *network.trace(x)[:-1]]
    static = [static_exponent(float(np.abs(values).max()), config) for values in inputs]
    tight = [max(exponent - 1, config.act.exp_min) for exponent in static]
    proposals: dict[str, tuple[Narrow, ...]] = {
        "dynamic": (Narrow(),) * len(inputs),
        "static": tuple(map(Narrow, static)),
        "static, one bit tighter": tuple(map(Narrow, tight)),
        "static input, dynamic layers": (Narrow(static[0]), *(Narrow(),) * (len(inputs) - 1)),
        "dynamic input, static layers": (Narrow(), *map(Narrow, static[1:])),
    }

    def measure(label: str, formats: tuple[Narrow, ...], config: NpuConfig) -> Candidate:
        result = run(compile_mlp(network, config, formats).image, x)[OUTPUT]
        best = result.argmax(axis=1)
        accuracy = None if labels is None else float(np.mean(best == labels))
        agreement = float(np.mean(best == reference.argmax(axis=1)))
        return Candidate(label, formats, relative_error(result, reference), accuracy, agreement)

    candidates = [measure(label, formats, config) for label, formats in proposals.items()]
    candidates.sort(key=lambda c: (-(c.agreement if c.accuracy is None else c.accuracy), c.error))
    widths = tuple(
        (m, measure(f"{m} bits", proposals["dynamic"], config.replace(act_mant=m, wgt_mant=m))) for m in MANTISSAS
    )
    right = None if labels is None else float(np.mean(reference.argmax(axis=1) == labels))
    return Evidence(tuple(candidates), widths, right)
