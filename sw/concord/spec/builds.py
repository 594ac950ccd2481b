"""Records of routed bitstreams: what each was built from, and what place and route reached.

The records are in ``builds.toml`` beside this module, which ``python -m concord_rtl.build record`` writes.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from concord.spec.devices import ECP5_BITSTREAM, ICE40_BITSTREAM, ICE40_DEVICES

#: The file of the records.
FILE = Path(__file__).with_name("builds.toml")
#: Folder of the bitstreams that come with the package.
FOLDER = Path(__file__).parents[1] / "bitstreams"
#: Rates are given for multiples of this frequency.
RATE_STEP_HZ = 250_000
#: Clock that rates of a board are given for if no bitstream of its FPGA was routed.
UNROUTED_HZ = 50_000_000
#: Notes about a clock that no bitstream of today's design has on that board.
STALE, UNROUTED = "of an older netlist", "not routed here"

_HEAD = """\
# Records of routed bitstreams (concord.spec.builds), which `python -m concord_rtl.build record` writes.
# stale = true: the generator makes another design today (tests/rtl/flow/test_record.py).
"""


@dataclass(frozen=True, kw_only=True)
class Build:
    """Record of a routed bitstream.

    Parameters
    ----------
    board, preset, link : str
        Names of what was built.
    fingerprint : str
        Fingerprint of the configuration: 16 hexadecimal digits.
    design : str
        SHA-256 of the generated design without what depends on the clock (:mod:`concord_rtl.flow.record`).
    seed : int
        Seed of place and route.
    target_mhz, reached_mhz, mhz : float
        Target of place and route, clock that the paths allow, and clock of the bitstream.
    cells, ffs : int
        Logic cells, of an ECP5 LUTs, and flip-flops; 0 flip-flops where the report of the family does not count them.
    rams, multipliers : int
        Block RAMs and multipliers.
    short_chains : bool
        Whether carry chains were shortened before place and route.
    minutes : int
        Minutes of place and route on the clock, of all seeds; 0 where they were not measured.
    date : str
        Day of the build, ``YYYY-MM-DD``.
    bitstream : str
        SHA-256 of the file that the package has for it (:attr:`file`), unpacked; empty if it has none.
    stale : bool
        True if the generator makes another design today.
    """

    board: str
    preset: str
    link: str
    fingerprint: str
    design: str
    seed: int
    target_mhz: float
    reached_mhz: float
    mhz: float
    cells: int
    ffs: int
    rams: int
    multipliers: int
    short_chains: bool
    minutes: int
    date: str
    bitstream: str = ""
    stale: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Board, preset and link, of which there is one record."""
        return self.board, self.preset, self.link

    @property
    def file(self) -> Path:
        """The bitstream in the package, packed with xz, whether there is one or not."""
        ending = ICE40_BITSTREAM if self.board in ICE40_DEVICES else ECP5_BITSTREAM
        return FOLDER / f"{'-'.join(self.key)}.{ending}.xz"

    @property
    def rated_hz(self) -> int:
        """Clock that rates are given for: that of the bitstream, rounded down."""
        return int(self.mhz * 1e6 / RATE_STEP_HZ) * RATE_STEP_HZ


def read(file: Path = FILE) -> tuple[Build, ...]:
    """The records of a file, in its order."""
    return tuple(Build(**entry) for entry in tomllib.loads(file.read_text(encoding="utf-8"))["build"])


def text(builds: Iterable[Build]) -> str:
    """Contents of a file with these records."""
    entries = ([f"{name} = {json.dumps(value)}" for name, value in asdict(build).items()] for build in builds)
    return "\n".join([_HEAD, *("\n".join(["[[build]]", *lines, ""]) for lines in entries)])


def with_build(builds: Iterable[Build], build: Build) -> list[Build]:
    """Records with one more, in the place of that of the same board, preset and link."""
    rest = {other.key: other for other in builds}
    return list((rest | {build.key: build}).values())


#: The records.
BUILDS = read()


def build_of(board: str, preset: str, link: str | None = None) -> Build | None:
    """The record of a board, a preset and a link; without a link, the first one of the other two."""
    return next((b for b in BUILDS if (b.board, b.preset) == (board, preset) and link in (None, b.link)), None)


def rated_hz(board: str, preset: str) -> int:
    """Clock that rates of a preset on a board are given for, in hertz; :data:`UNROUTED_HZ` where there is no record."""
    build = build_of(board, preset)
    return UNROUTED_HZ if build is None else build.rated_hz


def clock_note(board: str, preset: str) -> str:
    """Note about the clock of a preset on a board: nothing, :data:`STALE` or :data:`UNROUTED`."""
    build = build_of(board, preset)
    return UNROUTED if build is None else STALE if build.stale else ""


def in_brackets(note: str) -> str:
    """A note in brackets, to follow a clock; nothing if there is none."""
    return f" ({note})" if note else ""
