"""Lists of reasons in messages."""

from __future__ import annotations

from collections.abc import Sequence

#: Reasons of a refusal that are written out.
MOST_REASONS = 20


def some_of(reasons: Sequence[str]) -> list[str]:
    """Reasons for a message: all of them, or the first ones and the number of the others."""
    if len(reasons) <= MOST_REASONS:
        return [*reasons]
    return [*reasons[:MOST_REASONS], f"and {len(reasons) - MOST_REASONS:,} more"]
