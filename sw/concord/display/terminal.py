"""Texts for terminals and pages."""

from __future__ import annotations


def printable(text: str) -> str:
    """A text in which characters that are no text, as names in files of others may have them, are escaped."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def counted(count: int, things: str) -> str:
    """A count with thousands separated and what is counted, without its ``s`` if it is one."""
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"
