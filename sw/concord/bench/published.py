"""Rates on the board beside the best ones that others have published for the same networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from concord.bench.hardware import Rtl
from concord.bench.networks import Measured, measure_network
from concord.bench.results import Results
from concord.bench.tasks import TASKS, Task, folder, load
from concord.compiler.lowering.lower import Unsupported
from concord.compiler.model import compile_graph
from concord.host.rates import rates
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.spec.presets import presets_of

#: Name of the table.
PUBLISHED = "Beside published rates"
#: Board whose bitstreams are compared.
BOARD = "ulx3s-85f"
#: What the table shows.
NOTE = (
    f"Per second: the clock that place and route of the preset reaches on {BOARD}, divided by the cycles of the RTL, "
    "without the time of the link. Of the presets for which the board has a bitstream, each network is on the one that "
    "computes it fastest. Published: inferences per second of the fastest FPGA with published MLPerf Tiny results for "
    "the network, with the accuracy and the multipliers of that system."
)


@dataclass(frozen=True)
class Published:
    """A rate that others have published.

    Parameters
    ----------
    per_second : int
        Inferences per second.
    system : str
        What reached it: tool, board, and what was different about the network, if anything was.
    score : float or None
        Its accuracy or area under the ROC curve, where one is given.
    multipliers : int or None
        Multipliers it has, where that is known.
    """

    per_second: int
    system: str
    score: float | None = None
    multipliers: int | None = None


#: By network: results of MLPerf Tiny on FPGA boards.
BEST: dict[str, Published] = {
    "ic_resnet8": Published(2431, "fpgaConvNet, ZedBoard", 0.860, 211),
    "kws_dscnn": Published(3088, "fpgaConvNet, ZedBoard", 0.911, 188),
    "vww_mobilenetv1_025": Published(1388, "fpgaConvNet, ZC706", 0.852, 564),
    "ad_fc_autoencoder": Published(53365, "hls4ml, PYNQ-Z2, a smaller network", 0.83),
}


def candidates() -> list[NpuConfig]:
    """The presets for which the board has a bitstream."""
    return presets_of(BOARD)


def fastest(task: Task, data: Path) -> NpuConfig:
    """The candidate that computes a network fastest, by the cycles of a run with dynamic exponents.

    Raises
    ------
    CapacityError, Unsupported
        If none can compute it.
    """
    graph, seconds, errors = load(task, data)[0], {}, []
    for config in candidates():
        try:
            image = compile_graph(graph, config, batch=task.batch).image
        except (CapacityError, Unsupported) as error:
            errors.append(error)
            continue
        seconds[config] = rates(image, task.batch).compute_seconds
    if not seconds:
        raise errors[0]
    return min(seconds, key=lambda config: seconds[config])


def beside(best: Published, found: Measured, config: NpuConfig) -> dict[str, str]:
    """A row of the table."""
    rate = config.clock_hz / found.cycles
    return {
        "preset": config.name,
        "MHz": f"{config.clock_hz / 1e6:g}",
        "float": f"{found.exact:.4f}",
        f"m={config.act_mant}": f"{found.score:.4f}",
        "cycles": f"{found.cycles:,.0f}",
        "MACs busy": f"{found.busy:.1f} %",
        "per second": f"{rate:,.0f}",
        "published": f"{best.per_second:,}",
        "ratio": f"{rate / best.per_second:.2f}",
        "their score": "" if best.score is None else f"{best.score:g}",
        "their multipliers": "" if best.multipliers is None else str(best.multipliers),
        "system": best.system,
        "RTL": found.verdict,
    }


def measure_published(_: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """A row for every network for which others have published a rate, on the presets of the board."""
    data = folder()
    if data is None:
        results.skip(PUBLISHED, "CONCORD_DATA does not name a folder with networks")
        return
    results.notes[PUBLISHED] = NOTE
    tasks: dict[NpuConfig, list[Task]] = {}
    for task in TASKS:
        if task.model in BEST:
            say(f"preset for {task.model}")
            tasks.setdefault(fastest(task, data), []).append(task)
    for config, mine in tasks.items():
        say(f"RTL simulation of {config.name}")
        with Rtl.open(config) as rtl:
            for task in mine:
                say(f"{task.model} on {config.name}")
                found = measure_network(task, rtl.device, config, data)
                results.row(PUBLISHED, task.model, beside(BEST[task.model], found, config))
