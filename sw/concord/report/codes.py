"""The facts of a network on codes as one HTML page that needs nothing else."""

from __future__ import annotations

from concord.display import pages
from concord.display.pages import Figure, number
from concord.report.code_facts import IntegerFacts


def render(facts: IntegerFacts) -> str:
    """The page."""
    figures = [
        Figure(str(len(facts.operations)), "operations", "on codes alone"),
        Figure(str(facts.sites), "sites", "places that a table is looked up at"),
        Figure(str(len(facts.tables)), "tables", "equal ones are stored once"),
        Figure(number(facts.table_bytes), "bytes of tables", f"{facts.saved} saved by sharing"),
        Figure(number(facts.constant_bytes), "bytes of constants", "weights, biases and scales"),
    ]
    return pages.render("concord.report", "codes.html.j2", title=f"{facts.name} on codes", figures=figures, facts=facts)
