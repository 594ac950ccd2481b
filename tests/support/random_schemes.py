"""Quantisation schemes for tests: short names of their choices, and random ones."""

from fractions import Fraction

from hypothesis import strategies as st

from concord.spec.formats import Rounding
from concord.transfer import CodeRange, Codes, table_index

U, S, Y = CodeRange
symmetric, fixed_point, of_range = Codes.symmetric, Codes.fixed_point, Codes.of_range
EVEN, AWAY = Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY

scales = st.one_of(
    st.floats(1e-6, 1e6),
    st.fractions(Fraction(1, 1000), 1000),
    st.sampled_from([1, 0.5, Fraction(1, 3), 1e-300, 1e300, Fraction(1, 10**400), 10**400]),
)
bits = st.integers(1, 8)


@st.composite
def affine(draw):
    width, codes = draw(bits), draw(st.sampled_from(CodeRange))
    return Codes(width, draw(scales), draw(st.integers(*codes.ends(width))), codes, draw(st.sampled_from([EVEN, AWAY])))


schemes = st.one_of(
    affine(),
    st.builds(symmetric, bits, scales),
    st.builds(lambda n, width: fixed_point(width - n, n, U), st.integers(-9, 9), bits),
    st.builds(lambda n, width: fixed_point(width - 1 - n, n), st.integers(-9, 9), bits),
    st.builds(lambda a, b, n: of_range(n, min(a, b), max(a, b) + 1), st.floats(-9, 9), st.floats(-9, 9), bits),
    st.builds(lambda low, n, scale: table_index(low, low + n, scale), st.integers(-99, 99), st.integers(0, 99), bits),
)
