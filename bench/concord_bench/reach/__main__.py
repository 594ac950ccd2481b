"""``python -m concord_bench.reach``: how many networks such as people bring compile, run and are right."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click

from concord.cli.common import FILE, readable, wide_console
from concord.display.tables import text_table
from concord.utils.files import write_text
from concord_bench.reach.networks import NETWORKS
from concord_bench.reach.outcomes import Outcome, first_reason, survey
from concord_bench.reach.page import earlier, render

#: Presets on which networks are tried, in this order.
PRESETS = "ecp5-85f-256,ecp5-85f"


@click.command()
@click.option("--presets", default=PRESETS, show_default=True, help="NPUs; the first that takes a network counts.")
@click.option("--partition", help="What the host may compute, as of `concord compile`.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this network. The option can be repeated.")
@click.option("--python", default=sys.executable, help="An interpreter with another version of Concord.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Networks at a time.")
@click.option("--search", is_flag=True, help="Choose formats by a search, which takes many times as long.")
@click.option("--prove", default="numpy", show_default=True, help="What emulators are compared with, by commas.")
@click.option("--any", "any_part", is_flag=True, help="Compile what is refused once more with --partition any.")
@click.option("--rtl", is_flag=True, help="Run a sample of every network on the compiled RTL, too.")
@click.option("--json", "json_file", type=FILE, help="JSON file for what became of every network.")
@click.option("--before", type=FILE, help="A JSON file of an earlier version, for a column of the page.")
@click.option("--docs", type=FILE, help="Also write a page of the documentation.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Keep the models and results here.")
@readable
def reach(
    presets: str, partition: str | None, only: tuple[str, ...], python: str, jobs: int, search: bool, prove: str,
    any_part: bool, rtl: bool, json_file: Path | None, before: Path | None, docs: Path | None, folder: Path | None,
) -> None:  # fmt: skip
    """Compile networks such as people bring, run them on the emulator, and compare them with ONNX Runtime."""
    known = {network.name: network for network in NETWORKS}
    if unknown := sorted(set(only) - set(known)):
        raise ValueError(f"networks must be among {', '.join(known)}, not {', '.join(unknown)}")
    chosen = [known[name] for name in only] or list(NETWORKS)
    console = wide_console()
    with tempfile.TemporaryDirectory() as temporary:
        place = folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        task = partial(
            survey, python=python, presets=presets.split(","), folder=place, partition=partition, quick=not search,
            prove=prove.split(","), any_part=any_part, rtl=rtl,
        )  # fmt: skip
        outcomes = []
        with ThreadPoolExecutor(jobs) as pool:
            for outcome in pool.map(task, chosen):
                outcomes.append(outcome)
                for item in (outcome, outcome.in_part):
                    if item is not None:
                        console.print(line(item), soft_wrap=True, markup=False, highlight=False)
                if json_file is not None:
                    write_text(json_file, json.dumps([item.as_json() for item in outcomes], indent=1) + "\n")
    show(outcomes)
    if docs is not None:
        rounded = outcomes if json_file is None else earlier(json_file)  # the page is that of the file
        write_text(docs, page(rounded, before))


def page(outcomes: list[Outcome], before: Path | None) -> str:
    """The page, with a column of an earlier version, whose name is behind the hyphen of its file."""
    return render(outcomes) if before is None else render(outcomes, earlier(before), before.stem.partition("-")[2])


def line(outcome: Outcome) -> str:
    """Outcome of a network in a line."""
    text = f"{outcome.name:30} {outcome.outcome:9} "
    if outcome.preset:
        text += f"{outcome.preset:13} {100 * outcome.error:6.2f} %"
        text += f"  r {min(outcome.correlations.values()):.3f}" if outcome.correlations else ""
        text += f"  {outcome.compared:,} values, {outcome.different} differ, {outcome.seconds:.1f} s "
        text += f"{outcome.on_rtl:,} on RTL, {outcome.different_on_rtl} differ " if outcome.on_rtl else ""
        text += outcome.share
    return text + (f"{outcome.cause}: " if outcome.cause else "") + first_reason(outcome.message)[:230]


def show(outcomes: list[Outcome]) -> None:
    """Print counts."""
    for title, counts in (
        ("Outcomes", Counter(item.outcome for item in outcomes)),
        ("Causes", Counter(item.cause for item in outcomes if item.cause)),
    ):
        table = text_table(title, ("what", "networks"), right=("networks",), whole=("what",))
        for what, count in counts.most_common():
            table.add_row(what, str(count))
        wide_console().print(table)


if __name__ == "__main__":
    reach()
