"""The text: the reference of the Python language, which comes with Python (``pydoc_data.topics``, licence PSF-2.0)."""

from __future__ import annotations

import string

import numpy as np
from numpy.typing import NDArray

#: The printable characters of ASCII, and the end of a line.
ALPHABET = "\n" + "".join(sorted(string.printable.strip() + " "))
_PLAIN = {"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "..."}


def text() -> str:
    """All topics one after the other; typographic marks are those of ASCII, and other characters are left out."""
    from pydoc_data.topics import topics

    whole = "\n".join(topics[name].strip() for name in sorted(topics)) + "\n"
    for mark, plain in _PLAIN.items():
        whole = whole.replace(mark, plain)
    return "".join(character for character in whole if character in ALPHABET)


def encode(characters: str) -> NDArray[np.int64]:
    """Places of characters in the alphabet; ``ValueError`` if one is not in it."""
    if unknown := sorted(set(characters) - set(ALPHABET)):
        raise ValueError(f"characters must be printable ASCII or ends of lines, not {unknown[0]!r}")
    return np.array([ALPHABET.index(character) for character in characters], np.int64)


def decode(tokens: NDArray[np.int64]) -> str:
    """The characters at these places."""
    return "".join(ALPHABET[token] for token in tokens)
