"""``concord prove``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from concord.cli.common import (
    EXISTING,
    FILE,
    POSITIVE,
    THING,
    TerminalConsole,
    arrays_of,
    check_page,
    echo,
    gathered,
    inputs_from,
    readable,
    wide_console,
)
from concord.cli.options import CodesOptions, compile_options
from concord.display.tables import text_table
from concord.prove.facts import Proof
from concord.utils.files import write_text

if TYPE_CHECKING:
    from concord.integer import IntegerNetwork

#: Exit status if anything differs.
STATUS = 1


class ProofSamples(NamedTuple):
    """File of samples, or how many are random and their seed."""

    inputs: Path | None
    samples: int
    seed: int


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
    help="Compare only these of numpy,onnx,torch,c,reference,rtl; by default all that are installed, but for c, which "
    "is compiled.",
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
@click.option(
    "--exact",
    is_flag=True,
    help="NET is the ONNX or TensorFlow Lite file of a quantised network, or its folder; C of it is compared with the "
    "network on codes.",
)
@compile_options("rounding")
@readable
@gathered(batch=ProofSamples, codes=CodesOptions)
def prove(
    net: Path,
    batch: ProofSamples,
    only: str | None,
    rtl_samples: int,
    output: Path | None,
    codes: CodesOptions,
) -> None:
    """Compare NET, a compiled network or an image, on all implementations with the emulator, value by value.

    With --with c --exact, C of a quantised network is compared with its codes; without --exact, of a folder with codes
    on an NPU, with those that the NPU makes. Exit status 1 if anything differs.
    """
    from concord.cli.exact import software_at

    if (network := software_at(net, codes)) is not None:
        if only != "c" or output is not None:
            raise ValueError("a network on codes must be given with --with c, and without --output")
        _prove_exactly(network, batch)
        return
    from concord.prove import IMPLEMENTATIONS
    from concord.prove import prove as compare
    from concord.prove.page import render

    names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    if unknown := [name for name in names or () if name not in IMPLEMENTATIONS]:
        raise ValueError(f"--with must be of {', '.join(IMPLEMENTATIONS)}, not {unknown[0]!r}")
    page = output or (net / "prove.html" if net.is_dir() else net.with_suffix(".prove.html"))
    facts = check_page(page)
    arrays = None if batch.inputs is None else arrays_of(batch.inputs)
    with TerminalConsole(stderr=True).status("deriving") as status:
        proof = compare(
            net,
            arrays,
            samples=batch.samples,
            machine_samples=rtl_samples,
            only=names,
            seed=batch.seed,
            say=status.update,
        )
    write_text(page, render(proof))
    write_text(facts, proof.to_json())
    show(proof)
    echo(f"{page}, {facts.name}")
    if proof.count.different:
        raise click.exceptions.Exit(STATUS)


def _prove_exactly(network: IntegerNetwork, batch: ProofSamples) -> None:
    """Compare C of a quantised network with the network on codes."""
    from concord.prove.exact import prove_exact

    arrays = None if batch.inputs is None else inputs_from(batch.inputs, [*network.graph.inputs])
    proof = prove_exact(network, arrays, samples=batch.samples, seed=batch.seed)
    for name, count in proof.different.items():
        if count:
            echo(f"{name}: {count:,} of {proof.compared[name]:,} codes are different")
    if proof.flags:
        echo(f"{proof.flags} samples have other flags")
    echo(
        f"{proof.name}: {proof.samples} samples, {proof.overflows} of them with accumulators of too many bits, "
        f"{len(proof.compared)} tensors, {sum(proof.compared.values()):,} codes compared, "
        f"{sum(proof.different.values()):,} different"
    )
    if not proof.same:
        raise click.exceptions.Exit(STATUS)


def show(proof: Proof) -> None:
    """The table on the terminal, what differs first, and what was not compared."""
    from concord.prove.run import labels

    title = f"{proof.name}: {proof.samples} samples ({proof.source}), {proof.npu}"
    right = ("samples", "values compared", "different", "s")
    table = text_table(title, ("emulator and", *right, "by"), right=right, whole=("emulator and",))
    for comparison in proof.comparisons:
        count = comparison.count
        figures = (f"{n:,}" for n in (comparison.samples, count.values, count.different))
        table.add_row(comparison.label, *figures, f"{comparison.seconds:.1f}", comparison.version)
    wide_console().print(table)
    for comparison in proof.comparisons:
        if comparison.first is not None:
            echo(f"{comparison.label} differs first in {comparison.first.text}")
        for note in comparison.notes:
            echo(f"{comparison.label}: {note}")
    for name, why in proof.left_out.items():
        echo(f"{labels()[name]}: not run, {why}")
    for line in proof.input_flags:
        echo(line)
    echo(f"{proof.count.values:,} values compared, {proof.count.different:,} different")
