"""Numbers as people write them: options and files read them alike."""

from fractions import Fraction

import pytest

from concord.utils.numbers import exact_number, number_of


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("1/256", Fraction(1, 256)),
        (" 0.1 ", Fraction(1, 10)),
        (0.1, Fraction(1, 10)),
        ("1e-3", Fraction(1, 1000)),
        (-3, Fraction(-3)),
        ("-2/3", Fraction(-2, 3)),
    ],
)
def test_what_is_written_is_meant(number, value):
    assert exact_number(number, "x") == value
    assert number_of(number, "x") == float(value)


@pytest.mark.parametrize("number", ["", "one", "1/0", "nan", "inf", float("inf"), float("nan"), "1//2", "0x10"])
def test_what_is_no_number(number):
    with pytest.raises(ValueError, match=r'x must be a number such as 0\.1 or "1/10", not '):
        exact_number(number, "x")


@pytest.mark.parametrize("number", [True, None, [1]])
def test_what_is_no_text_either(number):
    with pytest.raises(ValueError, match="x must be a number, not "):
        exact_number(number, "x")


def test_sizes():
    for number in ("9" * 200, "1e999999999", "1e-401"):
        with pytest.raises(ValueError, match="x must be of a size that can be meant, not "):
            exact_number(number, "x")
    with pytest.raises(ValueError, match="x must be of a size that can be meant, not '1e400'"):
        number_of("1e400", "x")
