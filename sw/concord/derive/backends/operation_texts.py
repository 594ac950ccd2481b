"""Texts of :mod:`concord.operations` within those of the back ends that write Python."""

from __future__ import annotations

from importlib.resources import files

_MARK = "# --- operations ---\n\n\n"


def with_operations(text: str, name: str) -> str:
    """A text with that of the operations, in the file ``name``, in the place of its mark."""
    operations = files("concord.operations").joinpath(name).read_text(encoding="utf-8").split(_MARK, 1)[1]
    before, after = text.split(_MARK, 1)
    return f"{before}{operations}\n\n{after}"
