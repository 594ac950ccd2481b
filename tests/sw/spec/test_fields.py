"""Bit layouts."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concord.spec.fields import Field, Layout

LAYOUT = Layout((Field("a", 3), Field("b", 5, signed=True), Field("c", 4, True, count=3), Field("d", 1, count=1)))


def field_values(field):
    one = st.integers(field.low, field.high)
    return one if field.count is None else st.lists(one, min_size=field.count, max_size=field.count)


@given(st.fixed_dictionaries({field.name: field_values(field) for field in LAYOUT.fields}))
def test_unpack_is_the_inverse_of_pack(values):
    word = LAYOUT.pack(**values)
    assert 0 <= word < 1 << LAYOUT.width
    assert LAYOUT.unpack(word) == values


@given(st.integers(0, (1 << LAYOUT.width) - 1))
def test_pack_is_the_inverse_of_unpack(word):
    assert LAYOUT.pack(**LAYOUT.unpack(word)) == word


def test_the_first_field_is_lowest_and_item_0_too():
    assert LAYOUT.pack(a=5, b=0, c=[0, 0, 0], d=[0]) == 5
    assert LAYOUT.pack(a=0, b=-1, c=[0, 0, 0], d=[0]) == 0b11111 << 3
    assert LAYOUT.pack(a=0, b=0, c=[1, 0, -8], d=[1]) == 1 << 8 | 8 << 16 | 1 << 20


def test_sizes_and_positions():
    assert LAYOUT.width == 21 and LAYOUT.nbytes == 3
    assert [(at, field.name) for at, field in LAYOUT.placed()] == [(0, "a"), (3, "b"), (8, "c"), (20, "d")]
    assert Layout(()).nbytes == 0
    assert LAYOUT["c"].span == 12 and "c" in LAYOUT and "x" not in LAYOUT
    with pytest.raises(KeyError):
        LAYOUT["x"]


@pytest.mark.parametrize("signed, low, high", [(False, 0, 15), (True, -8, 7)])
def test_limits_of_a_field(signed, low, high):
    field = Field("f", 4, signed)
    assert (field.low, field.high) == (low, high)
    assert [field.decode(field.encode(value)) for value in range(low, high + 1)] == list(range(low, high + 1))
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"f must be in {low}[.]{{2}}{high}, not {value}"):
            field.encode(value)


def test_errors():
    good = {"a": 0, "b": 0, "c": [0, 0, 0], "d": [0]}
    with pytest.raises(ValueError, match=r"a must be in 0\.\.7, not 8"):
        LAYOUT.pack(**good | {"a": 8})
    with pytest.raises(ValueError, match=r"c must be in -8\.\.7, not 8"):
        LAYOUT.pack(**good | {"c": [0, 8, 0]})
    with pytest.raises(ValueError, match="c must have 3 items, not 2"):
        LAYOUT.pack(**good | {"c": [0, 0]})
    with pytest.raises(TypeError, match=r"fields must be \['a', 'b', 'c', 'd'\]"):
        LAYOUT.pack(a=0)
    with pytest.raises(TypeError, match=r"not .*'e'"):
        LAYOUT.pack(**good, e=0)


def test_wide_words():
    layout, rng = Layout((Field("x", 16, True, count=64),)), random.Random(1)
    values = [rng.choice([-32768, -1, 0, 1, 32767]) for _ in range(64)]
    assert layout.unpack(layout.pack(x=values)) == {"x": values} and layout.nbytes == 128
