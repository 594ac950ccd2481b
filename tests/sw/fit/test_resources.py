"""Estimates of logic and clock, against builds."""

import pytest

from concord.fit import resources
from concord.fit.resources import (
    ECP5_BUILDS,
    ICE40_BUILDS,
    ICE40_LUT_ERROR,
    SHORT_CHAINS,
    built_luts,
    greatest_errors,
    use_of,
)
from concord.spec import docs
from concord.spec.builds import build_of
from concord.spec.devices import DEVICES
from concord.spec.presets import ECP5_25F, ECP5_85F, ECP5_85F_256, PRESETS, TINY, UP5K

#: Greatest errors of the estimates: of LUTs, and of the clock.
LUT_ERROR, CLOCK_ERROR = 0.05, 0.2
#: LUTs of ``tiny`` on an LFE5U-25F. It is no preset of a board, so that it has no record.
TINY_LUTS = 15_590


@pytest.mark.parametrize("build", ECP5_BUILDS, ids=lambda build: build.preset)
def test_builds(build):
    use = use_of(PRESETS[build.preset])
    assert use.luts == pytest.approx(built_luts(build), rel=LUT_ERROR)
    assert use.clock_mhz == pytest.approx(build.reached_mhz, rel=CLOCK_ERROR)


def test_a_preset_that_nothing_was_fitted_to():
    assert use_of(TINY).luts == pytest.approx(TINY_LUTS, rel=LUT_ERROR)


def test_the_greatest_errors_are_those_of_the_records(monkeypatch):
    luts, clock = greatest_errors()
    assert 0 < luts <= LUT_ERROR and 0 < clock <= CLOCK_ERROR
    (small,) = (build for build in ECP5_BUILDS if build.preset == "ecp5-25f")
    monkeypatch.setattr(resources, "ECP5_BUILDS", [small] * 2)
    monkeypatch.setattr(resources, "_clock_of", lambda luts: 1.1 * small.reached_mhz)
    assert greatest_errors() == pytest.approx((abs(use_of(ECP5_25F).luts / built_luts(small) - 1), 0.1))


def test_the_page_has_every_build():
    rows = {build.preset: (build.cells, 1 - SHORT_CHAINS if build.short_chains else 1) for build in ECP5_BUILDS}
    page = (docs.ROOT / "fit.md").read_text(encoding="utf-8")
    for name, (cells, share) in {**rows, "tiny": (TINY_LUTS, 1)}.items():
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{name}`") and line.count("|") == 4)
        assert row.endswith(f"| {cells:,} | {share * use_of(PRESETS[name]).luts:,.0f} |")


def luts_of(luts, carries, rams=0):
    """LUTs of cells as synthesis counts them."""
    return luts + 2 * carries + 6 * rams


@pytest.mark.parametrize(("lanes", "cells"), [(2, (9_206, 1_292, 63)), (4, (13_513, 1_984, 87))])
def test_the_integer_engine_takes_logic(lanes, cells):
    """As docs/training-npu.md has it."""
    config = ECP5_85F.replace(mfu_lanes=lanes)
    assert use_of(config).luts - use_of(config.replace(integer_chains=False)).luts == pytest.approx(
        luts_of(*cells), rel=0.01
    )


def test_ice40_builds():
    record = build_of("icebreaker", "up5k")
    for lanes, act, wgt, cells, mhz in ((4, 8, 7, record.cells, record.reached_mhz), *ICE40_BUILDS):
        config = UP5K.replace(lanes=lanes, act_mant=act, wgt_mant=wgt)
        assert use_of(config).luts == pytest.approx(cells, rel=ICE40_LUT_ERROR)
        assert mhz >= use_of(UP5K).clock_mhz == UP5K.clock_hz / 1e6


def test_presets_fit_their_devices():
    assert use_of(ECP5_85F).fits(DEVICES["ulx3s-85f"]) and use_of(ECP5_25F).fits(DEVICES["ulx3s-25f"])
    assert not use_of(ECP5_85F).fits(DEVICES["ulx3s-25f"]) and use_of(UP5K).fits(DEVICES["icebreaker"])


def test_what_cannot_be_routed_does_not_fit():
    """The device has LUTs for eight lanes of the multifunction units, but not the wires."""
    eight = use_of(ECP5_85F_256.replace(mfu_lanes=8))
    assert eight.luts < 0.8 * DEVICES["ulx3s-85f"].luts and not eight.fits(DEVICES["ulx3s-85f"])
    assert all(use_of(PRESETS[name]).fits(DEVICES["ulx3s-85f"]) for name in ("ecp5-85f-256", "ecp5-85f"))


def test_registers_of_windows_take_logic():
    plain = ECP5_85F_256.replace(window_taps=0)
    assert use_of(plain.replace(window_taps=9)).luts - use_of(plain).luts == pytest.approx(1300, rel=0.01)


def test_a_few_words_of_memory_are_logic():
    plain, more = (use_of(ECP5_85F.replace(matrix_depth=depth, integer_chains=False)) for depth in (1024, 1040))
    assert plain.blocks == more.blocks and more.luts - plain.luts == 16 * 6 * 17  # rows of 68 bits
