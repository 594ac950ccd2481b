"""Names of values: identifiers of Python, made of names of layers."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection

#: What derived files call their own functions and modules.
RESERVED = frozenset(
    "add behind compute depthwise dot finite flags gather half host_exp host_log host_log_softmax host_mean host_root "
    "host_softmax host_sum inputs larger largest load mul note np onnx path quantise raised relu run shapes smaller "
    "sub t table torch w windows words".split()
)


def identifier(text: str) -> str:
    """A text as an identifier: lower case, other characters as underscores."""
    found = re.sub(r"\W+", "_", text.lower(), flags=re.ASCII).strip("_")
    if not found or found[0].isdigit() or keyword.iskeyword(found):
        found = f"layer_{found}".rstrip("_")
    return found


class Names:
    """Hands out names, each once, and none that derived files need for themselves, or that are ``taken``."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        self._counts: dict[str, int] = {}
        self._taken = RESERVED | set(dir(builtins)) - {"input"} | {*taken}

    def new(self, *words: str) -> str:
        """A name of these words; a number follows from the second time on."""
        stem = identifier("_".join(word for word in words if word))
        while True:
            self._counts[stem] = self._counts.get(stem, 0) + 1
            name = stem if self._counts[stem] == 1 else f"{stem}_{self._counts[stem]}"
            if name not in self._taken:
                self._taken |= {name}
                return name
