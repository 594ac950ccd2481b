"""The data-type pass: the figures of [dtype-pass], its gaps, and the corners."""

from collections import Counter

import pytest

from concord.graph.passes.dtype_forms import DtypeForm
from concord.graph.passes.dtypes import Conversion, assign
from support.dtype_graphs import N, W, graph, kinds, operators_with_two_outputs


@pytest.fixture(scope="module", autouse=True)
def more_operators():
    with operators_with_two_outputs():
        yield


# Figures and sentences of the source ------------------------------------------------------------


def test_figure_9_narrow_all_the_way():
    types = assign(
        graph("Conv q1 x > a", "MaxPool p a > b", "Relu r b > c", "Conv q2 c > y", outputs=["y"]), {("q2", 0): 4.0}
    )
    assert kinds(types, "a b c y") == "nnnw"
    assert [types.entries[t] for t in "abc"] == [Counter({4.0: 1})] * 3
    assert {types.inputs[key] for key in [("p", 0), ("r", 0), ("q2", 0)]} == {N}
    assert types.conversions == types.own == () and types.factor("a") == 4.0
    assert types.forms == {"q1": DtypeForm.NARROW_TO_NARROW, "q2": DtypeForm.NARROW_TO_WIDE}


def test_figure_8_one_conversion_for_three_readers():
    """Operation 1 feeds operation 2, which has one output for operation 3 and one for three quantised layers."""
    lines = ["Add p1 u v > a", "Twin p2 a > b c", "Mul p3 b v > d", *(f"Dense q{k} c > y{k}" for k in (1, 2, 3))]
    types = assign(graph(*lines, outputs=["d", "y1", "y2", "y3"]))
    assert kinds(types, "a b c d") == "wwww"
    assert types.entries["c"] == Counter({1.0: 3}) and 0.0 in types.entries["b"]
    assert types.conversions == (Conversion("c", 1.0, (("q1", 0), ("q2", 0), ("q3", 0))),) and types.own == ()
    assert types.inputs["p2", 0] is types.inputs["p3", 0] is W
    assert {types.inputs[f"q{k}", 0] for k in (1, 2, 3)} == {N}
    assert {types.forms[f"q{k}"] for k in (1, 2, 3)} == {DtypeForm.NARROW_TO_WIDE}


def test_the_set_number_is_not_negative():
    with pytest.raises(ValueError, match="conversions_from must be 0 or more, not -1"):
        assign(graph("Dense q x > y"), conversions_from=-1)


def test_the_example_of_three_factors_one_of_them_0():
    """Two of three readers of an output want it narrow, a quantised and a data-moving layer."""
    lines = ["Conv q x > t", "Dense q1 t > y1", "MaxPool m t > u", "Dense q2 u > y2", "Softmax p t > y3"]
    types = assign(graph(*lines, outputs=["y1", "y2"]))
    assert types.entries["t"] == Counter({1.0: 2, 0.0: 1})
    assert kinds(types, "t u") == "wn"
    assert types.conversions == (Conversion("t", 1.0, (("q1", 0), ("m", 0))),)
    assert types.inputs["p", 0] is W and types.inputs["m", 0] is types.inputs["q1", 0] is N
    assert types.forms["q"] is DtypeForm.NARROW_TO_WIDE


# The two gaps -----------------------------------------------------------------------------------


# Shapes of graphs -------------------------------------------------------------------------------


def test_initial_state_of_a_gru_is_kept_wide():
    assert kinds(assign(graph("GRU g x h > y -")), "x h") == "nw"
    with pytest.raises(ValueError, match=r"that a product reads, not \('g', 1\)"):
        assign(graph("GRU g x h > y -"), {("g", 1): 1.0})


def test_many_ways_need_no_time():
    """Sums of slices double the ways; 200 blocks have 2^200 of them."""
    lines = [line for k in range(200) for line in (f"Slice a{k} t{k} > u{k}", f"Concat k{k} u{k} t{k} > t{k + 1}")]
    types = assign(graph("Softmax p x > t0", *lines, "Dense q t200 > y"))
    assert types.entries["t0"] == Counter({1.0: 2**200}) and types.tensors["t1"] is N


# Factors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_factors_must_be_positive(factor):
    with pytest.raises(ValueError, match="factor of input 0 of 'q' must be > 0 and finite, not"):
        assign(graph("Dense q x > y"), {("q", 0): factor})


@pytest.mark.parametrize("key", [("p", 0), ("q", 1), ("nobody", 0)])
def test_factors_are_for_products(key):
    with pytest.raises(ValueError, match="that a product reads, not"):
        assign(graph("Dense q x > y", "Softmax p y > z"), {key: 1.0})


def test_only_a_narrow_tensor_has_a_factor():
    with pytest.raises(ValueError, match="tensor must be narrow, not 'y'"):
        assign(graph("Dense q x > y")).factor("y")
