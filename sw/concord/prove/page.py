"""A proof as one HTML page that needs nothing else."""

from __future__ import annotations

from concord.display import pages
from concord.display.pages import Figure, number
from concord.prove.facts import Comparison, Count, Proof
from concord.prove.run import labels


def render(proof: Proof) -> str:
    """The page."""
    return pages.render(
        "concord.prove",
        "prove.html.j2",
        title=f"{proof.name}: identical?",
        figures=_figures(proof),
        proof=proof,
        rows=[(name, [pair.layers.get(name, Count()) for pair in proof.comparisons]) for name in proof.layers],
        labels=labels(),
    )


def _figures(proof: Proof) -> list[Figure]:
    count, wrong = proof.count, [pair for pair in proof.comparisons if pair.first is not None]
    names = ", ".join(pair.label for pair in wrong)
    verdict = Figure("NO", "identical", f"{names} differ" if len(wrong) > 1 else f"{names} differs")
    most = max((_per_sample(pair) for pair in proof.comparisons), default=0)
    return [
        verdict if wrong else Figure("yes", "identical", "every value, every bit"),
        Figure(number(count.values), "values compared", f"most of a sample: {most:,}"),
        Figure(number(count.different), "different", "signs of zeros count; a NaN is a NaN"),
        Figure(number(len(proof.comparisons)), "implementations", "each beside the emulator"),
        Figure(number(proof.samples), "samples", proof.source),
    ]


def _per_sample(pair: Comparison) -> int:
    return pair.count.values // max(1, pair.samples)
