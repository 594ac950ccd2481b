"""The data-type pass on random graphs, against all ways one by one."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concord.graph.ops import OPS, OperatorKind
from concord.graph.passes.dtype_report import graph_rows
from concord.graph.passes.dtypes import assign
from concord.spec.presets import TINY
from support.dtype_graphs import N, W, networks, operators_with_two_outputs
from support.property_tests import examples


@pytest.fixture(scope="module", autouse=True)
def more_operators():
    with operators_with_two_outputs():
        yield


def entry(node, index, factors):
    """What one walk from an input of a layer begins with; none at a data-moving layer."""
    kind = OPS[node.op].kind
    if kind is OperatorKind.QUANTISED:
        return 0.0 if (node.op, index) == ("LSTM", 2) else factors.get((node.name, index), 1.0)
    return 0.0 if kind is OperatorKind.PRECISE else None


def walked(net, factors):
    """Lists of factors, one walk after the other, each way by itself."""
    lists = {name: [] for name in net.shapes}

    def up(tensor, factor):
        lists[tensor].append(factor)
        node = net.producer(tensor)
        if node is None or OPS[node.op].kind is OperatorKind.QUANTISED:
            return
        for name in node.inputs:
            up(name, 0.0 if OPS[node.op].kind is OperatorKind.PRECISE else factor)

    for node in net.nodes:
        dead = OPS[node.op].kind is OperatorKind.MOVING and not any(
            name in net.outputs or net.consumers(name) for name in node.outputs
        )
        for index, name in enumerate(node.inputs):
            start = 0.0 if dead else entry(node, index, factors)
            if start is not None:
                up(name, start)
    for name in net.outputs:
        up(name, 0.0)
    return lists


def ends(net, factors, tensors):
    """Downwards: where every way from tensors through data-moving layers ends; with the first reader and its input."""
    for tensor in tensors:
        if tensor in net.outputs:
            yield 0.0, None
        for node in net.nodes:
            for index, name in enumerate(node.inputs):
                if name != tensor:
                    continue
                if entry(node, index, factors) is not None:
                    yield entry(node, index, factors), (node, index)
                else:
                    below = list(ends(net, factors, node.outputs)) or [(0.0, None)]
                    yield from ((end, (node, index)) for end, _ in below)


def one_factor(found):
    return len(set(found)) == 1 and set(found) != {0.0}


def expected(net, factors, set_number):
    """Types, conversions and own conversions by their definition, from the ends of all ways."""
    types, shared, own = {}, set(), set()
    for tensor in net.shapes:
        node = net.producer(tensor)
        ways = list(ends(net, factors, [tensor]))
        moving = node is not None and OPS[node.op].kind is OperatorKind.MOVING
        alike = list(ends(net, factors, node.outputs)) if moving else ways
        precise = node is not None and OPS[node.op].kind is OperatorKind.PRECISE
        types[tensor] = N if ways and one_factor([end for end, _ in alike]) and not precise else W
        if types[tensor] is N:
            continue
        serving = []
        for end, reader in ways:
            if reader is not None and end > 0:
                behind = reader[0].outputs if entry(*reader, factors) is None else []
                if not behind or one_factor([e for e, _ in ends(net, factors, behind)]):
                    serving.append((end, (reader[0].name, reader[1])))
        for factor in {end for end, _ in serving}:
            readers = [reader for end, reader in serving if end == factor]
            if len(readers) > set_number:
                shared.add((tensor, factor, frozenset(readers)))
            else:
                own.update((tensor, factor, frozenset([reader])) for reader in readers)
    return types, shared, own


def as_set(conversions):
    return {(c.tensor, c.factor, frozenset(c.readers)) for c in conversions}


@pytest.mark.slow
@examples(200)
@given(networks(), st.integers(0, 3))
def test_random_graphs_against_every_way(example, set_number):
    net, factors = example
    types = assign(net, factors, conversions_from=set_number)
    assert types.entries == {name: Counter(found) for name, found in walked(net, factors).items()}
    assert (types.tensors, as_set(types.conversions), as_set(types.own)) == expected(net, factors, set_number)


@pytest.mark.slow
@examples(200)
@given(networks())
def test_random_graphs_are_consistent(example):
    net, factors = example
    types = assign(net, factors)
    own = {reader for conversion in types.own for reader in conversion.readers}
    served = {reader for conversion in types.conversions for reader in conversion.readers}
    assert not own & served and all(types.inputs[key] is W for key in own)
    for node in net.nodes:
        kind = OPS[node.op].kind
        read = [name for name in node.outputs if types.entries[name]]
        for index, name in enumerate(node.inputs):
            key = node.name, index
            assert types.inputs[key] is (N if types.tensors[name] is N or key in served else W)
            narrow = types.inputs[key] is N or key in own
            assert narrow is (entry(node, index, factors) != 0.0) or kind is OperatorKind.MOVING
            if kind is OperatorKind.MOVING:
                assert {types.tensors[result] is N for result in read} <= {narrow}
    assert all(types.tensors[name] is W for name in net.outputs)
    assert set(types.forms) == {node.name for node in net.nodes if OPS[node.op].kind is OperatorKind.QUANTISED}
    for name, form in types.forms.items():
        node = next(node for node in net.nodes if node.name == name)
        inputs = [types.inputs[name, index] for index in range(len(node.inputs)) if entry(node, index, factors)]
        assert form.reads_narrow is (set(inputs) == {N})
        assert form.writes_narrow is ({types.tensors[t] for t in node.outputs} == {N})


@pytest.mark.slow
@examples(200)
@given(networks())
def test_there_are_never_more_conversions_than_before(example):
    net, _ = example
    for row in graph_rows(net, TINY):
        readers = sum(name == row.name for node in net.nodes for name in node.inputs)
        assert row.conversions_after <= 1 + readers and row.bytes_before == 16 * (
            1 + readers + (row.name in net.outputs)
        )
