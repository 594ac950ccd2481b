"""Check the message of a commit: ``python .ci/subject.py FILE``; the rule is in CONTRIBUTING.md."""

import re
import sys
from pathlib import Path

LONGEST = 72


def faults(message):
    """What is wrong with a message, one line each."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject, blank, *body = [*lines, "", ""]
    if len(subject) > LONGEST:
        yield f"the subject must have at most {LONGEST} characters, not {len(subject)}"
    if not re.match(r"[\w.*/, -]+: \S", subject):
        yield f"the subject must be 'area: what changed', not {subject!r}"
    if blank:
        yield f"the second line must be empty, not {blank!r}"
    if not "".join(body).strip():
        yield "the body must say why"


if __name__ == "__main__":
    found = list(faults(Path(sys.argv[1]).read_text(encoding="utf-8")))
    sys.exit("\n".join(found))
