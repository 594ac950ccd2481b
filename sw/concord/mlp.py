"""Compiler for multilayer perceptrons: the straight road from a network to an image.

Every layer is one chain: product, bias, activation, conversion to narrow; the last one writes wide.
:mod:`concord.calibration` chooses the formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from concord.builder import ProgramBuilder
from concord.image import Image, Port
from concord.network import Dense, Network
from concord.sheet import Sheet
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId

INPUT, OUTPUT = "x", "y"
_TABLES = {"Sigmoid": "sigm", "Tanh": "tanh"}


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
