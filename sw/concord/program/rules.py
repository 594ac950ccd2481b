"""Rules that programs break, with messages about them (:mod:`concord.spec.rules`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from concord.spec.rules import ProgramRule

#: A rule, whether a chain keeps it, and the message if it does not.
Check = tuple[ProgramRule, bool, str]


class Broken(NamedTuple):
    """A rule that a chain breaks.

    Parameters
    ----------
    rule : ProgramRule
        The rule.
    message : str
        How the chain breaks it, as the end of a sentence about the chain.
    """

    rule: ProgramRule
    message: str


def broken_of(checks: Iterable[Check]) -> list[Broken]:
    """The rules among checks that a chain breaks."""
    return [Broken(rule, message) for rule, kept, message in checks if not kept]
