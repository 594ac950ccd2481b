"""Which destinations the chains of fused layers write."""

import pytest

from concord.compiler.layers import Layer
from concord.compiler.model import Lowering, make_plan, split
from concord.frontend import import_model
from concord.graph.passes.destinations import Destinations, destinations
from concord.spec.isa import Mem
from concord.spec.presets import ECP5_85F
from dtype_graphs import RESIDUAL, graph
from trained import DATA, needs_data

BOTH, NARROW, WIDE = Destinations(frozenset({1.0}), True), Destinations(frozenset({1.0})), Destinations(wide=True)


def test_destinations_of_fused_layers():
    """A residual block: convolutions with ReLU, and with the sum and its ReLU."""
    net = graph(*RESIDUAL, outputs=["y"])
    found = destinations(net, [["c0", "r0"], ["c1", "s", "r1"], ["c2"]])
    assert found == {"x": NARROW, "b": BOTH, "e": NARROW, "y": WIDE}


def test_a_sum_that_is_read_narrow_only_needs_no_wide_copy():
    net = graph("Dense q x > a", "Add p a z > b", "Dense q2 b > y", outputs=["y"])
    assert destinations(net, [["q", "p"], ["q2"]]) == {"x": NARROW, "z": WIDE, "b": NARROW, "y": WIDE}
    assert destinations(net, [["q"], ["p"], ["q2"]])["a"] == WIDE


def test_views_are_seen_through_and_layers_are_not():
    lines = ["Dense q x > a", "Reshape v a > b", "Dense q1 b > y1", "Softmax p b > y2"]
    net = graph(*lines, outputs=["y1", "y2"])
    single = [["q"], ["q1"], ["p"]]
    assert destinations(net, single) == {"x": NARROW, "a": BOTH, "y1": WIDE, "y2": WIDE}
    assert destinations(net, [*single, ["v"]]) == {"x": NARROW, "a": WIDE, "b": BOTH, "y1": WIDE, "y2": WIDE}


def test_a_pooling_layer_reads_the_type_that_it_writes():
    lines = ["Dense q x > a", "MaxPool m a > b", "Dense q1 b > y"]
    groups = [["q"], ["m"], ["q1"]]
    assert destinations(graph(*lines, outputs=["y"]), groups) == {"x": NARROW, "a": NARROW, "b": NARROW, "y": WIDE}
    net = graph(*lines, "Softmax p b > z", outputs=["y", "z"])
    assert destinations(net, [*groups, ["p"]]) == {"x": NARROW, "a": WIDE, "b": BOTH, "y": WIDE, "z": WIDE}


def test_a_view_inside_a_group():
    net = graph("Dense q x > a", "Reshape v a > b", "Relu r b > c", "Dense q1 c > y", outputs=["y"])
    assert destinations(net, [["q", "r"], ["q1"]]) == {"x": NARROW, "c": NARROW, "y": WIDE}


def test_destinations_of_several_outputs():
    net = graph("LSTM l x h c > y yh -", "Dense q y > out", "Softmax p yh > s", outputs=["out", "s"])
    found = destinations(net, [["l"], ["q"], ["p"]])
    assert {name: found[name] for name in "x h c y yh".split()} == {
        "x": NARROW, "h": NARROW, "c": WIDE, "y": NARROW, "yh": WIDE}  # fmt: skip


def test_a_chain_writes_narrow_with_one_factor():
    net = graph("Dense q x > a", "MaxPool m a > b", "Dense q1 b > y1", "Dense q2 b > y2", outputs=["y1", "y2"])
    found = destinations(net, [["q"], ["m"], ["q1"], ["q2"]], {("q1", 0): 2.0})
    assert found["b"] == Destinations(frozenset({1.0, 2.0}), True) and found["a"] == WIDE


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([["q"], ["r"], ["q1"], ["nobody"]], "each once, not 'nobody'"),
        ([["q", "r"], ["r"], ["q1"]], "each once, not 'r'"),
        ([["q", "r"]], "nodes in no group must be data-moving, not Dense 'q1'"),
        ([["q", "r", "q1"]], "must not be read by others, as is 'b'"),
    ],
)
def test_groups_that_are_refused(groups, message):
    net = graph("Dense q x > a", "Relu r a > b", "Dense q1 b > y", outputs=["y", "b"])
    with pytest.raises(ValueError, match=message):
        destinations(net, groups)


def test_a_result_inside_a_group_is_not_read_through_a_view_either():
    net = graph("Dense q x > a", "Relu r a > b", "Reshape v a > c", "Dense q1 c > y", outputs=["b", "y"])
    with pytest.raises(ValueError, match="as is 'a'"):
        destinations(net, [["q", "r"], ["q1"]])


NETWORKS = ["ad_fc_autoencoder", "digits_cnn", "digits_mlp", "ic_resnet8", "kws_crnn", "kws_dscnn", "mnist_cnn",
            "sww_dscnn1d", "vww_mobilenetv1_025"]  # fmt: skip


@needs_data
@pytest.mark.parametrize("name", NETWORKS)
def test_the_memories_that_the_compiler_plans(name):
    """Chains write what is wanted; recurrent blocks are not compared."""
    net, _ = split(import_model(DATA / "models" / f"{name}.onnx"))
    lowered = Lowering(net, ECP5_85F).run()
    plan = make_plan(lowered)
    groups = [layer.nodes if isinstance(layer, Layer) else [layer.name] for layer in lowered.layers]
    wanted = destinations(net, groups)
    written = {layer.tensor: layer.target for layer in lowered.layers if isinstance(layer, Layer)}
    written |= {tensor: storage for tensor, (storage, _) in lowered.inputs.items()}
    assert set(written) <= set(wanted) and len(written) > 2
    for tensor, storage in written.items():
        planned = tuple(plan.copy(storage, mem) is not None for mem in (Mem.NARROW, Mem.WIDE))
        assert planned == (wanted[tensor].narrow, wanted[tensor].wide), tensor
