"""Evidence of training for an accumulator: its width, exponents, mantissas, and the bits that sums needed [overflow].

The trainer writes it beside the network, as ``network.evidence.json``; ``concord compile --accumulator auto`` reads it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import Compiled, compile_graph
from concord.graph.ir import Graph
from concord.overflow.accumulator import (
    AccumulatorError,
    bound_line,
    count_unchanged,
    widths_line,
    with_lines,
)
from concord.overflow.required import CountedWidths, RequiredWidth
from concord.spec.config import NpuConfig
from concord.spec.limits import ACC_WIDTH_MIN
from concord.spec.operations import NEEDS

_VERSION = 1


@dataclass(frozen=True)
class TrainedLayer:
    """A product.

    Parameters
    ----------
    name : str
        Of the layer.
    input_exp, weight_exp : int
        Exponents of its inputs and of its weights: a sum is in units of two to the power of both.
    observed : int
        Bits that hold every product and every partial sum of the samples.
    bound : int
        Bits that hold those of any input.
    beyond : int
        How many of these leave the accumulator.
    """

    name: str
    input_exp: int
    weight_exp: int
    observed: int
    bound: int
    beyond: int


@dataclass(frozen=True)
class Trained:
    """Accumulator for which a network was trained.

    Parameters
    ----------
    network : str
        SHA-256 of the file that the network is in.
    accumulator_bits : int
        P, bits of the accumulator.
    method : str
        ``plain``, ``evidence`` or ``bound``.
    input_bits, weight_bits : int
        Mantissas of the inputs of products and of weights, sign included: the widest of all layers.
    exponents : dict
        Static exponents by tensor.
    samples : int
        Samples that were counted.
    layers : tuple of TrainedLayer
    """

    network: str
    accumulator_bits: int
    method: str
    input_bits: int
    weight_bits: int
    exponents: dict[str, int]
    samples: int
    layers: tuple[TrainedLayer, ...]

    @property
    def weights(self) -> tuple[int, int]:
        """Least and greatest exponent of weights."""
        exponents = [layer.weight_exp for layer in self.layers]
        return min(exponents), max(exponents)

    @property
    def least(self) -> int:
        """Least exponent of inputs of products."""
        return min(layer.input_exp for layer in self.layers)

    @property
    def register(self) -> int:
        """Bits of an accumulator whose grid is that of the network: P, and what layers have on coarser grids."""
        grid = self.least + self.weights[0]
        return self.accumulator_bits + max(layer.input_exp + layer.weight_exp - grid for layer in self.layers)

    def to_json(self) -> str:
        """Everything, for a file."""
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Trained:
        """Inverse of :meth:`to_json`; ``ValueError`` if it is none, or of another version."""
        try:
            facts: dict[str, Any] = json.loads(text)
            if facts.pop("version") != _VERSION:
                raise ValueError(f"it is not of version {_VERSION}")
            layers = tuple(TrainedLayer(**layer) for layer in facts.pop("layers"))
            trained = cls(**facts, layers=layers)
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"it is damaged ({error})") from error
        numbers = [trained.accumulator_bits, trained.input_bits, trained.weight_bits, trained.samples]
        numbers += [n for layer in layers for n in (layer.input_exp, layer.weight_exp, layer.observed, layer.bound)]
        if not layers or not isinstance(trained.exponents, dict) or not isinstance(trained.network, str):
            raise ValueError("it is damaged (no layers)")
        if any(type(n) is not int for n in [*numbers, *trained.exponents.values()]):
            raise ValueError("it is damaged (a number is none)")
        return trained


def evidence_path(network: Path) -> Path:
    """Path of the evidence of a network."""
    return network.with_suffix(".evidence.json")


def network_digest(network: bytes) -> str:
    """Digest that ties evidence to a network."""
    return hashlib.sha256(network).hexdigest()


def read_trained(network: Path) -> Trained | None:
    """The evidence beside a network, if there is some.

    Raises
    ------
    ValueError
        If it is damaged, or of another network.
    """
    path = evidence_path(network)
    if not path.exists():
        return None
    try:
        trained = Trained.from_json(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, ValueError) as error:
        raise ValueError(
            f"{path} must be evidence that `concord train` wrote: {error}; remove it to go without"
        ) from error
    if trained.network != network_digest(network.read_bytes()):
        raise ValueError(f"{path} must belong to {network.name}, which has changed since; remove it to go without")
    return trained


@dataclass(frozen=True)
class ForTrained:
    """A network for the accumulator that it was trained for.

    Parameters
    ----------
    compiled : Compiled
    needs : tuple of RequiredWidth
        By layer.
    lines : tuple of str
        What there is to say, for people.
    """

    compiled: Compiled
    needs: tuple[RequiredWidth, ...]
    lines: tuple[str, ...]


def compile_trained(
    graph: Graph, before: NpuConfig, trained: Trained, counter: CountedWidths, batch: int = 1
) -> ForTrained:
    """Compile a network for the accumulator that it was trained for.

    Where the samples, run on the machine, need more bits than that, the accumulator has as many. All samples are run
    with sums that cannot overflow, too: results must have the same bits, and no flag may be new.

    Parameters
    ----------
    graph : Graph
        The network.
    before : NpuConfig
        Everything but mantissas, exponents and the accumulator.
    trained : Trained
        What the trainer wrote.
    counter : CountedWidths
        Counts what sums of samples need. Without samples bounds alone decide.
    batch : int
        Samples per run.

    Raises
    ------
    AccumulatorError
        If the configuration is serial, there is none with such numbers, or a result changes.
    """
    if before.serial:
        raise AccumulatorError(
            f"accumulator must be full for {before.name}: an element-serial configuration also adds numbers in it"
        )
    formats = Formats(exponents=trained.exponents)
    exact = compile_graph(graph, _configuration(trained, before, 0), formats, batch=batch)
    needs, ranges = counter.required(graph, exact)
    most = max(needs, key=lambda need: need.observed)
    bits = max(trained.register, most.observed)
    config = _configuration(trained, before, bits)
    compiled = compile_graph(graph, config, formats, batch=batch)
    origin = (
        f"trained for {trained.accumulator_bits} bits ({trained.method}), with mantissas of {trained.input_bits} bits "
        f"for inputs and {trained.weight_bits} for weights; {trained.samples} samples needed "
        f"{max(layer.observed for layer in trained.layers)} bits"
    )
    text = [widths_line(config, before), origin]
    if trained.register > trained.accumulator_bits:
        text.append(f"its layers have grids of their own: on the one of the NPU these are {trained.register} bits")
    if bits > trained.register:
        text.append(f"the samples need more than it was trained for: {bits} bits ({most.layer})")
    if counter.sampled:
        count = count_unchanged(counter.compared(exact, compiled), None, bits)
        text.append(
            f"{count} samples need {most.observed} bits ({most.layer}), and their results are those of sums without "
            "a limit, bit for bit"
        )
    text.append(bound_line(needs, bits, ranges))
    return ForTrained(with_lines(compiled, text), needs, tuple(text))


def _configuration(trained: Trained, before: NpuConfig, bits: int) -> NpuConfig:
    """The configuration like ``before`` with the numbers of a network; 0 bits: no sum can leave the accumulator.

    It has no registers of windows, which do not go with an accumulator that ends sums, makes no codes of accumulators,
    writes no matrices and has no integer chains.
    """
    low, high = trained.weights
    try:
        least = before.without(*(op for op in NEEDS if NEEDS[op] != "dram")).replace(
            name=f"{before.name}-x{trained.input_bits}w{trained.weight_bits}-a{bits or 'full'}",
            act_mant=trained.input_bits,
            wgt_mant=trained.weight_bits,
            act_exp_min=trained.least,
            wgt_exp_min=low,
            wgt_exp_max=high,
            acc_width=ACC_WIDTH_MIN,
            acc_register=0,
            window_taps=0,
        )
        if 0 < bits < least.full_bits:
            return least.replace(acc_width=bits, acc_register=bits)
        return least.replace(acc_width=least.full_bits)
    except ValueError as error:
        raise AccumulatorError(f"{before.name} must allow what this network was trained for: {error}") from error
