import random

import numpy as np
import pytest

from concord_rtl.families import FAMILIES
from concord_rtl.flow.bram import LEAST_WORDS, BlockRams, Store
from support.flow_design import random_store

ECP5, ICE40 = FAMILIES["ecp5"].geometry, FAMILIES["ice40"].geometry


def blank(family, blocks):
    """Text of a design whose block RAMs are zero, with other things around them."""
    if family == "ecp5":
        lines = (" ".join(["000"] * 8) + "\n") * 256
        rams = "".join(f".bram_init {k}\n{lines}\n" for k in range(blocks))
        return f".device LFE5U-25F\n\n.tile R1C1:CIB\narc: A B\n\n{rams}.tile_group X\n"
    lines = ("0" * 64 + "\n") * 16
    return ".device up5k\n" + "".join(f".ram_data 6 {k}\n{lines}\n" for k in range(blocks)) + ".sym 1 top\n"


def shapes(geometry):
    """Slices of each data width: (width, positions of word a, bit b)."""
    slices = list(geometry.slices())
    for width, used in geometry.shapes:
        depth = geometry.unit * 0 + (2048 * used if geometry is ECP5 else 4096) // width
        count = depth // geometry.run * width
        own, slices = slices[:count], slices[count:]
        yield width, np.concatenate([np.array(own[k : k + width]) for k in range(0, count, width)], axis=1).T
    assert not slices


@pytest.mark.parametrize("geometry", [ECP5, ICE40], ids=["ecp5", "ice40"])
def test_a_shape_uses_every_bit_once(geometry):
    for width, positions in shapes(geometry):
        assert positions.shape[1] == width
        assert len(np.unique(positions)) == positions.size


@pytest.mark.parametrize("family", FAMILIES)
def test_text_survives(family):
    rng = random.Random(1)
    rams = BlockRams(FAMILIES[family].geometry, blank(family, 3))
    assert rams.text() == blank(family, 3)
    rams.bits[:] = np.array(rng.choices([0, 1], k=rams.bits.size), dtype=np.uint8).reshape(rams.bits.shape)
    again = BlockRams(FAMILIES[family].geometry, rams.text())
    assert (again.bits == rams.bits).all()
    assert len(again.text()) == len(blank(family, 3))


@pytest.mark.parametrize("family", FAMILIES)
def test_contents_are_found_and_replaced_in_every_shape(family):
    geometry = FAMILIES[family].geometry
    rams = BlockRams(FAMILIES[family].geometry, blank(family, len(geometry.shapes)))
    old, new = [], []
    for block, (width, positions) in enumerate(shapes(geometry)):
        store = random_store(f"w{width}", width, len(positions), "old")
        for word, place in zip(store.words, positions, strict=True):
            rams.bits[block, place] = [word >> bit & 1 for bit in range(width)]
        old.append(store)
        new.append(random_store(f"w{width}", width, len(positions), "new"))
    layout = rams.locate(old)
    assert not layout.missing
    assert layout.read(rams) == old
    layout.write(rams, new)
    assert layout.read(BlockRams(FAMILIES[family].geometry, rams.text())) == new


def test_a_memory_outside_of_block_ram_is_named():
    stores = [
        random_store("here", 9, 2048, 0),
        random_store("gone", 9, 2048, 0),
        random_store("small", 8, LEAST_WORDS - 1, 0),
    ]
    rams = BlockRams(ECP5, blank("ecp5", 1))
    width, positions = list(shapes(ECP5))[3]
    assert width == 9
    for word, place in zip(stores[0].words, positions, strict=True):
        rams.bits[0, place] = [word >> bit & 1 for bit in range(width)]
    assert rams.locate(stores).missing == {"gone", "small"}


def test_contents_that_repeat_are_refused():
    rams = BlockRams(ECP5, blank("ecp5", 1))
    with pytest.raises(ValueError, match="contents of zeros must be pseudo-random"):
        rams.locate([Store("zeros", 8, [0] * 512)])


def test_other_memories_are_refused():
    rams = BlockRams(ECP5, blank("ecp5", 1))
    layout = rams.locate([random_store("a", 8, 512, 0)])
    with pytest.raises(ValueError, match=r"memories must be \[\('a', 8\)\], not \[\('a', 9\)\]"):
        layout.write(rams, [random_store("a", 9, 512, 0)])
