"""The operator forms in integers: equal to the float layer within the error of quantisation."""

import numpy as np
import pytest

from concord.graph.passes.dtype_forms import DtypeForm
from support.quantised_layer import QuantisedLayer, encode


@pytest.mark.parametrize("form", DtypeForm)
@pytest.mark.parametrize("seed", range(5))
def test_forms_compute_the_layer_within_the_error_of_quantisation(form, seed):
    rng = np.random.default_rng(seed)
    x, w, b = rng.uniform(-2, 2, (40, 24)), rng.uniform(-0.5, 0.5, (9, 24)), rng.uniform(-3, 3, 9)
    exact = x @ w.T + b
    s_x, s_w, s_y = 60.0, 250.0, 127 / (np.abs(exact).max() + 1)
    layer = QuantisedLayer(w, b, s_x, s_w, s_y)
    y = layer.run(form, encode(x, s_x) if form.reads_narrow else x)
    assert y.dtype == (np.int8 if form.writes_narrow else np.float64) and y.shape == exact.shape
    dx, dw = 0.5 / s_x, 0.5 / s_w
    bound = (np.abs(x) * dw).sum(axis=1)[:, None] + np.abs(w).sum(axis=1) * dx + 24 * dx * dw + 0.5 * dx * dw * 4
    if form.writes_narrow:
        bound, y = bound + 0.5 / s_y, y / s_y
    assert (np.abs(y - exact) <= bound).all()
    assert (np.abs(y - exact) > bound / 8).any(), "a bound far away shows nothing"


def test_the_integers_of_the_forms():
    layer = QuantisedLayer(np.array([[0.5, -0.25]]), np.array([1.0]), 4.0, 8.0, 2.0)
    codes = np.array([[6, -3]], np.int8)  # of 1.4 and -0.7
    assert encode([1.4, -0.7], 4.0).tolist() == codes[0].tolist()
    assert layer.sums(codes).tolist() == [[4 * 6 + -2 * -3 + 32]]
    for form in DtypeForm:
        y = layer.run(form, codes if form.reads_narrow else [[1.4, -0.7]])
        assert y.tolist() == ([[4]] if form.writes_narrow else [[62 / 32]])  # 62 * 2 / 32 = 3.875


def test_codes_saturate_evenly_and_round_to_even():
    assert encode([0.5, 1.5, -0.5, 2.5, 1e9, -1e9], 1.0).tolist() == [0, 2, 0, 2, 127, -127]


def test_forms_refuse_what_they_cannot_read():
    layer = QuantisedLayer(np.ones((1, 2)), np.zeros(1), 1.0, 1.0, 1.0)
    with pytest.raises(TypeError, match="x must be int8 for NARROW_TO_WIDE"):
        layer.run(DtypeForm.NARROW_TO_WIDE, [[1.0, 2.0]])
    with pytest.raises(TypeError, match="x must be floats for WIDE_TO_NARROW"):
        layer.run(DtypeForm.WIDE_TO_NARROW, np.ones((1, 2), np.int8))
    with pytest.raises(ValueError, match="s_w must be > 0, not 0"):
        QuantisedLayer(np.ones((1, 2)), np.zeros(1), 1.0, 0.0, 1.0)
    for bias in (3e9, -3e9, 2.0**31 - 1):
        with pytest.raises(ValueError, match="must fit int32"):
            QuantisedLayer(np.ones((1, 2)), np.array([bias]), 1.0, 1.0, 1.0).sums(np.ones((1, 2), np.int8))
