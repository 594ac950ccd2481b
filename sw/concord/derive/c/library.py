"""Functions of C that files hold: those that a text calls, and what these call."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

_FILES = ("arithmetic.c", "windows.c", "real.c", "binary32.c", "codes.c", "fixed_point.c", "wide.c")
#: Types that functions of data movement are there for: of what they write and of what they read.
_TYPES = (("int8", "int8"), ("int16", "int8"), ("int16", "int16"), ("uint16", "uint16"))
_NAME = re.compile(r"^(?:static inline [\w ]+?\**|\} )(\w+)[(;]", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_WORD, _CALL = re.compile(r"[A-Za-z_]\w*"), re.compile(r"[A-Za-z_]\w*(?=\()")


@cache
def functions() -> dict[str, str]:
    """Texts of all functions and types by name, in an order in which each stands after those that it calls."""
    texts: dict[str, str] = {}
    for file in _FILES:
        whole = files(__package__).joinpath("library", file).read_text(encoding="utf-8")
        for part in whole.split("\n\n\n")[1:]:
            for text in _of_types(part.strip()):
                match = _NAME.search(text)
                assert match is not None, text
                texts[match[1]] = text
    return texts


def _of_types(text: str) -> Iterable[str]:
    if "TYPE" not in text:
        yield text
        return
    for into, kind in _TYPES:
        yield text.replace("INTO", into).replace("TYPE", kind)


def called(text: str) -> list[str]:
    """Texts of the functions that a text needs, in order."""
    known, needed, waiting = functions(), set[str](), [text]
    types = {name for name, part in known.items() if part.endswith(f"}} {name};")}
    while waiting:
        part = _COMMENT.sub("", waiting.pop())
        new = (types.intersection(_WORD.findall(part)) | known.keys() & _CALL.findall(part)) - needed
        needed |= new
        waiting += [known[name] for name in new]
    return [part for name, part in known.items() if name in needed]
