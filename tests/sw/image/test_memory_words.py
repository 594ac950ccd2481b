"""Words that are no codes of their format: refused by image and driver alike, whatever is behind the driver."""

import numpy as np
import pytest

from concord.host.emulated import EmulatedDevice
from concord.host.link import Link
from concord.host.linked import LinkedDevice
from concord.image import Image, ImageError, MemorySegment, hex_files
from concord.image.validation import WordError, check_words
from concord.image.words import pack_words, to_bytes
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import TINY, UP5K
from support.link_model import DeviceModel
from support.noisy_line import Line

#: Exponents of activations from -11 to 9 in 8 bits, of weights from -13 to -3 in 4 bits.
CONFIG = UP5K.replace(wgt_mant=8, wgt_exp_max=-3)
REGIONS = regions(CONFIG)


def word(region, **fields):
    """A word of a region, zero but for some fields."""
    layout = REGIONS[region].word
    zero = {field.name: 0 if field.count is None else [0] * field.count for field in layout.fields}
    return layout.pack(**zero | fields)


GOOD = [
    (RegionId.MATRIX, word(RegionId.MATRIX, mant=[127, -127, 0, 1], exp=10)),
    (RegionId.NARROW, word(RegionId.NARROW, mant=[127, -127, 0, 1], exp=9)),
    (RegionId.NARROW, word(RegionId.NARROW, exp=-11)),
    (RegionId.WIDE, word(RegionId.WIDE, elem=[0x7C00, 0xFC00, 0x7E00, 0xFFFF])),
    (RegionId.TABLE, 0x7C01),
    (RegionId.SLOTS, word(RegionId.SLOTS, low=-128, high=127, offset=128)),
    (RegionId.SLOTS, word(RegionId.SLOTS, low=5, high=5, offset=250)),
    (RegionId.SLOTS, word(RegionId.SLOTS, low=-256, high=-256, offset=256)),
]
BAD = [
    (RegionId.MATRIX, word(RegionId.MATRIX, mant=[0, 0, 0, -128]), "mantissas in -127..127, not -128"),
    (RegionId.MATRIX, word(RegionId.MATRIX, exp=11), "an exponent in -13..-3, not -2"),
    (RegionId.NARROW, word(RegionId.NARROW, mant=[-128, 0, 0, 0]), "mantissas in -127..127, not -128"),
    (RegionId.NARROW, word(RegionId.NARROW, exp=10), "an exponent in -11..9, not 10"),
    (RegionId.NARROW, word(RegionId.NARROW, exp=-12), "an exponent in -11..9, not -12"),
    (RegionId.SLOTS, word(RegionId.SLOTS, low=4, high=3), "low not above high, not 4..3"),
    (RegionId.SLOTS, word(RegionId.SLOTS, low=-1, high=3), "its entries in 0..255, not -1..3"),
    (RegionId.SLOTS, word(RegionId.SLOTS, low=0, high=7, offset=249), "its entries in 0..255, not 249..256"),
]


@pytest.fixture(params=["emulator", "link"])
def device(request):
    if request.param == "emulator":
        return EmulatedDevice(CONFIG)
    return LinkedDevice(Link(Line(DeviceModel(CONFIG))), CONFIG)


def image(region, start, words):
    return Image(
        CONFIG,
        (),
        (MemorySegment(region, start, REGIONS[region].nbytes, to_bytes(words, REGIONS[region].nbytes).tobytes()),),
    )


@pytest.mark.parametrize(("region", "value"), GOOD)
def test_what_a_memory_may_hold(region, value, device):
    device.write(region, 0, [0, value])
    device.load(image(region, 1, [value]))
    if region is not RegionId.SLOTS:
        assert device.read(region, 1) == [value]


@pytest.mark.parametrize(("region", "value", "rule"), BAD)
def test_what_a_memory_must_not_hold(region, value, rule, device, tmp_path):
    text = f"word 1 of {region.name} must have {rule}"
    with pytest.raises(WordError, match=text):
        device.write(region, 0, [0, value])
    bad = image(region, 0, [0, value])
    for refuse in (device.load, lambda i: i.save(tmp_path / "bad.image"), hex_files):
        with pytest.raises(ImageError, match=text):
            refuse(bad)
    assert device.image is None and not list(tmp_path.iterdir())
    if region is not RegionId.SLOTS:
        assert device.read(region, 0, 2) == [0, 0]


def test_an_image_file_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "bad.image"
    with monkeypatch.context() as patch:
        patch.setattr(Image, "check", lambda image, config=None: None)
        image(*BAD[0][:1], 5, [BAD[0][1]]).save(path)
    with pytest.raises(ImageError, match=r"word 5 of MATRIX must have mantissas in -127\.\.127"):
        Image.load(path)


@pytest.mark.parametrize("region", [RegionId.MATRIX, RegionId.NARROW, RegionId.SLOTS])
def test_the_check_agrees_with_the_fields(region):
    """Random words, field by field around the limits."""
    draw, count = np.random.default_rng(region), 400
    config = TINY.replace(act_mant=5, wgt_mant=9, act_exp_min=-7, wgt_exp_min=-5, acc_width=40)
    found = regions(config)[region]
    fields = {}
    for field in found.word.fields:
        values = draw.integers(field.low, field.high + 1, (count, field.count or 1))
        fields[field.name] = values[:, 0] if field.count is None else values
    legal = 0
    for k, data in enumerate(pack_words(found.word, **fields)):
        one = {name: values[k] for name, values in fields.items()}
        if region is RegionId.SLOTS:
            entries = one["offset"] + np.array([one["low"], one["high"]])
            good = one["low"] <= one["high"] and entries[0] >= 0 and entries[1] < config.table_depth
        else:
            fmt, bias = (config.wgt, config.wgt_exp_min) if region is RegionId.MATRIX else (config.act, 0)
            good = abs(one["mant"]).max() <= fmt.q_max and fmt.exp_min <= one["exp"] + bias <= fmt.exp_max
        legal += good
        try:
            check_words(found, 0, data[None], config)
        except WordError:
            assert not good
        else:
            assert good
    assert 10 < legal < count - 10


def test_unused_bits():
    with pytest.raises(WordError, match="word 7 of SLOTS must have zeros in its upper"):
        nbytes = REGIONS[RegionId.SLOTS].nbytes
        data = np.zeros((2, nbytes), np.uint8)
        data[1, -1] = 1 << REGIONS[RegionId.SLOTS].word.width - 8 * (nbytes - 1)
        check_words(REGIONS[RegionId.SLOTS], 6, data, CONFIG)
