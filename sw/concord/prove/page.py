"""A proof as one HTML page that needs nothing else; its style is that of ``concord report``."""

from __future__ import annotations

from concord.display.pages import environment
from concord.prove.facts import Comparison, Count, Proof
from concord.prove.run import labels
from concord.report.page import number


def render(proof: Proof) -> str:
    """The page."""
    template = environment("concord.prove", "concord.report", number=number).get_template("prove.html.j2")
    rows = [(name, [one.layers.get(name, Count()) for one in proof.comparisons]) for name in proof.layers]
    return template.render(proof=proof, rows=rows, figures=_figures(proof), labels=labels())


def _figures(proof: Proof) -> list[tuple[str, str, str]]:
    """Value, label and explanation of the figures on top."""
    count, wrong = proof.count, [one for one in proof.comparisons if one.first is not None]
    names = ", ".join(one.label for one in wrong)
    verdict = ("NO", "identical", f"{names} differ" if len(wrong) > 1 else f"{names} differs")
    most = f"most of a sample: {max((_per_sample(one) for one in proof.comparisons), default=0):,}"
    return [
        verdict if wrong else ("yes", "identical", "every value, every bit"),
        (f"{count.values:,}", "values compared", most),
        (f"{count.different:,}", "different", "signs of zeros count; a NaN is a NaN"),
        (f"{len(proof.comparisons)}", "implementations", "each beside the emulator"),
        (f"{proof.samples:,}", "samples", proof.given),
    ]


def _per_sample(one: Comparison) -> int:
    return one.count.values // max(1, one.samples)
