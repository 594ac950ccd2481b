"""The code book of a batch: which inputs are bytes, in which pages, and what the bytes stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concord.image.code_book import Coding, code_book
from concord.spec.presets import TINY
from support.property_tests import examples

ONE, FOUR = TINY, TINY.replace(code_pages=4)


def colours(rng, channels, samples=2, positions=400, codes=256):
    """Elements whose channels have ``codes`` values each, no value in two of them."""
    return (
        (rng.integers(0, codes, (samples, positions, channels)) + 300 * np.arange(channels))
        .reshape(samples, -1)
        .astype(np.uint16)
    )


def decoded(book, name, raw, channels):
    """What the page of the feeder makes of the bytes."""
    words, coding = np.array(book.words, np.uint16), book.codings[name]
    found = book.encode(name, raw, channels).reshape(len(raw), -1, channels).astype(np.int64)
    pages = coding.page + (np.arange(channels) if coding.by_channel else 0)
    return words[256 * pages + found].reshape(raw.shape)


def test_inputs_share_a_page_as_long_as_they_fit():
    rng = np.random.default_rng(1)
    raws = {name: rng.integers(low, low + 100, (3, 50)).astype(np.uint16) for name, low in [("a", 0), ("b", 90)]}
    book = code_book(raws | {"c": np.arange(256, dtype=np.uint16)[None] + 1000}, dict.fromkeys("abc", 1), FOUR)
    assert book.codings == {"a": Coding(0), "b": Coding(0), "c": Coding(1)}
    assert code_book(raws | {"c": np.arange(256, dtype=np.uint16)[None]}, dict.fromkeys("abc", 1), ONE).codings == {
        "a": Coding(0), "b": Coding(0), "c": Coding(0),
    }  # fmt: skip


def test_there_are_as_many_pages_as_the_configuration_has():
    raws = {name: np.arange(256, dtype=np.uint16)[None] + np.uint16(start) for name, start in [("a", 0), ("b", 1000)]}
    assert code_book(raws, dict.fromkeys(raws, 1), ONE).codings == {"a": Coding(0)}


def test_colours_have_a_page_each():
    raw = colours(np.random.default_rng(2), 3)
    book = code_book({"x": raw}, {"x": 3}, FOUR)
    assert book.codings == {"x": Coding(0, by_channel=True)} and len(book.pages) == 3
    np.testing.assert_array_equal(decoded(book, "x", raw, 3), raw)


@pytest.mark.parametrize(
    ("channels", "codes", "config"),
    [(3, 256, ONE), (3, 256, TINY.replace(code_pages=2)), (5, 256, FOUR), (3, 257, FOUR)],
)
def test_what_does_not_fit_is_no_code(channels, codes, config):
    raw = colours(np.random.default_rng(3), channels, positions=20_000, codes=codes)
    assert not code_book({"x": raw}, {"x": channels}, config).codings


@pytest.mark.parametrize("rich", range(3))
def test_every_channel_has_to_fit(rich):
    """One channel of more than 256 values is enough to send elements."""
    raw = np.tile(np.arange(300, dtype=np.uint16)[None, :, None] % 5, 3)
    raw[..., rich] = np.arange(300)
    assert not code_book({"x": raw.reshape(1, -1)}, {"x": 3}, FOUR).codings


def test_two_images_share_the_pages_that_there_are():
    rng = np.random.default_rng(4)
    raws = {"x": colours(rng, 3), "y": colours(rng, 3)[:, :300] + np.uint16(2000), "z": colours(rng, 1)}
    book = code_book(raws, {"x": 3, "y": 3, "z": 1}, FOUR)
    assert book.codings == {"x": Coding(0, by_channel=True), "z": Coding(0)}


@pytest.mark.slow
@examples(60)
@given(st.integers(0, 1 << 30), st.lists(st.tuples(st.integers(1, 5), st.integers(1, 400)), min_size=1, max_size=4))
def test_bytes_stand_for_the_elements(seed, inputs):
    rng = np.random.default_rng(seed)
    raws, channels = {}, {}
    for index, (count, codes) in enumerate(inputs):
        raws[str(index)] = colours(rng, count, codes=codes) + np.uint16(rng.integers(0, 3000))
        channels[str(index)] = count
    for config in (ONE, FOUR):
        book = code_book(raws, channels, config)
        assert len(book.pages) <= config.code_pages and all(len(page) <= 256 for page in book.pages)
        for name in book.codings:
            np.testing.assert_array_equal(decoded(book, name, raws[name], channels[name]), raws[name])
