"""Records of routed bitstreams: the file, the clock that rates are given for, and what is said where there is none."""

import hashlib
import lzma
from dataclasses import replace

import pytest

from concord.spec import builds
from concord.spec.boards import BOARD_SPECS
from concord.spec.builds import BUILDS, STALE, UNROUTED, Build, build_of, clock_note, rated_hz, read, text, with_build
from concord.spec.devices import DEVICES
from concord.spec.presets import PRESETS

BUILD = Build(
    board="ulx3s-25f", preset="tiny", link="uart", fingerprint="0" * 16, design="0" * 64, seed=1, target_mhz=97.0,
    reached_mhz=96.07, mhz=95.83, cells=2, ffs=3, rams=4, multipliers=5, short_chains=False, minutes=6,
    date="2026-11-23",
)  # fmt: skip


def test_the_file_is_what_the_command_writes():
    assert builds.FILE.read_text(encoding="utf-8") == text(BUILDS)
    assert len({build.key for build in BUILDS}) == len(BUILDS)


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: f"{build.preset} on {build.board}")
def test_records_are_of_presets_of_their_boards(build):
    spec, device = BOARD_SPECS[build.board], DEVICES[build.board]
    assert build.preset in spec.presets and build.link in [link.name for link in spec.links]
    assert build.cells <= device.luts and build.rams <= device.rams and build.multipliers <= device.multipliers
    assert build.rated_hz / 1e6 <= build.mhz <= build.reached_mhz
    assert build.stale or build.fingerprint == f"{PRESETS[build.preset].fingerprint:016x}"


@pytest.mark.parametrize("build", [build for build in BUILDS if build.bitstream], ids=lambda build: build.file.stem)
def test_bitstreams_of_the_package_are_those_of_the_records(build):
    assert hashlib.sha256(lzma.decompress(build.file.read_bytes())).hexdigest() == build.bitstream


def test_there_are_no_other_bitstreams():
    assert {*builds.FOLDER.glob("*")} == {build.file for build in BUILDS if build.bitstream}


def test_a_record_takes_the_place_of_the_one_before(tmp_path):
    other = replace(BUILD, link="usb", stale=True)
    (tmp_path / "builds.toml").write_text(text(with_build([BUILD, other], again := replace(BUILD, seed=2))))
    assert read(tmp_path / "builds.toml") == (again, other)


@pytest.mark.parametrize(("mhz", "hz"), [(95.83, 95_750_000), (24.0, 24_000_000), (72.22, 72_000_000)])
def test_rates_are_for_the_clock_rounded_down(mhz, hz):
    assert replace(BUILD, mhz=mhz).rated_hz == hz


def test_notes_tell_clocks_that_no_bitstream_of_today_has(monkeypatch):
    monkeypatch.setattr(builds, "BUILDS", (BUILD, replace(BUILD, preset="up5k", stale=True)))
    assert (clock_note("ulx3s-25f", "tiny"), rated_hz("ulx3s-25f", "tiny")) == ("", 95_750_000)
    assert clock_note("ulx3s-25f", "up5k") == STALE
    assert (clock_note("icebreaker", "up5k"), rated_hz("icebreaker", "up5k")) == (UNROUTED, builds.UNROUTED_HZ)
    assert build_of("ulx3s-25f", "tiny", "usb") is None and build_of("ulx3s-25f", "tiny", "uart") is BUILD


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: f"{build.preset} on {build.board}")
def test_presets_and_boards_have_the_clocks_of_their_records(build):
    spec = BOARD_SPECS[build.board]
    assert PRESETS[build.preset].clock_hz == build.rated_hz
    assert build.preset != spec.preset or spec.clock_hz == build.rated_hz
