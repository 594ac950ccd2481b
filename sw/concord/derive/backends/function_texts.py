"""Functions of the back ends that write Python, as the texts that derived files hold."""

from __future__ import annotations

import re
from importlib.resources import files

from concord.spec.formats import FLAG_BITS

_MARK = "# --- operations ---\n\n\n"


def text_behind(name: str, mark: str, package: str = __package__) -> str:
    """The text of a module after a mark."""
    return files(package).joinpath(name).read_text(encoding="utf-8").split(mark, 1)[1].strip()


def with_operations(library: str) -> str:
    """The functions of a library, with those of :mod:`concord.operations` in the place of their mark."""
    before, after = text_behind(f"{library}_functions.py", "# --- arithmetic ---\n").split(_MARK, 1)
    return f"{before}{text_behind(f'{library}_text.py', _MARK, 'concord.operations')}\n\n\n{after}"


def flag_text(library: str) -> str:
    """The functions of a library that raise flags."""
    return f"FLAGS = {FLAG_BITS!r}\n\n\n" + text_behind(f"{library}_flags.py", "# --- flags ---\n")


def defined(text: str) -> list[str]:
    """Names of the functions of a text."""
    return re.findall(r"^def (\w+)", text, re.MULTILINE)
