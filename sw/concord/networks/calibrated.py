"""Calibration with results of the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from concord.compiler.calibration import formats
from concord.compiler.calibration.calibration import Calibration, Inputs, Runner
from concord.compiler.calibration.formats import Evidence
from concord.compiler.model import Compiled
from concord.graph.ir import Graph
from concord.host.shared import emulator
from concord.program.flags import FlagDiagnostic
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray, Ints
from concord.utils.attempts import Attempts, Show, show_nothing
from concord.utils.parallel import Engine


def observe(
    compiled: Compiled, inputs: Inputs, engine: Engine | None = None
) -> tuple[dict[str, FloatArray], list[FlagDiagnostic]]:
    """Results of a batch on the emulator, and the flags that it raises; the workers of an engine share it.

    States are part of the inputs and of the results.
    """
    package = compiled.package.carried
    with emulator(compiled.image.config, engine) as device:
        device.load(package.image)
        return package.run(device, inputs), package.flags(device.flags())


def emulate(compiled: Compiled, inputs: Inputs, engine: Engine | None = None) -> dict[str, FloatArray]:
    """Results of a batch on the emulator; the workers of an engine share it."""
    return observe(compiled, inputs, engine)[0]


def calibration_of(
    graph: Graph,
    inputs: Inputs,
    run: Runner | None = None,
    labels: Ints | None = None,
    batch: int = 1,
    engine: Engine | None = None,
    show: Show = show_nothing,
) -> Calibration:
    """A network and samples for it.

    Parameters
    ----------
    run : callable, optional
        Computes the outputs and tells the flags; on the emulator, if left out.
    engine : Engine or None
        Its workers share what runs on the emulator, whose bits do not depend on them. All else is computed here: sums
        in double precision depend on the processor and on the threads of BLAS.
    show : callable
        Shows what is measured, with its number and how many there are as far as is known.
    graph, inputs, labels, batch
        As for :class:`concord.compiler.calibration.calibration.Calibration`, with its errors.
    """
    return Calibration(graph, inputs, run or partial(observe, engine=engine), labels, batch, Attempts(show))


def choose_formats(
    graph: Graph,
    config: NpuConfig,
    inputs: Inputs,
    *,
    mantissas: Mapping[str, int] | None = None,
    batch: int = 1,
    engine: Engine | None = None,
    quick: bool = False,
    show: Show = show_nothing,
) -> Evidence:
    """Compile a network with dynamic and with static exponents, run all on calibration data and rank them by error.

    Parameters
    ----------
    config, mantissas, quick
        As for :func:`concord.compiler.calibration.formats.choose_formats`.
    graph, inputs, batch, engine, show
        As for :func:`calibration_of`.

    Raises
    ------
    NotFiniteError
        If the chosen one overflows where floating point does not, and its results show it.
    """
    calibration = calibration_of(graph, inputs, batch=batch, engine=engine, show=show)
    return formats.choose_formats(calibration, config, mantissas, quick=quick)
