"""How a case may end: with a result, or with a message that a person can read."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: What Python and NumPy say, and no person wants to read.
_PHRASES = (
    r"Traceback", r"object has no attribute", r"NoneType", r"is not subscriptable", r"unhashable",
    r"unsupported operand", r"out of bounds for axis", r"cannot reshape array", r"could not be broadcast",
    r"index out of range", r"takes \d+ positional", r"unexpected keyword", r"values to unpack", r"invalid literal for",
    r"Unable to allocate", r"object is not callable", r"missing \d+ required", r"Errno", r"<class ",
    r"setting an array element", r"cannot unpack", r"must be real number, not", r"has no len\(\)", r"to C long",
    r"too large to convert", r"codec can't", r"internal error", r"^Error: '?[\w.]+'?$",
)  # fmt: skip
_INTERNAL = re.compile("|".join(_PHRASES), re.MULTILINE)
_LONGEST = 6000


@dataclass(frozen=True)
class End:
    """What came of a case.

    Parameters
    ----------
    kind : str
        ``result``, ``message`` or, for what is a fault, ``finding``.
    text : str
        The message, or what is wrong.
    """

    kind: str
    text: str = ""


def of_command(code: int, output: str, error: BaseException | None) -> End:
    """The end of a command from its exit code, what it has printed, and what it has raised."""
    if error is not None and not isinstance(error, SystemExit):
        import traceback

        return End("finding", "".join(traceback.format_exception(error))[-3000:])
    if code == 0:
        return End("result")
    if code not in (1, 2, 3):
        return End("finding", f"exit status {code}\n{output[-2000:]}")
    return of_message(output)


def of_message(text: str) -> End:
    """The end with a message, which must be there and readable."""
    if not text.strip():
        return End("finding", "no message")
    if found := _INTERNAL.search(text):
        return End("finding", f"a message with {found[0]!r}:\n{text[-2000:]}")
    if len(text) > _LONGEST:
        return End("finding", f"a message of {len(text)} characters:\n{text[:500]}")
    if any(not character.isprintable() and character != "\n" for character in text):
        return End("finding", f"a message with characters that are not printable:\n{text[:2000]!r}")
    return End("message", text)
