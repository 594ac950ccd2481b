"""Records of finished builds (:mod:`concord.spec.builds`), and the hash of a design that a record has."""

from __future__ import annotations

import hashlib
import json
import lzma
import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from concord.spec.builds import Build
from concord_rtl.families.family import Family
from concord_rtl.flow.report import MHZ

#: Lines of RTLIL that change no circuit: comments, which have the version of the generator, and attributes that tell
#: where something comes from or what its values are called.
_SILENT = r"#.*|attribute \\(?:src|generator|top|enum_\w+) .*"
#: Ports that have no name get numbers that depend on all signals that were made before.
_NUMBERED = re.compile(r"\\port\$\d+\$\d+")


def design_digest(text: str, family: Family) -> str:
    """SHA-256 of a design in RTLIL, without what depends on the clock and without what changes no circuit."""
    settings, numbers = family.tuning.settings if family.tuning else (), dict[str, str]()
    clock = "".join(rf"|parameter \\{name} .*" for name in settings)
    circuit = re.sub(rf"(?m)^ *(?:{_SILENT}{clock})\n", "", text)
    circuit = _NUMBERED.sub(lambda match: numbers.setdefault(match[0], rf"\port{len(numbers)}"), circuit)
    return hashlib.sha256(circuit.encode()).hexdigest()


def keep_bitstream(folder: Path, build: Build) -> Build:
    """The record of the build in a folder with the hash of its bitstream, which is put into the package."""
    data = (folder / build.file.stem).with_stem("npu").read_bytes()
    build.file.parent.mkdir(exist_ok=True)
    build.file.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    return replace(build, bitstream=hashlib.sha256(data).hexdigest())


def record_of(folder: Path, family: Family, short_chains: bool) -> Build:
    """Record of the build in a folder.

    Raises
    ------
    ValueError
        If there is no finished build, or it misses its clock.
    """
    file = folder / "report.json"
    if not file.exists():
        raise ValueError(f"{folder} must have a finished build: {file.name} is not there")
    summary: dict[str, Any] = json.loads(file.read_text())
    if not summary["met"]:
        raise ValueError(f"{file} must be of a build that reaches its clock")
    seeds, seed = summary["seeds"], summary["seed"]
    used = {name: entry["used"] for name, entry in summary["utilisation"].items()}
    return Build(
        board=summary["board"],
        preset=summary["preset"],
        link=summary["link"],
        fingerprint=summary["fingerprint"],
        design=design_digest((folder / "npu.il").read_text(), family),
        seed=seed,
        target_mhz=seeds[str(seed)]["aim_mhz"],
        reached_mhz=seeds[str(seed)]["mhz"],
        mhz=round(summary["hz"] / MHZ, 2),
        cells=next(iter(used.values())),
        ffs=used.get("FF", 0),
        rams=used["EBR"],
        multipliers=used["DSP"],
        short_chains=short_chains,
        minutes=round(sum(run["seconds"] for run in seeds.values()) / 60),
        date=date.fromtimestamp(file.stat().st_mtime).isoformat(),
    )
