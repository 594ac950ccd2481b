"""Formats with evidence: every candidate is compiled and run on calibration data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich import box
from rich.table import Table

from concord.compiler.formats import relative_error, static_exponent
from concord.floatfunctions import Floats
from concord.host import connect
from concord.image import Image
from concord.mlp import INPUT, OUTPUT, Narrow, compile_mlp
from concord.network import Network
from concord.spec.config import NpuConfig

Integers = npt.NDArray[np.int64]
#: Runs an image on a batch and returns its outputs by name.
Runner = Callable[[Image, Floats], dict[str, Floats]]
#: Widths of the mantissas that are compared on the calibration data.
MANTISSAS = (4, 5, 6, 8, 10)


def emulate(image: Image, x: Floats) -> dict[str, Floats]:
    """Run a batch on the emulator: outputs by name."""
    with connect("emulator", image.config) as device:
        device.load(image)
        outputs: dict[str, Floats] = device.run({INPUT: x})
        return outputs


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

    def table(self) -> Table:
        """All candidates, the chosen one in bold."""
        table = Table(title="Formats on the calibration data", box=box.SIMPLE_HEAD, title_justify="left")
        right = "accuracy" if self.chosen.accuracy is not None else "agreement"
        for column in ("candidate", right, "error of the result"):
            table.add_column(column, justify="left" if column == "candidate" else "right")
        if self.reference_accuracy is not None:
            table.add_row("double precision", f"{100 * self.reference_accuracy:.2f} %", "")
        width = [(f"mantissas of {m} bits, dynamic", candidate) for m, candidate in self.mantissas]
        for label, candidate in [(c.label, c) for c in self.candidates] + width:
            accuracy = candidate.agreement if candidate.accuracy is None else candidate.accuracy
            chosen = candidate is self.chosen
            table.add_row(
                label, f"{100 * accuracy:.2f} %", f"{100 * candidate.error:.2f} %", style="bold" if chosen else None
            )
        return table


def choose_formats(
    network: Network, config: NpuConfig, run: Runner, x: Floats, labels: Integers | None = None
) -> Evidence:
    """Compile and run the candidates on calibration data and rank them.

    The best has the highest accuracy, where there are labels, and of these the least error.
    Static exponents are set so that no calibration value saturates, or one lower so that the largest do.
    """
    x = x.reshape(len(x), -1)
    reference = network(x)
    inputs = [x, *network.trace(x)[:-1]]
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
    candidates.sort(key=lambda c: (-(c.accuracy or 0.0), c.error))
    widths = tuple(
        (m, measure(f"{m} bits", proposals["dynamic"], config.replace(act_mant=m, wgt_mant=m))) for m in MANTISSAS
    )
    right = None if labels is None else float(np.mean(reference.argmax(axis=1) == labels))
    return Evidence(tuple(candidates), widths, right)
