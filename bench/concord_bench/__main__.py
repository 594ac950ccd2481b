"""``python -m concord_bench``: the figures of the documentation."""

from __future__ import annotations

import os
from pathlib import Path

import click

from concord.cli.common import FILE, npu, readable, wide_console
from concord.spec.presets import PRESETS
from concord.utils.files import write_text


@click.command()
@npu
@click.option(
    "--output", default=Path("build/bench.json"), show_default=True, type=FILE, help="JSON file for the figures."
)
@click.option("--docs", type=FILE, help="Also write the figures as a page of the documentation.")
@click.option(
    "--only",
    multiple=True,
    metavar="PART",
    help="Measure only this part, such as networks or widths. The option can be repeated.",
)
@click.option("--log", type=FILE, help="Also put the figures into a log with a line for every version.")
@click.option("--picture", type=FILE, help="Also draw the figures of all versions in the log (PNG).")
@readable
def bench(
    preset: str, output: Path, docs: Path | None, only: tuple[str, ...], log: Path | None, picture: Path | None
) -> None:
    """Measure cycles, speed and sizes.

    These are the figures of the documentation, and take a few minutes.
    """
    from concord_bench import PARTS, Results, measure, releases

    if unknown := sorted(set(only) - set(PARTS)):
        raise ValueError(f"parts must be among {', '.join(PARTS)}, not {', '.join(unknown)}")
    if docs is not None and only:
        raise ValueError("--docs must be given without --only, for the page has all parts")
    if picture is not None and log is None:
        raise ValueError("--picture must be given with --log, as it shows what is in it")
    console = wide_console()
    results = Results(f"Preset {preset}, cycles from the counters of the simulated RTL")
    with console.status("measuring") as status:
        measure(PRESETS[preset], results, lambda what: status.update(f"measuring: {what}"), only or PARTS)
    results.save(output)
    page = results.markdown()
    if log is not None:
        known = releases.log(log, releases.of_results(results, preset))
        page += "\n" + releases.section(known, picture and Path(os.path.relpath(picture, (docs or log).parent)))
        if picture is not None:
            releases.draw(known, picture)
    if docs is not None:
        write_text(docs, page)
    results.show(console)
    console.print(f"written to {output}", soft_wrap=True)


if __name__ == "__main__":
    bench()
