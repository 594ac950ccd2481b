"""Chains write the memories that the data-type pass says: its conversions cost no instruction."""

import pytest

from concord.compiler.ir.layers import Layer
from concord.compiler.lowering.host_partition import split
from concord.compiler.lowering.rules import lowered as lower
from concord.compiler.memory.dataflow import data_types
from concord.compiler.memory.plan import make_plan
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph.ops import OPS, OperatorKind
from concord.graph.passes.dtypes import Dtype, assign
from concord.spec.isa import Mem
from concord.spec.presets import ECP5_85F, TINY
from support.compiled_nets import attention, residual
from support.expressions import network, tensor
from support.trained import DATA, needs_data


def planned(net, config):
    """Memories of inputs and of results of chains, by tensor; and the nodes that chains compute."""
    lowered = lower(net, config)
    plan = make_plan(lowered, data_types(lowered))
    chains = [layer for layer in lowered.layers if isinstance(layer, Layer) and layer.nodes]
    written = {layer.tensor: layer.target for layer in chains}
    written |= {tensor: storage for tensor, (storage, _) in lowered.inputs.items()}
    memories = {
        tensor: {mem for mem in Mem if plan.copy(storage, mem) is not None} for tensor, storage in written.items()
    }
    return memories, {name for layer in lowered.layers for name in (getattr(layer, "nodes", None) or [layer.name])}


def decided(net, types, computed, tensor):
    """What readers see of a tensor, those behind views as well."""
    own = {reader for conversion in types.own for reader in conversion.readers}
    seen = {Mem.WIDE} if tensor in net.outputs else set()
    for node in net.nodes:
        for index, name in enumerate(node.inputs):
            if name != tensor:
                continue
            if OPS[node.op].kind is OperatorKind.MOVING and node.name not in computed:
                seen |= {mem for result in node.outputs for mem in decided(net, types, computed, result)}
            else:
                narrow = types.inputs[node.name, index] is Dtype.NARROW or (node.name, index) in own
                seen.add(Mem.NARROW if narrow else Mem.WIDE)
    return seen


def check(net, config):
    memories, computed = planned(net, config)
    types = assign(net)
    assert memories == {tensor: decided(net, types, computed, tensor) for tensor in memories}
    return memories


def test_a_residual_block():
    memories = check(residual(), TINY)
    both, narrow, wide = {Mem.NARROW, Mem.WIDE}, {Mem.NARROW}, {Mem.WIDE}
    assert memories == {"x": narrow, "b": both, "d": narrow, "e": narrow, "f": narrow, "y": wide}


def test_attention():
    """The pass sees the parts: factors are wide, but for one that a matrix brings to the lanes of the other."""
    memories = check(compile_graph(attention(), TINY).graph, TINY)
    assert memories["x"] == {Mem.NARROW, Mem.WIDE}
    assert memories["q.out"] == memories["k.out"] == memories["v.out"] == {Mem.WIDE}
    assert memories["softmax.out"] == {Mem.NARROW}


def test_a_maximum_reads_the_type_that_it_writes():
    a = tensor(1, 3, 4, 4).pool("MaxPool", 2, 2, name="a")
    b = a.reduce("Mean", 2, 3, keep=False)
    narrow, wide = {Mem.NARROW}, {Mem.WIDE}
    assert check(network(b=b), TINY) == {"x": narrow, "a.out": narrow, "b": wide}
    other = network(y=a.function("tanh"), b=b)
    assert check(other, TINY) == {"x": wide, "a.out": narrow | wide, "b": wide, "y": wide}


NETWORKS = ["ad_fc_autoencoder", "digits_cnn", "digits_mlp", "ic_resnet8", "kws_crnn", "kws_dscnn", "mnist_cnn",
            "sww_dscnn1d", "vww_mobilenetv1_025"]  # fmt: skip


@needs_data
@pytest.mark.parametrize("name", NETWORKS)
def test_trained_networks(name):
    """Recurrent blocks are not compared."""
    net, _ = split(import_model(DATA / "models" / f"{name}.onnx"))
    assert len(check(net, ECP5_85F)) > 2
