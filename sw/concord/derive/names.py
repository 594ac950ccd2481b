"""Names of values: identifiers of Python, made of names of layers."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection

_IN_DOCSTRING = str.maketrans({"\\": "_", '"': "'"})


def in_ascii(text: str) -> str:
    """A text as a part of an identifier: other characters than ASCII letters, digits and ``_`` as underscores.

    Python takes identifiers for the same that are one after NFKC normalisation, as a ligature and its letters are.
    """
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def in_docstring(text: str) -> str:
    """A text that may stand between three quotation marks: without control characters, backslashes and quotes."""
    return "".join(character if character.isprintable() else "_" for character in text).translate(_IN_DOCSTRING)


def identifier(text: str) -> str:
    """A text as an identifier: lower case, other characters as underscores."""
    name = re.sub(r"\W+", "_", text.lower(), flags=re.ASCII).strip("_")
    if not name or name[0].isdigit() or keyword.iskeyword(name):
        name = f"layer_{name}".rstrip("_")
    return name


class Names:
    """Hands out names, each once, and none of Python's own, or that are ``taken``.

    Parameters
    ----------
    taken : collection of str
    longest : int, optional
        Characters of a word that are kept: the last ones, from the beginning of a part on.
    """

    def __init__(self, taken: Collection[str] = (), longest: int | None = None) -> None:
        self._counts: dict[str, int] = {}
        self._longest = longest
        self._taken = set(dir(builtins)) - {"input"} | {*taken}

    def new(self, *words: str) -> str:
        """A name of these words; a number follows from the second time on."""
        stem = identifier("_".join(self._shortened(word) for word in words if word))
        while True:
            self._counts[stem] = self._counts.get(stem, 0) + 1
            name = stem if self._counts[stem] == 1 else f"{stem}_{self._counts[stem]}"
            if name not in self._taken:
                self._taken |= {name}
                return name

    def _shortened(self, word: str) -> str:
        name = identifier(word)
        if self._longest is None or len(name) <= self._longest:
            return word
        end = name[-self._longest :]
        return end.partition("_")[2] or end
