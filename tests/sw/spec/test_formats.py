"""Parameters of the number formats."""

import numpy as np
import pytest

from concord.golden import binary16
from concord.spec import formats
from concord.spec.formats import MXINT8, BlockFormat


@pytest.mark.parametrize("mant, q_max, headroom", [(3, 3, 1), (5, 15, 3), (8, 127, 6), (16, 32767, 14)])
def test_derived_values(mant, q_max, headroom):
    fmt = BlockFormat(mant, 8, -15, 4)
    assert (fmt.q_max, fmt.headroom) == (q_max, headroom)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((2, 8, -15, 0), r"mant must be in 3\.\.16, not 2"),
        ((17, 8, -15, 0), r"mant must be in 3\.\.16, not 17"),
        ((8, 0, -15, 0), "block must be at least 1, not 0"),
        ((8, 8, 1, 0), "exp_min must be at most exp_max=0, not 1"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        BlockFormat(*arguments)


def test_layout_of_a_block():
    fmt = BlockFormat(8, 4, -15, 0)
    signed, biased = fmt.layout(8), fmt.layout(4, bias=-15)
    assert signed.width == 40 and signed["exp"].signed and signed["mant"].count == 4
    assert not biased["exp"].signed and biased.width == 36
    assert signed.unpack(signed.pack(mant=[-127, 0, 1, 127], exp=-15)) == {"mant": [-127, 0, 1, 127], "exp": -15}


def test_constants_of_binary16_agree_with_numpy():
    info = np.finfo(np.float16)
    assert formats.BINARY16_MAX == info.max and binary16.decode(formats.BINARY16_MAX_BITS) == info.max
    assert np.isinf(binary16.decode(formats.BINARY16_INF)) and np.isnan(binary16.decode(formats.BINARY16_NAN))
    assert formats.BINARY16_EXP_MIN == info.minexp and formats.BINARY16_EXP_MAX == info.maxexp - 1
    assert formats.BINARY16_PRECISION == info.nmant + 1 and formats.BINARY16_WIDTH == info.bits


def test_mxint8_covers_the_scale_byte():
    """Scales 2**-127 .. 2**127 with 6 fraction bits."""
    assert (MXINT8.mant, MXINT8.block) == (8, 32)
    assert (MXINT8.exp_min, MXINT8.exp_max) == (-127 - 6, 127 - 6)
    assert MXINT8.q_max * 2.0**MXINT8.exp_max == (1 + 63 / 64) * 2.0**127
