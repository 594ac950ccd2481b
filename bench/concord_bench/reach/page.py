"""The page of the documentation: counts by outcome and cause, what is refused and why, and every network."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from concord_bench.reach.outcomes import (
    CALIBRATED,
    CAUSES,
    COMPARED,
    LEAST_CORRELATION,
    MISSING,
    MOST_ERROR,
    OFF,
    OTHER,
    PROVED,
    REFUSED,
    RIGHT,
    Outcome,
    first_reason,
)

_DOCS = Path(__file__).parents[3] / "docs"
PAGE = _DOCS / "reach.md"
#: Outcomes of this version and of an earlier one, which the page compares.
DATA = (_DOCS / "data" / "reach.json", _DOCS / "data" / "reach-896d18d.json")
_INTRODUCTION = """\
# Networks that people bring

How much of what people bring compiles, runs and is right? This page answers with {count} networks. They are written for
this survey (`bench/concord_bench/reach/networks`), with random weights and small enough for the chips. Their structure
and their ONNX are what the tools of their makers leave: PyTorch with both exporters, Keras by way of tf2onnx,
scikit-learn by way of skl2onnx. {torch}

```sh
make reach                                         # all of them, and this page
python -m concord_bench.reach --only unet_resize   # a network
python -m concord_bench.reach --python OTHER/bin/python --json other.json   # the Concord of another interpreter
```

Every network is compiled for `ecp5-85f-256`, or `ecp5-85f` if that alone takes it, with formats
from {calibrated} samples: without a search (`--quick`), and with one where numbers overflow. {compared}
other samples run on the emulator and in ONNX Runtime.

* A network *runs* if all of its results are there and right. Each must be within {error:g} % of the size of the result,
  and what differs from sample to sample must correlate by {correlation:g} or more. Labels may differ for one sample in
  eight.
* Weights are random. So errors say whether the structure is right, and not what a trained network loses.
* For {proved} samples every value that the derived NumPy model has is compared with the emulator. All must be equal to
  the bit.
"""


_PART = """\
With [`--partition any`](compiler.md#what-the-host-computes) a network that is refused is compiled in part: the NPU gets
the largest run of layers that it takes, and the host computes what is in front and behind. The table has the share
of the multiply-accumulates that the NPU computes (`--any`)."""


def render(outcomes: Sequence[Outcome], before: Sequence[Outcome] = (), name: str = "") -> str:
    """The page.

    Parameters
    ----------
    outcomes : sequence of Outcome
        What became of every network.
    before : sequence of Outcome
        The same of an earlier version, for a column beside it.
    name : str
        Of that version.
    """
    absent = sum(item.outcome == MISSING for item in outcomes)
    torch = "" if not absent else f"{absent} need modules that were not installed, and are left out."
    text = _INTRODUCTION.format(
        count=len(outcomes), torch=torch, calibrated=CALIBRATED, compared=COMPARED, error=100 * MOST_ERROR,
        correlation=LEAST_CORRELATION, proved=PROVED,
    )  # fmt: skip
    parts = [text.replace(" \n", "\n"), "## Outcomes", ""]
    parts += _counts(outcomes, before, name)
    values = sum(item.compared for item in outcomes)
    different = sum(item.different for item in outcomes)
    parts += ["", f"{values:,} values of derived models were compared with the emulator, {different:,} differ."]
    parts += _on_rtl(outcomes)
    parts += _times(outcomes)
    refused = [item for item in outcomes if item.outcome not in (RIGHT, MISSING)]
    parts += ["", "## What is refused", "", "The first reason that the compiler gives.", ""]
    parts += ["| network | cause | message |", "|---|---|---|"]
    parts += [
        f"| `{item.name}` | {item.cause or item.outcome} | {_code(_short(first_reason(item.message)))} |"
        for item in refused
    ]
    parts += _in_part(outcomes)
    parts += ["", "## All networks", ""]
    for family in dict.fromkeys(item.family for item in outcomes):
        parts += ["", f"### {family[:1].upper()}{family[1:]}", ""]
        parts += _family([item for item in outcomes if item.family == family])
    return "\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


def _on_rtl(outcomes: Sequence[Outcome]) -> list[str]:
    """Sentence about the networks that ran on the RTL, if any did."""
    whole = [part for item in outcomes for part in (item, item.in_part) if part is not None and part.on_rtl]
    if not whole:
        return []
    values, different = sum(item.on_rtl for item in whole), sum(item.different_on_rtl for item in whole)
    text = f"A sample of {len(whole)} networks ran on the compiled RTL (`--rtl`): of {values:,} results and counters"
    return ["", f"{text} {different:,} differ from the emulator."]


def _times(outcomes: Sequence[Outcome]) -> list[str]:
    """Sentence about the time that compiling a network takes."""
    runs = [item for item in outcomes if item.outcome in (RIGHT, OFF)]
    if not runs:
        return []
    slowest = max(runs, key=lambda item: item.seconds)
    middle = median(item.seconds for item in runs)
    text = f"Half of the networks that run compile in {middle:.1f} s or less, and the slowest, `{slowest.name}`, in"
    return ["", f"{text} {slowest.seconds:.0f} s: with 32 samples on one processor, presets that refuse it included."]


def _in_part(outcomes: Sequence[Outcome]) -> list[str]:
    """Table of refused networks where the host may compute anything."""
    tried = [(item, item.in_part) for item in outcomes if item.in_part is not None]
    if not tried:
        return []
    lines = ["", "## What the host makes up for", "", _PART, "", "| network | outcome | on the NPU | error |"]
    lines += ["|---|---|---:|---:|"]
    for item, part in tried:
        share = re.search(r"\(([\d.]+) %\)", part.share)
        outcome = part.outcome if part.outcome != REFUSED else f"refused: {_code(_short(first_reason(part.message)))}"
        error = f"{100 * part.error:.2f} %" if part.errors else ""
        lines.append(f"| `{item.name}` | {outcome} | {f'{share[1]} %' if share else ''} | {error} |")
    return lines


def _counts(outcomes: Sequence[Outcome], before: Sequence[Outcome], name: str) -> list[str]:
    """A row for every outcome and cause."""
    columns = [_by_kind(outcomes)] if not before else [_by_kind(before), _by_kind(outcomes)]
    heads = ["networks"] if not before else [name, "now"]
    kinds = [RIGHT, OFF, *(cause for cause, _ in CAUSES), OTHER]
    kinds += sorted({kind for column in columns for kind in column} - set(kinds))
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(columns)}"]
    for kind in dict.fromkeys(kinds):
        if any(column[kind] for column in columns):
            label = kind if kind in (RIGHT, OFF, MISSING) else f"refused: {kind}"
            lines.append(f"| {label} | {' | '.join(str(column[kind]) for column in columns)} |")
    return lines


def _by_kind(outcomes: Iterable[Outcome]) -> Counter[str]:
    """Counts of networks by outcome, those that do not run by their cause."""
    return Counter(item.cause or item.outcome for item in outcomes)


def _family(outcomes: Sequence[Outcome]) -> list[str]:
    """A row for every network."""
    lines = ["| network | such as | outcome | error |", "|---|---|---|---:|"]
    for item in outcomes:
        outcome = item.outcome if item.outcome != REFUSED else f"refused: {item.cause}"
        error = f"{100 * item.error:.2f} %" if item.errors else ""
        lines.append(f"| `{item.name}` | {_cell(item.source)} | {outcome} | {error} |")
    return lines


def _short(text: str) -> str:
    """A message of at most about 240 characters."""
    return text if len(text) <= 240 else text[:240].rsplit(" ", 1)[0] + " ..."


def _cell(text: str) -> str:
    """Text of a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    """A message as code in a cell of a table."""
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`" if text else ""


def earlier(file: Path) -> list[Outcome]:
    """The outcomes in a JSON file."""
    return [Outcome.from_json(item) for item in json.loads(file.read_text())]
