"""The data-type pass: the figures of [dtype-pass], its gaps, and the corners."""

from collections import Counter

import pytest

from concord.graph.passes.dtype_forms import DtypeForm
from concord.graph.passes.dtypes import Conversion, assign
from support.dtype_graphs import RESIDUAL, N, W, graph, kinds, operators_with_two_outputs


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


@pytest.mark.parametrize(("set_number", "shared"), [(0, True), (1, True), (2, True), (3, False)])
def test_figure_8_with_other_set_numbers(set_number, shared):
    """Three quantised readers: they share a conversion where more of them want it than the set number says."""
    lines = ["Add p1 u v > a", "Twin p2 a > b c", "Mul p3 b v > d", *(f"Dense q{k} c > y{k}" for k in (1, 2, 3))]
    types = assign(graph(*lines, outputs=["d", "y1", "y2", "y3"]), conversions_from=set_number)
    readers = [("q1", 0), ("q2", 0), ("q3", 0)]
    assert types.conversions == ((Conversion("c", 1.0, tuple(readers)),) if shared else ())
    assert types.own == (() if shared else tuple(Conversion("c", 1.0, (reader,)) for reader in readers))
    assert {types.inputs[reader] for reader in readers} == {N if shared else W}
    assert {types.forms[name] for name, _ in readers} == {
        DtypeForm.NARROW_TO_WIDE if shared else DtypeForm.WIDE_TO_WIDE
    }


@pytest.mark.parametrize(("set_number", "shared"), [(1, True), (2, False)])
def test_the_example_of_three_factors_with_set_number_2(set_number, shared):
    """Two readers want it narrow: no more than 2, so each converts for itself; types are the same."""
    lines = ["Conv q x > t", "Dense q1 t > y1", "MaxPool m t > u", "Dense q2 u > y2", "Softmax p t > y3"]
    types = assign(graph(*lines, outputs=["y1", "y2"]), conversions_from=set_number)
    assert kinds(types, "t u") == "wn" and types.reads["m", 0] is types.reads["q1", 0] is N
    assert len(types.conversions) == shared and len(types.own) == (0 if shared else 2)
    assert types.inputs["m", 0] is (N if shared else W)


def test_set_number_0_gives_a_lone_reader_a_conversion():
    types = assign(graph(*RESIDUAL, outputs=["y"]), conversions_from=0)
    assert types.conversions == (Conversion("b", 1.0, (("c1", 0),)), Conversion("d", 1.0, (("r1", 0),)))
    assert types.own == () and types.forms["c1"] is DtypeForm.NARROW_TO_WIDE


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


def test_a_precise_layer_between_quantised_ones_passes_0():
    types = assign(graph("Conv q1 x > a", "Relu r a > b", "Softmax p b > c", "Relu s c > d", "Conv q2 d > y"))
    assert kinds(types, "a b c d") == "wwwn"  # s is alone in wanting c narrow
    assert types.own == (Conversion("c", 1.0, (("s", 0),)),) and types.conversions == ()
    assert types.entries["c"] == Counter({1.0: 1}) and types.entries["a"] == Counter({0.0: 2})


# The two gaps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [["Softmax p b > y"], ["Reshape r b > c", "Add p c z > d", "Relu s d > y"]])
def test_a_precise_layer_at_the_end_wants_wide(tail):
    types = assign(graph("Dense q1 x > a", "Relu m a > b", "Dense q2 b > v", *tail, outputs=["y", "v"]))
    assert kinds(types, "a b v y") == "wwww"
    assert types.own == (Conversion("b", 1.0, (("q2", 0),)),)
    assert set(types.forms.values()) == {DtypeForm.NARROW_TO_WIDE, DtypeForm.WIDE_TO_WIDE}


@pytest.mark.parametrize("output", ["a", "b"])
def test_outputs_of_the_network_stay_wide(output):
    types = assign(
        graph("Dense q1 x > a", "Relu m a > b", "Dense q2 b > y", "Dense q3 b > z", outputs=[output, "y", "z"])
    )
    assert kinds(types, "a b") == ("wn" if output == "a" else "ww")
    conversion = Conversion("a", 1.0, (("m", 0),)) if output == "a" else Conversion("b", 1.0, (("q2", 0), ("q3", 0)))
    assert types.conversions == (conversion,) and types.own == ()
    assert types.inputs["m", 0] is (N if output == "a" else W)


def test_an_input_that_is_an_output():
    assert kinds(assign(graph("Dense q x > y", outputs=["x", "y"])), "x") == "w"


# Shapes of graphs -------------------------------------------------------------------------------


def test_residual_block():
    """Only the shortcut is wide: its conversion is the reader's own, and behind the sum the reader of a lone ReLU."""
    types = assign(graph(*RESIDUAL, outputs=["y"]))
    assert kinds(types, "x a b c d e y") == "nwwwwnw"
    assert types.own == (Conversion("b", 1.0, (("c1", 0),)), Conversion("d", 1.0, (("r1", 0),)))
    assert types.forms == {"c0": DtypeForm.NARROW_TO_WIDE, "c1": DtypeForm.WIDE_TO_WIDE, "c2": DtypeForm.NARROW_TO_WIDE}


def test_residual_block_with_a_projection_shares_a_conversion():
    lines = ["Conv c0 x > a", "Add s0 a x > b", "Relu r b > e", "Conv c1 e > c", "Conv proj e > d", "Add s1 c d > y"]
    types = assign(graph(*lines, outputs=["y"]))
    assert types.conversions == (Conversion("b", 1.0, (("r", 0),)),)  # two ways through a layer that stays narrow
    assert kinds(types, "x b e") == "wwn" and types.own == (Conversion("x", 1.0, (("c0", 0),)),)


def test_no_conversion_in_front_of_a_moving_layer_that_is_wide():
    lines = ["Conv q x > a", "Relu m a > b", "Dense q1 b > y1", "Dense q2 b > y2", "Softmax p b > y3"]
    types = assign(graph(*lines, outputs=["y1", "y2"]))
    assert types.entries["a"] == types.entries["b"] == Counter({1.0: 2, 0.0: 1})
    assert types.conversions == (Conversion("b", 1.0, (("q1", 0), ("q2", 0))),) and types.own == ()
    assert types.inputs["m", 0] is W


def test_readers_behind_a_wide_moving_layer_do_not_count():
    lines = ["Conv q x > a", "Relu m a > b", "Dense q1 b > y1", "Softmax p b > y2", "Dense q2 a > y3"]
    types = assign(graph(*lines, outputs=["y1", "y2", "y3"]))
    assert types.conversions == ()
    assert types.own == (Conversion("a", 1.0, (("q2", 0),)), Conversion("b", 1.0, (("q1", 0),)))


def test_concat_hands_the_factor_to_all_inputs():
    lines = ["Conv q1 x > a", "Conv q2 x > b", "Softmax p x > c", "Concat k a b c > d", "Dense q3 d > y"]
    types = assign(graph(*lines, outputs=["y"]), {("q3", 0): 8.0})
    assert [types.entries[t] for t in "abc"] == [Counter({8.0: 1})] * 3
    assert kinds(types, "x a b c d") == "wnnwn"
    assert types.conversions == (Conversion("x", 1.0, (("q1", 0), ("q2", 0))),)
    assert types.own == (Conversion("c", 8.0, (("k", 2),)),)


def test_concat_with_a_wide_reader_widens_all_inputs():
    lines = ["Conv q1 x > a", "Conv q2 x > b", "Concat k a b > d", "Dense q3 d > y", "Softmax p d > z"]
    assert kinds(assign(graph(*lines, outputs=["y", "z"])), "x a b d") == "nwww"


def test_slices_of_one_tensor():
    lines = ["Conv q x > a", "Slice s1 a > b", "Slice s2 a > c", "Dense q1 b > y1"]
    assert kinds(assign(graph(*lines, "Dense q2 c > y2", outputs=["y1", "y2"])), "a b c") == "nnn"
    types = assign(graph(*lines, "Softmax p c > y2", outputs=["y1", "y2"]))
    assert kinds(types, "a b c") == "wnw" and types.own == (Conversion("a", 1.0, (("s1", 0),)),)


def test_a_moving_layer_with_two_outputs_has_one_type():
    lines = ["Conv q x > a", "Split s a > b c", "Dense q1 b > y1", "Dense q2 b > y2"]
    types = assign(graph(*lines, "Dense q3 c > y3"))
    assert kinds(types, "a b c") == "nnn" and types.entries["a"] == Counter({1.0: 3})
    types = assign(graph(*lines, "Softmax p c > y3"))
    assert kinds(types, "a b c") == "www" and types.inputs["s", 0] is W
    assert types.conversions == (Conversion("b", 1.0, (("q1", 0), ("q2", 0))),)
    assert kinds(assign(graph(*lines, "Dense q3 c > y3"), {("q3", 0): 2.0}), "a b c") == "www"


def test_recurrent_outputs_have_types_of_their_own():
    lines = ["LSTM l x h c > y yh yc", "Reshape r y > z", "Dense q z > out", "Add p yh x > s"]
    types = assign(graph(*lines, outputs=["out", "s", "yc"]))
    assert kinds(types, "x h c y yh yc z") == "wnwnwwn"  # c is a state that element-wise operations read
    assert types.forms["l"] is DtypeForm.WIDE_TO_WIDE and types.own == (Conversion("x", 1.0, (("l", 0),)),)
    types = assign(graph("GRU g x - > y -", "Dense q y > z"))
    assert kinds(types, "x y") == "nn" and types.forms["g"] is DtypeForm.NARROW_TO_NARROW


def test_initial_state_of_a_gru_is_kept_wide():
    assert kinds(assign(graph("GRU g x h > y -")), "x h") == "nw"
    with pytest.raises(ValueError, match=r"that a product reads, not \('g', 1\)"):
        assign(graph("GRU g x h > y -"), {("g", 1): 1.0})


def test_one_tensor_at_two_inputs_of_a_node():
    types = assign(graph("Conv q x > a", "Softmax p a > b", "Concat k b b > c", "Dense q2 c > y"))
    assert types.entries["b"] == Counter({1.0: 2})
    assert types.conversions == (Conversion("b", 1.0, (("k", 0), ("k", 1))),)


def test_what_nothing_reads_is_wide():
    types = assign(graph("Dense q x > a", "Relu r a > b"))
    assert kinds(types, "x a b") == "nww" and not types.entries["b"]


def test_many_ways_need_no_time():
    """Sums of slices double the ways; 200 blocks have 2^200 of them."""
    lines = [line for k in range(200) for line in (f"Slice a{k} t{k} > u{k}", f"Concat k{k} u{k} t{k} > t{k + 1}")]
    types = assign(graph("Softmax p x > t0", *lines, "Dense q t200 > y"))
    assert types.entries["t0"] == Counter({1.0: 2**200}) and types.tensors["t1"] is N


# Factors ----------------------------------------------------------------------------------------


def test_different_factors_are_groups_of_their_own():
    lines = ["Conv q x > a", *(f"Dense q{k} a > y{k}" for k in range(5))]
    factors = {("q0", 0): 2.0, ("q1", 0): 4.0, ("q2", 0): 2.0, ("q3", 0): 4.0, ("q4", 0): 8.0}
    types = assign(graph(*lines), factors)
    assert kinds(types, "a") == "w"
    assert types.conversions == (
        Conversion("a", 2.0, (("q0", 0), ("q2", 0))),
        Conversion("a", 4.0, (("q1", 0), ("q3", 0))),
    )
    assert types.own == (Conversion("a", 8.0, (("q4", 0),)),)
    assert kinds(assign(graph(*lines), dict.fromkeys(factors, 2.0)), "a") == "n"


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
