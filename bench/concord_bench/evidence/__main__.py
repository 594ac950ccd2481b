"""``python -m concord_bench.evidence``: training in block floating point beside float32."""

from __future__ import annotations

from pathlib import Path

import click

from concord.cli.common import FILE, FOLDER, readable, wide_console
from concord.utils.files import write_bytes, write_text

#: File of the results unless another one is given.
RESULTS = Path("build/training.json")
#: Name of the page.
PAGE = "training-evidence.md"


@click.command(name="training-evidence")
@click.option("--minutes", type=float, default=10.0, show_default=True, help="Time after which no new run begins.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Run only this experiment, such as digits-mlp. The option can be repeated.",
)
@click.option("--results", type=FILE, default=RESULTS, show_default=True, help="File that keeps the results.")
@click.option("--docs", type=FOLDER, help=f"Also write {PAGE}, its pictures and data/training.json in this folder.")
@readable
def training_evidence(minutes: float, only: tuple[str, ...], results: Path, docs: Path | None) -> None:
    """Train networks in block floating point and in float32, several seeds each, and keep every result.

    What is there already is not run again: a run that was stopped goes on with the next result that is missing.
    `--minutes 0` only writes the page.
    """
    from concord_bench.evidence import plan
    from concord_bench.evidence.page import page
    from concord_bench.evidence.pictures import pictures
    from concord_bench.evidence.runs import work
    from concord_bench.evidence.store import Store

    names = [study.name for study in plan.STUDIES]
    if unknown := sorted(set(only) - set(names)):
        raise ValueError(f"experiments must be among {', '.join(names)}, not {', '.join(unknown)}")
    console, store = wide_console(), Store(results)
    missing = work(
        plan.STUDIES, store, minutes, lambda text: console.print(text, soft_wrap=True, highlight=False), only
    )
    for name, reason in missing.items():
        console.print(f"{name}: not run, {reason}", soft_wrap=True)
    if docs is not None:
        for name, picture in pictures(plan.STUDIES, store).items():
            (docs / name).parent.mkdir(parents=True, exist_ok=True)
            write_bytes(docs / name, picture)
        (docs / "data").mkdir(parents=True, exist_ok=True)
        write_text(docs / "data" / "training.json", store.text)
        write_text(docs / PAGE, page(plan.STUDIES, store))
        console.print(f"written to {docs / PAGE}", soft_wrap=True)


if __name__ == "__main__":
    training_evidence()
