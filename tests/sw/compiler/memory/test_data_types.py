"""The data-type pass on layers decides which memories hold tensors; what it knows there that a graph does not say."""

from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.memory.dataflow import data_types, elements, kind_of, operation, tensors
from concord.compiler.model import compile_graph
from concord.compiler.pipeline.levels import TYPES
from concord.graph.ops import OperatorKind
from concord.graph.passes.dtype_report import rows
from concord.graph.passes.dtypes import Dataflow, DataflowNode, Dtype, assign, problems
from concord.spec.isa import Mem
from concord.spec.presets import TINY
from support.compiled_nets import perceptron, recurrent, residual
from support.expressions import ROOMY, concat, network, tensor

N, W = Dtype.NARROW, Dtype.WIDE
MEMORIES = {N: Mem.NARROW, W: Mem.WIDE}


def written(compiled):
    """Types of every tensor, which must be those of its memories."""
    types, plan = compiled.types, compiled.plan
    for storage, name in tensors(compiled.lowered).items():
        found = {mem for mem in Mem if plan.copy(storage, mem) is not None}
        assert found == {MEMORIES[kind] for kind in types.written.get(name, ())}
    return {name: "".join(sorted(kind.value[0] for kind in kinds)) for name, kinds in types.written.items()}


def test_a_residual_block():
    compiled = compile_graph(residual(), ROOMY)
    assert written(compiled) == {"x": "n", "a": "nw", "c": "n", "e": "n", "f": "n", "g": "w"} | {"g": "w"}
    kinds = [kind_of(layer).name for layer in compiled.lowered.layers]
    assert kinds == ["QUANTISED", "QUANTISED", "MOVING", "QUANTISED", "QUANTISED"]
    pool = compiled.lowered.layers[2]
    assert compiled.types.reads[operation(2, pool), 0] is N and compiled.plan.sources[2] is Mem.NARROW


def test_outputs_that_leave_narrow():
    graph = perceptron(8, 8, 4)
    (name,) = graph.outputs
    assert written(compile_graph(graph, ROOMY))[name] == "w"
    assert written(compile_graph(graph, ROOMY, Formats(narrow=(name,))))[name] == "n"


def test_results_in_one_storage_have_the_types_of_all_of_its_readers():
    """A maximum whose result only a product reads is wide all the same, as its neighbour in the storage has to be."""
    maxima = [tensor(1, 4, 2, 2, name=x).pool("MaxPool", 2, 2, name=name) for x, name in (("x", "one"), ("z", "two"))]
    flat = concat(1, *maxima).reshape(1, 8)
    t = flat.function("tanh")
    graph = network(y=flat[:, 4:].dense(np.random.default_rng(1).normal(0, 1, (3, 4))), t=t)
    compiled = compile_graph(graph, ROOMY)
    storages = {layer.name: layer.target.root for layer in compiled.lowered.layers}
    assert storages["one"] is storages["two"]
    found = written(compiled)
    assert found[tensors(compiled.lowered)[storages["one"]]] == "nw"
    assert {compiled.plan.sources[index] for index in (0, 1)} == {Mem.WIDE}
    assert found["x"] == found["z"] == "w"


@pytest.mark.parametrize(("op", "state"), [("LSTM", "n"), ("GRU", "nw"), ("RNN", "n")])
def test_states_of_recurrent_layers(op, state):
    """Products read h narrow; a GRU reads it wide, too. The last state leaves wide."""
    compiled = compile_graph(recurrent(op, 6, 5, 3), ROOMY)
    (layer,) = compiled.lowered.layers
    found = written(compiled)
    assert found[layer.target.name] == "nw"
    (one,) = compiled.types.flow.operations
    assert "".join(sorted("n" if factor else "w" for name, factor in one.keeps if name == layer.target.name)) == state
    if op == "LSTM":
        assert found[layer.c.name] == "w"


def test_the_rules_of_a_moving_operation_with_several_writers():
    """An operation hands on what those behind it want, not what was wanted before it wrote."""
    flow = Dataflow(
        ("x", "z"),
        (
            DataflowNode("first", OperatorKind.MOVING, ("x",), ("joint",)),
            DataflowNode("early", OperatorKind.PRECISE, ("joint",), ("y",)),
            DataflowNode("second", OperatorKind.MOVING, ("z",), ("joint",)),
            DataflowNode("late", OperatorKind.QUANTISED, ("joint",), ("v",)),
        ),
        (("y", 0.0), ("v", 0.0)),
    )
    types = assign(flow)
    assert types.reads["first", 0] is W and types.reads["second", 0] is N
    assert types.written["joint"] == {N, W} and list(problems(types)) == []


@pytest.mark.parametrize(
    "kinds", [(OperatorKind.PRECISE, OperatorKind.QUANTISED), (OperatorKind.QUANTISED, OperatorKind.PRECISE)]
)
def test_what_one_of_several_writers_computes_wide_is_wide(kinds):
    writers = (
        DataflowNode(f"writer {k}", kind, (name,), ("joint",))
        for k, (kind, name) in enumerate(zip(kinds, "xz", strict=True))
    )
    flow = Dataflow(
        ("x", "z"), (*writers, DataflowNode("reader", OperatorKind.QUANTISED, ("joint",), ("y",))), (("y", 0.0),)
    )
    types = assign(flow)
    assert types.tensors["joint"] is W and [one.readers for one in types.own if one.tensor == "joint"] == [
        (("reader", 0),)
    ]
    assert types.written["joint"] == {N}


def test_names_of_tensors_are_unique():
    compiled = compile_graph(residual(), ROOMY)
    storages = compiled.lowered.storages
    storages.new("a", 1, 1, 1)
    storages.new("a", 1, 1, 1)
    names = list(tensors(compiled.lowered).values())
    assert len(names) == len(set(names)) and {"a", "a#1", "a#2"} <= set(names)


def test_types_as_text():
    types = compile_graph(residual(), ROOMY).types
    lines = list(TYPES.text(types))
    assert "a: wide, written narrow and wide" in lines
    assert "  converted by 1 depthwise" in lines
    assert "operation 1 depthwise (quantised, wide to narrow) reads a narrow, a wide" in lines
    assert TYPES.size(types) == 6


# Rules that are broken -----------------------------------------------------------------------------


def test_no_rule_is_broken():
    assert list(problems(data_types(compile_graph(residual(), ROOMY).lowered))) == []


def broken(change):
    types = compile_graph(residual(), ROOMY).types
    return list(problems(change(types)))


def test_products_read_narrow_and_element_wise_operations_wide():
    def wide(types):
        return replace(types, inputs={**types.inputs, ("0 first", 0): W})

    def narrow(types):
        return replace(types, inputs={**types.inputs, ("1 depthwise", 1): N})

    assert broken(wide) == ["input 0 of 0 first (quantised) must not be wide"]
    assert broken(narrow) == ["input 1 of 1 depthwise (quantised) must not be narrow"]


def test_every_tensor_and_every_input_has_a_type():
    def tensor(types):
        return replace(types, tensors={name: kind for name, kind in types.tensors.items() if name != "c"})

    def reader(types):
        return replace(types, inputs={key: kind for key, kind in types.inputs.items() if key[0] != "2 pool"})

    assert broken(tensor) == ["'c' must have a type"]
    assert broken(reader) == ["input 0 of 2 pool must have a type"]


def test_a_tensor_that_some_want_wide_is_not_narrow():
    def narrow(types):
        return replace(types, tensors={**types.tensors, "a": N})

    assert broken(narrow) == ["'a' must not be narrow: its readers want [0.0, 1.0]"]


def test_what_a_precise_operation_computes_is_wide():
    graph = network(tensor(1, 4).function("tanh", name="one").dense(np.ones((2, 4))))
    types = assign(graph)
    assert list(problems(types)) == []
    types = replace(types, tensors={**types.tensors, "one.out": N})
    assert list(problems(types)) == ["'one.out' is computed by one (precise) and must be wide"]


def test_what_nothing_has_written_is_not_read():
    flow = Dataflow((), (DataflowNode("sum", OperatorKind.PRECISE, ("ghost",), ("y",)),), ())
    with pytest.raises(KeyError):
        assign(flow)
    types = assign(replace(flow, inputs=("ghost",)))
    assert list(problems(replace(types, flow=flow))) == ["sum reads 'ghost', which nothing has written"]


def test_rows_of_layers():
    """Bytes as they lie in memory: two channels of a pixel take a vector of four lanes, 8 bytes wide and 5 narrow."""
    compiled = compile_graph(residual(), TINY)
    a, c, e = rows(compiled.types, elements(compiled.lowered), TINY)[1:4]
    assert (a.name, a.factors, a.type, a.elements) == ("a", "1, 0", "wide", 16 * 4)
    assert [conversion.text for conversion in a.conversions] == [f"by {operation(1, compiled.lowered.layers[1])}"]
    assert (a.bytes_before, a.bytes_after) == (3 * 128, 3 * 128)
    assert (c.name, c.type, c.forms, c.bytes_before, c.bytes_after) == ("c", "narrow", ("wide to narrow",), 256, 160)
    assert (e.name, e.type, e.forms) == ("e", "narrow", ())


def test_rows_of_a_batch_have_all_samples():
    x, *_ = rows_of_perceptron(2)
    assert x.elements == 2 * rows_of_perceptron(1)[0].elements


def rows_of_perceptron(batch):
    compiled = compile_graph(perceptron(8, 8, 4), TINY, batch=batch)
    return rows(compiled.types, elements(compiled.lowered), TINY)
