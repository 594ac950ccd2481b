"""Texts of C that every file has: comments, literals, arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Keywords of C99.
C_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool"
).split()
#: Those of C++, which may include a header, beside them.
CPP_WORDS = (
    "and catch class delete explicit export false friend mutable namespace new not operator or private protected "
    "public template this throw true try typename using virtual xor"
).split()
_NUMBERS_A_LINE = 20


def comment(text: str) -> str:
    """A text that may stand in a comment."""
    return "".join(c if " " <= c <= "~" else "_" for c in text).replace("*/", "* /").replace("/*", "/ *")


def literal(text: str) -> str:
    """A text as a literal of C; other characters than printable ASCII ones as underscores."""
    plain = "".join(c if " " <= c <= "~" else "_" for c in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?") + '"'


def sum_text(terms: Iterable[str]) -> str:
    """The sum of some terms, of which those that are empty or 0 are left out."""
    return " + ".join(term for term in terms if term not in ("", "0")) or "0"


def array(kind: str, name: str, rows: Iterable[str], attribute: str = "") -> str:
    """A constant array, a row a line; ``attribute`` is a macro after its name."""
    body = "".join(f"    {row},\n" for row in rows)
    return f"static const {kind} {name}[]{' ' * bool(attribute)}{attribute} = {{\n{body}}};"


def number_array(kind: str, name: str, values: Sequence[int], attribute: str = "") -> str:
    """A constant array of integers."""
    starts = range(0, len(values), _NUMBERS_A_LINE)
    return array(kind, name, [", ".join(map(str, values[k : k + _NUMBERS_A_LINE])) for k in starts], attribute)
