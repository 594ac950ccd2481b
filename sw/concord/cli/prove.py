"""``concord prove``."""

from __future__ import annotations

from pathlib import Path

import click

from concord.cli.common import EXISTING, FILE, POSITIVE, THING, TerminalConsole, arrays_of, echo, readable, wide_console
from concord.display.tables import text_table
from concord.prove.facts import Proof
from concord.utils.files import check_place, write_text

#: Exit status if anything differs.
STATUS = 1


@click.command()
@click.argument("net", type=THING)
@click.option(
    "-i",
    "--input",
    "inputs",
    type=EXISTING,
    help="npz file with a batch of samples for every input; random samples by default.",
)
@click.option("--samples", default=32, show_default=True, type=POSITIVE, help="Number of samples.")
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of random samples.")
@click.option(
    "--with",
    "only",
    metavar="NAMES",
    help="Compare only these of numpy,onnx,torch,reference,rtl; all that are installed by default.",
)
@click.option(
    "--rtl-samples",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Number of samples to run on the RTL and on the reference machine.",
)
@click.option(
    "-o",
    "--output",
    type=FILE,
    help="HTML page to write, with JSON beside it; by default prove.html in NET or beside it.",
)
@readable
def prove(
    net: Path, inputs: Path | None, samples: int, seed: int, only: str | None, rtl_samples: int, output: Path | None
) -> None:
    """Compare NET, a compiled network or an image, on all implementations with the emulator, value by value.

    Exit status 1 if anything differs.
    """
    from concord.prove import IMPLEMENTATIONS
    from concord.prove import prove as compare
    from concord.prove.page import render

    names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    if unknown := [name for name in names or () if name not in IMPLEMENTATIONS]:
        raise ValueError(f"--with must be of {', '.join(IMPLEMENTATIONS)}, not {unknown[0]!r}")
    page = output or (net / "prove.html" if net.is_dir() else net.with_suffix(".prove.html"))
    facts = page.with_suffix(".json")
    for path in (page, facts):
        check_place(path)
    arrays = None if inputs is None else arrays_of(inputs)
    with TerminalConsole(stderr=True).status("deriving") as status:
        proof = compare(
            net, arrays, samples=samples, machine_samples=rtl_samples, only=names, seed=seed, say=status.update
        )
    write_text(page, render(proof))
    write_text(facts, proof.to_json())
    show(proof)
    echo(f"{page}, {facts.name}")
    if proof.count.different:
        raise click.exceptions.Exit(STATUS)


def show(proof: Proof) -> None:
    """The table on the terminal."""
    console = wide_console()
    title = f"{proof.name}: {proof.samples} samples ({proof.given}), {proof.npu}"
    right = ("samples", "values compared", "different", "s")
    table = text_table(title, ("emulator and", *right, "by"), right=right, whole=("emulator and",))
    for comparison in proof.comparisons:
        count = comparison.count
        table.add_row(
            comparison.label,
            f"{comparison.samples:,}",
            f"{count.values:,}",
            f"{count.different:,}",
            f"{comparison.seconds:.1f}",
            comparison.version,
        )
    console.print(table)
    for comparison in proof.comparisons:
        if comparison.first is not None:
            console.print(f"{comparison.label} differs first in {comparison.first.text}", soft_wrap=True)
        for note in comparison.notes:
            console.print(f"{comparison.label}: {note}", soft_wrap=True)
    for name, why in proof.left_out.items():
        console.print(f"{labels_of(name)}: not run, {why}", soft_wrap=True)
    for line in proof.input_flags:
        console.print(line, soft_wrap=True)
    total = proof.count
    console.print(f"{total.values:,} values compared, {total.different:,} different")


def labels_of(name: str) -> str:
    """What people call an implementation."""
    from concord.prove.run import labels

    return labels()[name]
