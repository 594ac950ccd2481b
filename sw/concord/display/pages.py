"""HTML pages from Jinja templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def environment(*packages: str, **filters: Callable[..., Any]) -> Environment:
    """Templates of ``packages``, the first one that has a file; text is escaped, and an unknown name is an error."""
    found = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= filters
    return found
