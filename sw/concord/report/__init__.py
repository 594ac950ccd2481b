"""What became of every layer of a compiled network, as facts (JSON) and as a page (HTML)."""

from concord.report.analysis import analyse
from concord.report.facts import Analysis
from concord.report.page import render

__all__ = ["Analysis", "analyse", "render"]
