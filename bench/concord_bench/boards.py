"""The boards, and samples per second over each of their links, as tables of a page.

``python -m concord_bench.boards --docs docs/boards.md`` writes them into the page, between markers; without ``--docs``
it prints them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click

from concord.compiler.ir.tensor_formats import DEFAULT
from concord.host.rates import Rates, rates_by_link, spoken
from concord.networks.boards import PresetCandidate, rank
from concord.spec.boards import BOARD_SPECS
from concord.spec.builds import clock_note, in_brackets
from concord.spec.config import NpuConfig
from concord.spec.dram import PARTS
from concord.spec.links import LINKS
from concord.spec.presets import presets_of
from concord.utils.files import write_text
from concord_bench.rates import EXPECTED
from concord_bench.tasks import TASKS, Task, folder, load
from concord_boards import board_named

#: Networks whose rates the page has: a large one, one that the presets for an LFE5U-25F hold, and one for all boards.
NETWORKS = ("ic_resnet8", "sww_dscnn1d", "digits_cnn")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> str:
    """A table in Markdown whose columns after the first ``words`` are numbers."""
    rule = ["---" if column < words else "---:" for column in range(len(head))]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rows))


def board_table() -> str:
    """Table of the boards: FPGA, memory, oscillator, presets, clock of the first, and links, the usual one first."""
    rows = []
    for name, spec in BOARD_SPECS.items():
        board = board_named(name)
        platform: Any = board.platform
        grade = f", grade {platform.speed}" if hasattr(platform, "speed") else ""
        rows.append((
            f"`{name}`",
            f"{platform.device}, {board.place[board.place.index('--package') + 1].upper()}{grade}",
            f"{PARTS[spec.dram].nbytes >> 20} MB" if spec.dram else "",
            f"{board.oscillator_hz / 1e6:g} MHz",
            ", ".join(f"`{preset}`" for preset in spec.presets),
            ", ".join(f"{link.name} ({link.text})" for link in spec.links),
            f"{spec.clock_hz / 1e6:g}{in_brackets(clock_note(name, spec.preset))}",
        ))  # fmt: skip
    return _table(("board", "FPGA", "external memory", "oscillator", "presets", "links", "MHz"), rows, 6)


def rate_table(networks: Sequence[str], data: Path) -> str:
    """Samples per second in a batch of each network that a board holds, over each link; equal boards share a row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for network in networks:
        (task,) = (task for task in TASKS if task.model == network)
        for board in BOARD_SPECS:
            if (best := _best(task, tuple(presets_of(board)), data)) is not None:
                every = rates_by_link(best.compiled.image, task.batch)
                rows.setdefault((network, *_row(best.config.name, every)), []).append(board)
    texts = [(row[0], ", ".join(f"`{board}`" for board in boards), *row[1:]) for row, boards in rows.items()]
    return _table(("network", "boards", "preset", *LINKS, "the core computes"), texts, 3)


def _row(preset: str, every: Sequence[Rates]) -> tuple[str, ...]:
    per_link = {rates.link.name: spoken(rates.per_second) for rates in every}
    return f"`{preset}`", *(per_link.get(name, "") for name in LINKS), spoken(1 / every[0].compute_seconds)


@cache
def _best(task: Task, configs: tuple[NpuConfig, ...], data: Path) -> PresetCandidate | None:
    """The preset that ``concord compile`` takes for a network; ``None`` if none holds it."""
    graph, inputs, _ = load(task, data)
    (port,) = graph.inputs
    ranking = rank(graph, configs, DEFAULT, task.batch, {port: inputs[:EXPECTED]})
    return next(iter(ranking.candidates), None)


def filled(text: str, tables: dict[str, str]) -> str:
    """A page with tables between ``<!-- boards: NAME -->`` and ``<!-- end -->``; those that are not given stay."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}\n{tables[match[2]]}\n<!-- end -->" if match[2] in tables else match[0]

    return re.sub(r"(<!-- boards: (\w+) -->\n).*?<!-- end -->", fill, text, flags=re.DOTALL)


@click.command()
@click.option(
    "--docs", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The page.  [default: print them]"
)
@click.option("--only", multiple=True, type=click.Choice(NETWORKS), help="Some of the networks.")
def main(docs: Path | None, only: tuple[str, ...]) -> None:
    """Write the boards and their rates into a page; without trained networks in CONCORD_DATA only the boards."""
    if docs is not None and only:
        raise click.UsageError("--docs must be given without --only, for the page has all networks")
    tables, data = {"list": board_table()}, folder()
    if data is None:
        click.echo("CONCORD_DATA does not name the folder with the networks: no rates", err=True)
    else:
        tables["rates"] = rate_table(only or NETWORKS, data)
    if docs is None:
        click.echo("\n".join(tables.values()))
    else:
        write_text(docs, filled(docs.read_text(encoding="utf-8"), tables))


if __name__ == "__main__":
    main()
