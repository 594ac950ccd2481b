"""Names that users type: what there is to say of one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher

#: Share of equal letters from which on a name is near another one.
_NEAR = 0.6


def unknown_name(what: str, names: Iterable[str], name: object, removed: Mapping[str, str] | None = None) -> ValueError:
    """The error for a name that is none of ``names``: it lists them, and names the nearest one if there is such.

    Parameters
    ----------
    what : str
        What is named, such as ``"board"``.
    names : iterable of str
        The names that exist. Of equally near ones the first is named.
    name : object
        What was typed.
    removed : mapping of str to str, optional
        Names that there were, and those that take their place: such a name gets no list.
    """
    if isinstance(name, str) and (successor := (removed or {}).get(name)) is not None:
        return ValueError(f"{what} {name!r} was removed: {successor} takes its place")
    known = list(names)
    guess = nearest_name(known, name) if isinstance(name, str) else None
    question = "" if guess is None else f"; did you mean {guess}?"
    return ValueError(f"{what} must be one of {', '.join(known)}, not {name!r}{question}")


def nearest_name(names: Iterable[str], name: str) -> str | None:
    """The name that is spelt most like ``name``, or else contains it; ``None`` if no name does."""
    typed, known = name.lower(), list(names)
    likeness = {candidate: SequenceMatcher(None, candidate.lower(), typed).ratio() for candidate in known}
    best = max(known, key=likeness.__getitem__, default=None)
    if best is not None and likeness[best] >= _NEAR:
        return best
    return next((candidate for candidate in known if typed and typed in candidate.lower()), None)
