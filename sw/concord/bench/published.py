"""Rates on the board beside the best ones that others have published for the same networks."""

from __future__ import annotations

from dataclasses import dataclass

from concord.bench.results import Results
from concord.spec.boards import BOARD_SPECS, preset_of
from concord.spec.config import NpuConfig

#: Name of the table.
PUBLISHED = "Beside published rates"


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


def board_of(config: NpuConfig) -> str | None:
    """The board that a preset fills, if there is one; the last one of several, which is the largest."""
    boards = [name for name, board in BOARD_SPECS.items() if board.preset == preset_of(config.name)]
    return boards[-1] if boards else None


def note(config: NpuConfig) -> str:
    """What the table shows."""
    board = board_of(config)
    at = f"the clock that place and route reached on {board}" if board else "the clock of the preset"
    return (
        f"Per second: {config.clock_hz / 1e6:g} MHz, {at}, divided by the cycles of the RTL, without the time of the "
        f"link. The NPU makes {config.macs} multiply-accumulates per cycle. Published: inferences per second of the "
        "fastest FPGA with published MLPerf Tiny results for the network, with the accuracy and the multipliers of "
        "that system."
    )


def beside_published(model: str, score: float, cycles: float, busy: float, config: NpuConfig, results: Results) -> None:
    """A row for a network for which others have published a rate; other networks have none.

    Parameters
    ----------
    model : str
        Name of the network.
    score : float
        Its score on the NPU.
    cycles : float
        Cycles per sample.
    busy : float
        Share of the multipliers in use, in percent.
    config : NpuConfig
        What the cycles are those of.
    results : Results
        What the row is added to.
    """
    if model not in BEST:
        return
    best, rate = BEST[model], config.clock_hz / cycles
    results.notes[PUBLISHED] = note(config)
    results.row(
        PUBLISHED,
        model,
        {
            "score": f"{score:.4f}",
            "MACs busy": f"{busy:.1f} %",
            "per second": f"{rate:,.0f}",
            "published": f"{best.per_second:,}",
            "ratio": f"{rate / best.per_second:.2f}",
            "their score": "" if best.score is None else f"{best.score:g}",
            "their multipliers": "" if best.multipliers is None else str(best.multipliers),
            "system": best.system,
        },
    )
