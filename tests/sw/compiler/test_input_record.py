"""Inputs that are unlike what a network was compiled for are noticed, and others are not."""

import numpy as np
import pytest

from concord.compiler.ir.arrangement import InputGrid
from concord.compiler.ir.input_record import InputRecord

RNG = np.random.default_rng(5)
HELD = 400


def pixels(count):
    """Images of 8 x 8 with a dark and a light part, codes of 8 bits."""
    light = RNG.uniform(90, 255, (count, 1))
    x = light * (RNG.random((count, 64)) < 0.4) * RNG.uniform(0.5, 1, (count, 64))
    x[:, 0] = 255
    return np.round(x).clip(0, 255)


def tables(count):
    """Four features, normal."""
    return RNG.normal(0, 1, (count, 4))


def sound(count, quietest=-12):
    """Stretches of sound of 16 bits, from silence to loud, over a noise of its own."""
    loud = 2.0 ** RNG.uniform(quietest, -2, (count, 1))
    return np.round((loud * RNG.normal(0, 0.3, (count, 256)) + RNG.normal(0, 3e-4, (count, 256))) * 32768) / 32768


def decibels(count):
    """Spectra about -40."""
    return RNG.normal(-40, 12, (count, 1)) * 0.3 - 28 + RNG.normal(0, 6, (count, 40))


KINDS = [pixels, tables, sound, decibels]
#: Samples in which a factor of 4 is to be noticed.
FEW = {pixels: 4, tables: 16, sound: 16, decibels: 2}


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


@pytest.fixture
def record(kind):
    return InputRecord.of_samples(kind(100))


def batches(x, size):
    return [x[k : k + size] for k in range(0, len(x) - size + 1, size)]


@pytest.mark.parametrize("size", [1, 2, 4, 16, 64])
def test_other_samples_of_the_same_kind_are_not_told(kind, record, size):
    assert [found for x in batches(kind(HELD), size) if (found := record.mismatch(x))] == []


@pytest.mark.parametrize("factor", [4.0, 0.25, 255.0, 1 / 255])
def test_a_factor_is_noticed(kind, record, factor):
    """Either way, in a few samples."""
    some = batches(factor * kind(HELD), FEW[kind])
    found = [record.mismatch(x) for x in some]
    assert sum(one is not None for one in found) >= 0.95 * len(found)
    texts = [one.meaning for one in found if one is not None]
    wrong = "times as small as" if factor > 1 else "times as large as"
    assert not [text for text in texts if wrong in text] and (factor > 1 or [x for x in texts if "as small as" in x])


@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_one_sample_is_enough_where_samples_are_alike(factor):
    record = InputRecord.of_samples(RNG.uniform(0.8, 1, (50, 64)))
    assert all(record.mismatch(factor * x[None]) for x in RNG.uniform(0.8, 1, (50, 64)))


def test_quiet_samples_among_others_are_not_told():
    """Silence, digital silence, and stretches that are nothing but quiet."""
    record = InputRecord.of_samples(sound(100))
    speech = sound(16)
    for share in (2, 4):
        mixed = speech.copy()
        mixed[::share] *= 2.0**-9
        assert record.mismatch(mixed) is None
        mixed[::share] = 0
        assert record.mismatch(mixed) is None
    assert record.mismatch(np.zeros((8, 256))) is None
    quiet = np.round(RNG.normal(0, 3e-4, (16, 256)) * 32768) / 32768
    assert record.mismatch(quiet) is None
    assert all(record.mismatch(x[None]) is None for x in quiet)


def test_a_finer_grid_is_no_factor():
    """Sound that is not rounded to 16 bits has a lower floor, and is as loud."""
    record = InputRecord.of_samples(sound(100, -6))
    finer = sound(200, -6)
    finer += RNG.uniform(-0.5, 0.5, finer.shape) / 32768
    assert [found for x in batches(finer, 8) if (found := record.mismatch(x))] == []


def test_an_offset_is_noticed(kind, record):
    x = kind(HELD)
    away = 2.5 * x.std() + np.ptp(record.means)
    for offset in (away, -away):
        found = [record.mismatch(part) for part in batches(x + offset, 16)]
        assert all(found)


def test_centred_pixels_are_noticed():
    record = InputRecord.of_samples(pixels(100))
    assert all(record.mismatch(x - 128) for x in batches(pixels(HELD), 4))


def test_a_value_far_beyond_the_samples_is_noticed(kind, record):
    x = kind(200)
    x[7, 3] = record.high + 4 * (record.high - record.low)
    assert "compiled for values from" in record.mismatch(x).meaning


def test_a_little_beyond_is_not_told(kind, record):
    x = kind(200)
    x[7, 3] = record.high + 0.1 * (record.high - record.low)
    assert record.mismatch(x) is None


def test_few_samples_are_not_trusted_much():
    """Of three samples nobody knows how far others are from them."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        record = InputRecord.of_samples(rng.normal(0, 1, (3, 8)))
        assert all(record.mismatch(x[None]) is None for x in rng.normal(0, 1, (40, 8)))
    assert record.mismatch(1000 * rng.normal(0, 1, (8, 8)))


def test_all_samples_alike():
    """Constants and zeros have no spread at all."""
    record = InputRecord.of_samples(np.ones((10, 3)))
    assert record.mismatch(np.ones((1, 3))) is None and record.mismatch(4 * np.ones((4, 3)))
    nothing = InputRecord.of_samples(np.zeros((10, 3)))
    assert nothing.mismatch(np.zeros((4, 3))) is None and nothing.mismatch(np.ones((4, 3)))


def test_a_range_that_was_given():
    record = InputRecord(-1.0, 3.0, "given")
    for x, told in ((3.4, False), (3.6, True), (-1.6, True), (0.0, False)):
        assert (record.mismatch([[x, 1.0]]) is not None) == told
    found = record.mismatch([[5.0, 0.5]])
    assert found.meaning == "values from 0.5 to 5; compiled for values from -1 to 3 (given)"
    assert "--input-range" in found.advice
    assert record.mismatch([[1e-3, 1e-4]]) is None  # quiet inputs lose nothing: exponents are dynamic


def test_codes_that_are_cut_off():
    grid = InputGrid(-2, -4, 3)
    record = InputRecord(-1.0, 0.75, "what its codes mean")
    assert record.mismatch(np.linspace(-1, 0.75, 40)[None], grid) is None
    x = np.zeros((10, 100))
    x[0, :3] = 0.9
    assert record.mismatch(x, grid) is None
    x[:, :3] = 0.9
    assert "3 % of the elements are cut off at -1 and 0.75" in record.mismatch(x, grid).meaning


def test_what_the_format_of_the_input_cannot_hold():
    record = InputRecord(-1.0, 1.0, "given", least=2.0**-9)
    found = record.mismatch([[2.0**-10, 0.0]])
    assert "less than 3 bits" in found.meaning and record.mismatch([[2.0**-9, 0.0]]) is None
    assert record.mismatch([[0.0, 0.0]]) is None
    samples = RNG.normal(0, 2.0**-12, (20, 8))  # the samples are as quiet
    assert InputRecord.of_samples(samples, 2.0**-9).mismatch(samples[:4]) is None


def test_numbers_that_are_none_are_told_by_others(record):
    x = np.full((2, 4), np.nan)
    assert record.mismatch(x) is None and record.mismatch(np.zeros((0, 4))) is None


def test_a_record_can_be_kept(record):
    assert InputRecord.from_dict(record.to_dict()) == record
    with pytest.raises((TypeError, ValueError, LookupError)):
        InputRecord.from_dict({**record.to_dict(), "means": [1.0]})
