"""Weights and vectors as memory words."""

import numpy as np
import pytest

from concord.golden import binary16
from concord.golden.blocks import dequantize, quantize_float
from concord.image import Port, pack_depthwise, pack_matrix, pack_vectors
from concord.image.packing import depthwise_words, matrix_words, pack_narrow
from concord.image.words import pack_words, to_bytes, to_integers, unpack_words
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_85F, PRESETS, TINY

TWO_ENGINES = TINY.replace(engines=2, matrix_depth=128)
CONFIGS = [*PRESETS.values(), TWO_ENGINES]
NAMES = [*PRESETS, "two-engines"]


# Words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
@pytest.mark.parametrize("name", ["narrow_word", "wide_word", "matrix_row", "table_slot"])
def test_words_agree_with_the_layout(config, name):
    layout, rng = getattr(config, name), np.random.default_rng(0)
    values = {}
    for field in layout.fields:
        shape = (50,) if field.count is None else (50, field.count)
        values[field.name] = rng.choice([field.low, field.low + 1, 0, field.high // 3, field.high], shape)
    data = pack_words(layout, **values)
    words = [layout.pack(**{k: v[i] if v.ndim == 1 else v[i].tolist() for k, v in values.items()}) for i in range(50)]
    assert data.shape == (50, layout.nbytes) and to_integers(data) == words
    assert np.array_equal(to_bytes(words, layout.nbytes), data)
    back = unpack_words(layout, data)
    assert all(np.array_equal(back[key], values[key]) for key in values)


def test_words_that_do_not_fit_are_refused():
    row = TINY.matrix_row
    with pytest.raises(ValueError, match=r"mant must be in -128\.\.127, not 128"):
        pack_words(row, mant=[[1, 128]], exp=[0])
    with pytest.raises(ValueError, match=r"exp must be in 0\.\.15, not -1"):
        pack_words(row, mant=[[1, 2]], exp=[-1])
    with pytest.raises(ValueError, match="mant must have 2 items per word, not 3"):
        pack_words(row, mant=[[1, 2, 3]], exp=[0])
    with pytest.raises(TypeError, match="fields must be"):
        pack_words(row, mant=[[1, 2]])
    with pytest.raises(ValueError, match="words must be integers of 2 bytes, not 65536"):
        to_bytes([1, 65536], 2)


# Weights ------------------------------------------------------------------------------------------


def matrix_value(words, config, word, row):
    """The L weights of one row of a matrix memory word."""
    fields = config.matrix_row.unpack(words[word * config.rows + row])
    return dequantize([fields["mant"]], [fields["exp"] + config.wgt_exp_min])[0]


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_integers_are_mantissas_and_floats_are_rounded(config):
    values = np.arange(2 * config.native).reshape(2, -1) % 5
    as_they_are, rounded = (
        unpack_words(config.narrow_word, to_bytes(pack_narrow(array, config), config.narrow_word.nbytes))
        for array in (values, values.astype(float))
    )
    assert np.array_equal(as_they_are["mant"], values) and not as_they_are["exp"].any()
    assert rounded["exp"].all() and np.array_equal(dequantize(rounded["mant"], rounded["exp"]), values)


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
@pytest.mark.parametrize("outputs, kh, kw, inputs", [(1, 1, 1, 1), (21, 1, 1, 19), (9, 2, 3, 17), (16, 3, 1, 16)])
def test_dense_order(config, outputs, kh, kw, inputs):
    """Every weight is where the address rule of mv_mul looks for it, with the exponent of its row of the tile."""
    weights = np.random.default_rng(2).normal(size=(outputs, kh, kw, inputs))
    words = pack_matrix(weights, config)
    n, lanes, engines = config.native, config.lanes, config.engines
    cols = -(-inputs // n)
    assert len(words) == matrix_words(config, outputs, inputs, kh * kw) * config.rows
    padded = np.zeros((-(-outputs // config.rows) * config.rows, kh, kw, cols * n))
    padded[:outputs, :, :, :inputs] = weights
    for o, ky, kx, c in np.ndindex(len(padded), kh, kw, cols):
        tile, row = divmod(o, n)
        group, engine = divmod(tile, engines)
        block = quantize_float(padded[o, ky, kx, c * n : (c + 1) * n], config.wgt)
        want = dequantize(block.mant, block.exp)
        for part in range(n // lanes):
            word = (((group * kh + ky) * kw + kx) * cols + c) * (n // lanes) + part
            got = matrix_value(words, config, word, engine * n + row)
            assert np.array_equal(got, want[part * lanes : (part + 1) * lanes])


def test_a_matrix_is_a_convolution_with_one_tap():
    weights = np.random.default_rng(3).normal(size=(6, 9))
    assert pack_matrix(weights, TINY) == pack_matrix(weights[:, None, None, :], TINY)


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
@pytest.mark.parametrize("channels, kh, kw", [(1, 1, 1), (21, 3, 3), (16, 2, 5)])
def test_depthwise_order(config, channels, kh, kw):
    weights = np.random.default_rng(4).normal(size=(channels, kh, kw))
    words = pack_depthwise(weights, config)
    n, lanes, taps = config.native, config.lanes, kh * kw
    per_tile = -(-taps // lanes)
    assert len(words) == depthwise_words(config, channels, taps) * config.rows
    used = set()
    for channel in range(channels):
        tile, row = divmod(channel, n)
        fmt = type(config.wgt)(config.wgt_mant, taps, config.wgt_exp_min, config.wgt_exp_max)
        block = quantize_float(weights[channel].reshape(-1), fmt)
        want = dequantize(block.mant, block.exp)
        for tap in range(taps):
            word = tile * per_tile + tap // lanes
            assert matrix_value(words, config, word, row)[tap % lanes] == want[tap]
            used.add(word * config.rows + row)
    assert not any(word for k, word in enumerate(words) if k not in used)


def test_weight_errors():
    with pytest.raises(ValueError, match=r"weights must be \[outputs, inputs\]"):
        pack_matrix(np.zeros((2, 3, 4)), TINY)
    with pytest.raises(ValueError, match=r"weights must be \[channels, kh, kw\]"):
        pack_depthwise(np.zeros((2, 3)), TINY)
    with pytest.raises(ValueError, match="values must be below 128 in magnitude"):
        pack_matrix(np.full((2, 3), 1000.0), TINY)


# Vectors --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (4,), (5,), (3, 4), (2, 3, 9)])
@pytest.mark.parametrize("config", [TINY, ECP5_85F], ids=["tiny", "ecp5-85f"])
def test_vectors_are_padded_and_come_back(config, shape):
    values = binary16.decode(binary16.encode(np.random.default_rng(5).normal(size=shape)))
    words = pack_vectors(values, config)
    port = Port("x", RegionId.WIDE, 0, shape)
    assert np.array_equal(port.decode(words, config), values)
    assert len(words) == port.vectors(config)
    first = config.wide_word.unpack(words[0])["elem"]
    last = shape[-1] if shape else 1
    assert first[min(last, config.native) :] == [0] * (config.native - min(last, config.native))


def test_words_of_too_many_bytes_are_refused():
    assert to_bytes([(1 << 24) - 1], 3).tolist() == [[255] * 3]
    for word in (1 << 24, -1):
        with pytest.raises(ValueError, match=f"words must be integers of 3 bytes, not {word}"):
            to_bytes([word], 3)
