"""The facts of a report: plain values, which go to JSON and back unchanged.

Numbers that are not finite are ``None``: JSON has no others.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from concord.compiler.ir.quantized import Inexact
from concord.graph.passes.dtype_report import TensorTypes
from concord.host.rates import Rates
from concord.networks.layer_errors import Error, largest_error
from concord.report.code_facts import IntegerFacts
from concord.report.json_types import typed
from concord.report.layer_facts import LayerFacts, Work


@dataclass(frozen=True)
class Memory:
    """Words in use of a memory; ``constants`` of them are loaded with the program."""

    name: str
    unit: str
    used: int
    constants: int
    depth: int


@dataclass(frozen=True)
class InputFacts:
    """An input of the network: shape of a sample, memory, and elements that the host writes for a run.

    Of a state that the NPU keeps, ``becomes`` is the output that it is in the next run; the host writes nothing then.
    """

    name: str
    shape: tuple[int, ...]
    memory: str
    elements: int
    becomes: str = ""


@dataclass(frozen=True)
class OutputFacts:
    """An output of the network, as the host hands it out."""

    name: str
    shape: tuple[int, ...]
    error: Error


@dataclass(frozen=True)
class Saved:
    """Savings of the data-type pass in all, as :class:`concord.graph.passes.dtype_report.DtypeTraffic` counts them."""

    conversions_before: int
    conversions_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class NetworkFacts:
    """Everything about a compiled network.

    Parameters
    ----------
    name, npu, fingerprint : str
        Of the network and of the configuration.
    macs_per_cycle, clock_hz : int
        Of the NPU.
    samples, batch : int
        Samples it was analysed with, and samples per run of the program.
    agreement : float or None
        Share of samples that the first output decides as the reference does: its largest element or, of a single number
        after a sigmoid, the side of 0.5; ``None`` if it is no decision, but a number as of a regression.
    same_on_rtl : bool or None
        Whether the RTL gives the same bits as the emulator; ``None`` if it was not asked.
    differs_behind : str
        If it does not, the first layer after which memories differ.
    host : tuple of str
        Operators that the host computes after the NPU.
    host_lines : tuple of str
        What the host computes, how much that is, and what passes on, a line each.
    types : tuple of TensorTypes
        What the data-type pass has decided for every tensor of the layers.
    saved : Saved
        The sum of that.
    inexact : tuple of Inexact
        What of an already quantised model the NPU does not hold exactly.
    rates : Rates
        Bytes and times of a sample on the board.
    other_links : tuple of Rates
        The same over its other links.
    row_tiling : str
        Which layers are computed in row tiles, if there are any.
    accumulator : tuple of str
        Its width and grid and, if they were chosen for the network, what speaks for that.
    input_flags : tuple of str
        Inputs that are unlike what the network was compiled for, a line each.
    expected_error : str
        What was measured when it was compiled, in a line; empty if nothing was.
    codes : IntegerFacts or None
        Of a network on codes its operations and tables, and the codes that the samples have.
    """

    name: str
    npu: str
    fingerprint: str
    macs_per_cycle: int
    clock_hz: int
    samples: int
    batch: int
    instructions: int
    agreement: float | None
    same_on_rtl: bool | None
    inputs: tuple[InputFacts, ...]
    outputs: tuple[OutputFacts, ...]
    host: tuple[str, ...]
    memories: tuple[Memory, ...]
    types: tuple[TensorTypes, ...]
    saved: Saved
    layers: tuple[LayerFacts, ...]
    rates: Rates
    other_links: tuple[Rates, ...] = ()
    inexact: tuple[Inexact, ...] = ()
    row_tiling: str = ""
    differs_behind: str = ""
    accumulator: tuple[str, ...] = ()
    input_flags: tuple[str, ...] = ()
    host_lines: tuple[str, ...] = ()
    expected_error: str = ""
    codes: IntegerFacts | None = None

    @property
    def work(self) -> Work:
        """The sum of all layers."""
        works = [layer.work for layer in self.layers]
        return Work(**{field.name: sum(getattr(work, field.name) for work in works) for field in fields(Work)})

    @property
    def error(self) -> float | None:
        """Relative error of the result; of several outputs the largest, ``None`` if one is not finite."""
        return largest_error(output.error for output in self.outputs)

    @property
    def summary(self) -> str:
        """One line for the terminal."""
        flagged = [layer.name for layer in self.layers if layer.flagged]
        flags = f"flags in {', '.join(flagged)}" if flagged else "no flags"
        error = "not finite" if self.error is None else f"{100 * self.error:.2f} %"
        tiling = f"; {self.row_tiling}" if self.row_tiling else ""
        agreement = "" if self.agreement is None else f"agreement {100 * self.agreement:.1f} %, "
        return f"{agreement}error of the result {error}, {flags}{tiling}; {self.rates.text}"

    def to_json(self) -> str:
        """All facts as JSON."""
        return json.dumps(asdict(self), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> NetworkFacts:
        """Inverse of :meth:`to_json`."""
        return typed(cls, json.loads(text))
