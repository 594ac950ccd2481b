"""Rates on the board beside those that others have published for the same networks, by class of board."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.host.rates import Rates, rates, spoken
from concord.program.allocator import CapacityError
from concord.spec.blocks import blocks_of
from concord.spec.builds import in_brackets
from concord.spec.config import NpuConfig
from concord.spec.devices import DEVICES
from concord.spec.presets import note_of, presets_of
from concord_bench.hardware import Rtl
from concord_bench.networks import Measured, measure_network
from concord_bench.rates import rates_of
from concord_bench.results import Results
from concord_bench.tasks import TASKS, Task, folder, load

#: Board whose bitstreams are compared.
BOARD = "ulx3s-85f"
#: Multipliers of the device of a small FPGA board, and of a middle one, at most.
SMALL, MIDDLE = 100, 300
#: Names of the tables.
OURS, PUBLISHED = f"On the bitstreams of {BOARD}", "Beside published rates"
#: Note on the tables.
OURS_NOTE = (
    "Of the presets for which the board has a bitstream, each network is on the one that computes it fastest. What a "
    "user gets over the serial port, samples per second in a batch and one at a time, with low latency and with the "
    "serial driver as it is installed, as in the table of rates on the board; then what the core computes: the clock "
    "that place and route of the preset reaches, divided by the cycles of the RTL. No board was measured. Best "
    "batch: what a user gets with the preset that `concord compile --board` takes, the best over the link."
)
NOTE = (
    f"Inferences per second of the core on {BOARD} (the table before), and of systems with results of MLPerf Tiny: of "
    "FPGA boards all for these networks in rounds 0.7 to 1.3, and of other systems the fastest and the fastest "
    "microcontroller. MLPerf Tiny times an inference whose input is on the board already, so it compares with the "
    "core, not with what comes over a serial port. Closed: the network of the benchmark; open: another network for "
    "the task, here a smaller one. Class: a small FPGA has up to 100 multipliers, a middle one up to 300. "
    "Multipliers: those that the design takes, of those that the device has; most devices of others have wider ones, "
    f"and a design for {BOARD} shares some of them between two products. What was not published is left empty. "
    "Medians of the result files of the rounds (github.com/mlcommons/tiny_results_v1.1 and so on)."
)


class BoardClass(Enum):
    """Classes of systems: FPGAs by the multipliers that the device has."""

    SMALL = "small FPGA"
    MIDDLE = "middle FPGA"
    LARGE = "large FPGA"
    PHONE = "phone"
    MICROCONTROLLER = "microcontroller"


@dataclass(frozen=True)
class Machine:
    """Machine on which others have measured.

    Parameters
    ----------
    name : str
        The board, and its device.
    multipliers : int or None
        DSP blocks of the device, if it is an FPGA.
    kind : BoardClass or None
        Its class, if it is none.
    """

    name: str
    multipliers: int | None = None
    kind: BoardClass | None = None

    @property
    def board_class(self) -> BoardClass:
        """The class of the device."""
        return self.kind if self.kind is not None else class_of(self.multipliers or 0)


def class_of(multipliers: int) -> BoardClass:
    """The class of an FPGA with so many multipliers."""
    if multipliers <= SMALL:
        return BoardClass.SMALL
    return BoardClass.MIDDLE if multipliers <= MIDDLE else BoardClass.LARGE


CORA, ZYBO = Machine("Cora-Z7, XC7Z007S", 66), Machine("Zybo, XC7Z010", 80)
ZEDBOARD, PYNQ = Machine("ZedBoard, XC7Z020", 220), Machine("PYNQ-Z2, XC7Z020", 220)
ARTY, ZC706 = Machine("Arty A7-100T, XC7A100T", 240), Machine("ZC706, XC7Z045", 900)
ZCU106, VCU128 = Machine("ZCU106, XCZU7EV", 1728), Machine("VCU128, XCVU37P", 9024)
SNAPDRAGON = Machine("Snapdragon mobile platform", kind=BoardClass.PHONE)
RA8D1 = Machine("EK-RA8D1, Cortex-M85", kind=BoardClass.MICROCONTROLLER)


@dataclass(frozen=True)
class Published:
    """A rate that others have published.

    Parameters
    ----------
    per_second : float
        Inferences per second.
    machine : Machine
        What it was measured on.
    system : str
        Tool or accelerator, if one is named.
    source : str
        Round and division of MLPerf Tiny.
    multipliers : int or None
        DSP blocks that the design takes.
    mhz : int or None
        Clock of the accelerator.
    score : float or None
        Accuracy, or area under the ROC curve.
    """

    per_second: float
    machine: Machine
    system: str
    source: str
    multipliers: int | None = None
    mhz: int | None = None
    score: float | None = None


def _fpgaconvnet(per_second: float, machine: Machine, multipliers: int, mhz: int, score: float) -> Published:
    return Published(per_second, machine, "fpgaConvNet", "v1.1 closed", multipliers, mhz, score)


def _phone(per_second: float) -> Published:
    return Published(per_second, SNAPDRAGON, "Qualcomm", "v1.3 closed")


def _microcontroller(per_second: float) -> Published:
    return Published(per_second, RA8D1, "Renesas", "v1.2 closed")


#: By network; fpgaConvNet's multipliers and clocks are those of its table, those of the ANPU of its reports.
RESULTS: dict[str, tuple[Published, ...]] = {
    "ic_resnet8": (
        _phone(10436.6),
        _fpgaconvnet(6789.6, ZC706, 525, 187, 0.860),
        _fpgaconvnet(2431.4, ZEDBOARD, 211, 143, 0.860),
        _fpgaconvnet(317.5, ZYBO, 78, 125, 0.855),
        _microcontroller(117.9),
    ),
    "kws_dscnn": (
        _phone(15396.1),
        _fpgaconvnet(3087.9, ZEDBOARD, 188, 143, 0.911),
        _fpgaconvnet(464.9, ZYBO, 60, 125, 0.910),
        _microcontroller(288.6),
        _fpgaconvnet(237.5, CORA, 55, 143, 0.910),
    ),
    "vww_mobilenetv1_025": (
        _phone(8752.9),
        Published(4624.9, VCU128, "ANPU", "v1.3 closed", 994, 320, 0.849),
        Published(3455.7, VCU128, "ANPU", "v1.2 closed", 994, 300, 0.849),
        Published(2683.7, ZCU106, "ANPU", "v1.1 closed", 994, 200, 0.849),
        _fpgaconvnet(1388.3, ZC706, 564, 200, 0.852),
        _fpgaconvnet(105.4, ZEDBOARD, 189, 111, 0.848),
        _microcontroller(74.7),
    ),
    "ad_fc_autoencoder": (
        Published(53365.4, PYNQ, "hls4ml", "v0.7 open", mhz=100, score=0.83),
        Published(30685.7, ARTY, "hls4ml", "v0.7 open", mhz=100, score=0.83),
        _phone(14625.0),
        _microcontroller(1884.1),
    ),
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


def best_batch(task: Task, data: Path) -> str:
    """The greatest rate of a batch over the link, and the candidate that has it."""
    batches: dict[str, float] = {}
    for config in candidates():
        with suppress(CapacityError, Unsupported):
            batches[config.name] = rates_of(task, config, data)[2].per_second
    name = max(batches, key=lambda name: batches[name])
    return f"{spoken(batches[name])} on {name}"


def ours(measured: Measured, link: Rates, best: str, config: NpuConfig) -> dict[str, str]:
    """A row of the table of the board: what a user gets, then what the core computes."""
    slow = link.at_default or link
    return {
        "preset": config.name,
        "float": f"{measured.exact:.4f}",
        f"m={config.act_mant}": f"{measured.score:.4f}",
        "in a batch": spoken(link.per_second),
        "one at a time": spoken(link.single_per_second),
        "batch, as installed": spoken(slow.per_second),
        "one, as installed": spoken(slow.single_per_second),
        "best batch": best,
        "core, per second": spoken(config.clock_hz / measured.cycles),
        "cycles": f"{measured.cycles:,.0f}",
        "MACs busy": f"{measured.busy:.1f} %",
        "MHz": f"{config.clock_hz / 1e6:g}{in_brackets(note_of(config))}",
        "RTL": measured.verdict,
    }


def beside(model: str, measured: Measured, link: Rates, config: NpuConfig) -> dict[str, dict[str, str]]:
    """Rows of a network by system: that of the board, and the published ones, the fastest first."""
    rate, device = config.clock_hz / measured.cycles, DEVICES[BOARD]
    rows = {
        f"{model}: Concord, {BOARD}, {config.name}": (
            rate,
            {
                "class": class_of(device.multipliers).value,
                "over the serial port": spoken(link.per_second),
                "core or accelerator": spoken(rate),
                "multipliers": f"{blocks_of(config).multipliers:,} of {device.multipliers:,}",
                "MHz": f"{config.clock_hz / 1e6:g}{in_brackets(note_of(config))}",
                "score": f"{measured.score:.3f}",
            },
        )
    }
    for published in RESULTS[model]:
        there = published.machine.multipliers
        taken = "" if published.multipliers is None else f"{published.multipliers:,} "
        rows[f"{model}: {published.system}, {published.machine.name}, {published.source}"] = (
            published.per_second,
            {
                "class": published.machine.board_class.value,
                "over the serial port": "",
                "core or accelerator": spoken(published.per_second),
                "multipliers": "" if there is None else f"{taken}of {there:,}",
                "MHz": "" if published.mhz is None else str(published.mhz),
                "score": "" if published.score is None else f"{published.score:.3f}",
            },
        )
    return {name: row for name, (_, row) in sorted(rows.items(), key=lambda item: -item[1][0])}


def measure_published(_: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """Rows for every network for which others have published a rate, on the presets of the board."""
    data = folder()
    if data is None:
        for group in (OURS, PUBLISHED):
            results.skip(group, "CONCORD_DATA does not name a folder with networks")
        return
    results.notes |= {OURS: OURS_NOTE, PUBLISHED: NOTE}
    tasks: dict[NpuConfig, list[Task]] = {}
    for task in TASKS:
        if task.model in RESULTS:
            say(f"preset for {task.model}")
            tasks.setdefault(fastest(task, data), []).append(task)
    for config, of_preset in tasks.items():
        say(f"RTL simulation of {config.name}")
        with Rtl.open(config) as rtl:
            for task in of_preset:
                say(f"{task.model} on {config.name}")
                measured = measure_network(task, rtl.device, config, data)
                link = rates_of(task, config, data)[2]
                results.row(OURS, task.model, ours(measured, link, best_batch(task, data), config))
                for name, row in beside(task.model, measured, link, config).items():
                    results.row(PUBLISHED, name, row)
