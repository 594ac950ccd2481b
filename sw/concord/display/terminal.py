"""Texts for terminals."""

from __future__ import annotations


def printable(text: str) -> str:
    """A text in which characters that are no text, as names in files of others may have them, are escaped."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
