"""Reports about every layer of a compiled network: formats, errors, saturation and cycles, as JSON and as HTML."""

from concord.report.analysis import analyse
from concord.report.facts import NetworkFacts
from concord.report.page import render

__all__ = ["NetworkFacts", "analyse", "render"]
