"""Errors for models that cannot be compiled."""

from __future__ import annotations

from collections.abc import Sequence

from concord.utils.reasons import some_of


class Refusal(Exception):
    """Reason for which one node cannot be taken, and what to do; the importer adds its name and collects them all."""

    def __init__(self, reason: str, remedy: str = "correct the model"):
        super().__init__(f"{reason}; {remedy}")


class UnsupportedModel(ValueError):
    """The model cannot be compiled.

    Parameters
    ----------
    name : str
        Of the model.
    reasons : sequence of str
        Everything that is in the way, with its place and what to do.
    """

    def __init__(self, name: str, reasons: Sequence[str]):
        self.reasons = list(reasons)
        super().__init__(f"{name} cannot be compiled:" + "".join(f"\n  {reason}" for reason in some_of(reasons)))
