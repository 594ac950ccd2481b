"""Multipliers and memories of configurations, against builds; and what a board has too few of."""

from dataclasses import replace

import pytest

from concord.spec.blocks import banked_rams_of, blocks_of, rams_of, shortage, shortages
from concord.spec.presets import (
    ECP5_25F,
    ECP5_85F,
    ECP5_85F_256,
    PRESETS,
    TINY,
    UP5K,
    with_mantissas,
)

#: Multipliers, block RAMs and single-port RAMs that synthesis of the whole design made.
BUILT = {
    ECP5_25F: (20, 56, 0),
    ECP5_85F: (140, 195, 0),
    ECP5_85F_256: (136, 194, 0),
    TINY: (12, 13, 0),
    UP5K: (7, 28, 4),
    UP5K.replace(name="l2", lanes=2): (5, 28, 4),
    UP5K.replace(name="l1", lanes=1): (5, 28, 2),
    with_mantissas(UP5K, 6): (7, 28, 4),
    with_mantissas(UP5K.replace(name="l2", lanes=2), 8): (5, 28, 4),
    UP5K.replace(name="n8", native=8, matrix_depth=4096, narrow_depth=128, wide_depth=128): (7, 36, 4),
}


def test_codes_of_accumulators_take_two_multipliers_a_lane():
    without = blocks_of(ECP5_85F.replace(code_scaling=False))
    assert blocks_of(ECP5_85F) == replace(without, multipliers=without.multipliers + 2 * ECP5_85F.mfu_lanes)
    assert not shortage(ECP5_85F, "ulx3s-85f")


@pytest.mark.parametrize("config", BUILT, ids=lambda config: config.name)
def test_builds(config):
    found = blocks_of(config)
    assert (found.multipliers, found.rams, found.single_port_rams) == BUILT[config]


def test_block_rams_of_memories():
    """On iCE40 all of one shape; on ECP5 in banks, of which the last one may be logic."""
    assert [rams_of(*shape) for shape in ((16, 256), (8, 512), (8, 1024), (64, 256))] == [1, 1, 2, 4]
    shapes = {(36, 512): 1, (37, 512): 2, (18, 1024): 1, (68, 2560): 10, (1, 16384): 1, (132, 1040): 8, (36, 640): 2}
    assert {shape: banked_rams_of(*shape) for shape in shapes} == shapes


def test_every_preset_fits_its_boards():
    assert {name: shortages(config) for name, config in PRESETS.items()} == {name: [] for name in PRESETS}


def test_shortage():
    """Rows that are too wide for the single-port RAMs, or too many, and block RAMs."""
    eight = with_mantissas(UP5K, 8)
    (line,) = shortages(eight)
    assert line == (
        "does not fit on icebreaker: up5k-m8 needs 316 block RAMs of 30, as its matrix memory does not fit into the "
        "single-port RAMs: these hold 32,768 rows of 32 bits, and it has 32,768 of 36"
    )
    assert "it has 65,536 of 32" in shortage(UP5K.replace(matrix_depth=16384), "icebreaker")
    assert shortage(ECP5_85F, "ulx3s-25f") == "ecp5-85f needs 140 multipliers of 28 and 195 block RAMs of 56"
    assert shortages(with_mantissas(ECP5_85F, 12)) == [
        "does not fit on ulx3s-85f: ecp5-85f-m12 needs 263 block RAMs of 208"
    ]
    assert shortage(ECP5_85F, "icebreaker") == ""  # nothing is known of that
