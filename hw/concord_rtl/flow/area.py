"""Cells with accumulators of several widths, after synthesis: of a whole design, or of its tile engines alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from amaranth import Elaboratable
from amaranth.back import rtlil
from amaranth.lib import wiring
from rich.console import Console
from rich.table import Table

from concord.spec.boards import BOARD_SPECS
from concord.spec.config import NpuConfig
from concord.spec.limits import ACC_WIDTH_MIN
from concord.spec.multipliers import paired
from concord.spec.operations import Op
from concord.spec.timing import result_places
from concord_boards import Board
from concord_rtl.arith.acc_to_binary16 import AccToBinary16
from concord_rtl.families import Family
from concord_rtl.families.family import Target
from concord_rtl.flow.bitstream import PREPARE
from concord_rtl.flow.plan import Plan
from concord_rtl.flow.report import MHZ
from concord_rtl.flow.tools import Job, run_jobs
from concord_rtl.flow.unit import clock_of_unit
from concord_rtl.mvm.results import ResultQueue
from concord_rtl.mvm.row import Row
from concord_rtl.mvm.row_pair import RowPair


def narrowed(config: NpuConfig, widths: Sequence[int]) -> Iterator[tuple[int, NpuConfig]]:
    """The configuration with registers of some widths; 0 is the full one, as are all that no sum exceeds.

    A narrower one has neither windows nor integer chains, which need all bits. ``ValueError`` for too few bits.
    """
    narrower = config.without(Op.I_RUN).replace(window_taps=0)
    for width in widths:
        bits = config.full_bits if width == 0 else min(width, config.full_bits)
        if bits < (least := max(ACC_WIDTH_MIN, config.lane_dot_bits)):
            raise ValueError(f"accumulator must have 0 (all) or at least {least} bits, not {width!r}")
        if bits == config.full_bits:
            yield bits, config
        else:
            kept = min(config.acc_width, bits)
            yield bits, narrower.replace(name=f"{config.name}-a{bits}", acc_width=kept, acc_register=bits)


def cells(stat: Path, family: Family) -> dict[str, int]:
    """Cells that ``stat -json`` of yosys has counted."""
    return cells_of(json.loads(stat.read_text())["design"]["num_cells_by_type"], family)


def cells_of(counts: Mapping[str, int], family: Family) -> dict[str, int]:
    """Cells by the names people use, from counts by the names of yosys."""
    return {
        name: sum(int(count) for kind, count in counts.items() if fnmatchcase(kind, pattern))
        for name, pattern in family.cells.items()
    }


def synthesized(config: NpuConfig, board_name: str, build: Path, console: Console) -> Plan:
    """The whole design of a configuration on a board, after synthesis; its cells are in ``synthesis.json``."""
    plan = Plan.of(board_name, None, None, build / "area", console, config=config)
    plan.choose(BOARD_SPECS[board_name].clock_hz / MHZ, None)
    console.print(f"{board_name}, {config.name} -> {plan.flow.folder}")
    plan.synthesize()
    return plan


def engine_units(config: NpuConfig) -> dict[str, tuple[wiring.Component, int]]:
    """New units of the tile engines of a configuration that is not element-serial, and how many there are of each."""
    return {
        "row": (RowPair(config), config.rows // 2) if paired(config) else (Row(config), config.rows),
        "queue": (ResultQueue(config, result_places(config)), 1),
        "convert": (AccToBinary16(config), config.mfu_lanes),
    }


def engine_clock(config: NpuConfig, board: Board, folder: Path, console: Console) -> tuple[float, str]:
    """MHz that every unit of the tile engines reaches, placed and routed alone with seed 1, and the slowest unit.

    Raises
    ------
    ValueError
        If the family of the board has no flow without pins.
    """
    return min(
        (clock_of_unit(unit, board, [1], folder / name, console), name)
        for name, (unit, _) in engine_units(config).items()
    )


def engine_cells(config: NpuConfig, family: Family, folder: Path, console: Console) -> dict[str, int]:
    """Cells of the tile engines of a configuration that is not element-serial.

    Each unit is synthesised alone: a matrix row, the queue of results, a conversion to binary16.
    """
    total = dict.fromkeys(cells_of({}, family), 0)
    for name, (unit, count) in engine_units(config).items():
        for kind, number in unit_cells(unit, name, family, folder, console).items():
            total[kind] += count * number
    return total


def unit_cells(
    unit: Elaboratable, name: str, family: Family, folder: Path, console: Console, *, target: Target | None = None
) -> dict[str, int]:
    """Cells of one unit.

    With the ``target`` of a family they are those that a design has. Without, multipliers are inferred, and their
    registers are flip-flops.
    """
    folder.mkdir(parents=True, exist_ok=True)
    design, stat, log = (folder / f"{name}.{suffix}" for suffix in ("il", "stat.json", "log"))
    design.write_text(rtlil.convert(unit, platform=target, name=name, emit_src=False))
    script = f"read_rtlil {design.name}; {PREPARE}; {family.synthesis} -top {name}; tee -q -o {stat.name} stat -json"
    args = ["-q", "-l", log.name, "-p", script]
    run_jobs(console, [Job(f"synthesis of {name}", "yosys", args, folder, log, reads=[design], writes=[stat])])
    return cells(stat, family)


def table(summary: dict[str, Any]) -> Table:
    """Widths and cells for a terminal."""
    clock = any("mhz" in row for row in summary["widths"])
    names = list(summary["widths"][0]["cells"])
    shown = Table("bits", *names, *(["MHz"] if clock else []), title=summary["of"], title_justify="left")
    for row in summary["widths"]:
        mhz = [f"{row['mhz']:.2f}" + (f" ({row['slowest']})" if "slowest" in row else "")] if clock else []
        shown.add_row(str(row["bits"]), *(f"{row['cells'][name]:,}" for name in names), *mhz)
    return shown
