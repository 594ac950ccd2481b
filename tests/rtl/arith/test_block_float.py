"""Formats of blocks in hardware: their shapes against the numbers that they hold."""

import pytest

from concord.spec.presets import ECP5_85F, TINY, UP5K, with_mantissas
from concord_rtl.arith.block_float import activations, weights

CONFIGS = [TINY, UP5K, ECP5_85F, with_mantissas(ECP5_85F, 5)]


@pytest.mark.parametrize("terms", [1, 2, 7, 16])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_every_sum_of_products_fits_and_the_least_does_not_in_a_bit_less(config, terms):
    narrow, matrix = activations(config), weights(config)
    shape = narrow.dot(matrix, terms)
    most = terms * narrow.format.q_max * matrix.format.q_max
    low, high = -(1 << shape.width - 1), (1 << shape.width - 1) - 1
    assert shape.signed and low <= -most and most <= high
    assert most > high >> 1


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_words_are_packed_as_the_software_does(config):
    for block, layout in ((activations(config), config.narrow_word), (weights(config), config.matrix_row)):
        assert block.word.size == layout.width
        assert block.word["mant"].shape.elem_shape == block.code
        assert block.word["exp"].shape == block.exp
        codes = [(-1) ** k * min(k, block.format.q_max) for k in range(layout["mant"].count)]
        packed = block.word.const({"mant": codes, "exp": 3})
        assert packed.as_bits() == layout.pack(mant=codes, exp=3)


def test_dot_products_of_a_step_and_of_a_native_vector():
    assert TINY.lane_dot_bits == activations(TINY).dot(weights(TINY), TINY.lanes).width
    assert TINY.dot_bits == TINY.act.dot_bits(TINY.wgt, TINY.native) == 17
