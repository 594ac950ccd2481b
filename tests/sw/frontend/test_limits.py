"""Models with more nodes than any program: they are counted before functions are inlined, and refused at once."""

from itertools import pairwise

import pytest
from onnx import helper

from concord.frontend import import_model
from concord.frontend.limits import MOST_NODES
from concord.frontend.load import node_count
from support.onnx_models import info, model, node

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def nested(levels, calls=2):
    """Functions, each of which calls the one before it several times."""
    functions = [helper.make_function("own", "F0", ["x"], ["y"], [node("Relu", ["x"], ["y"])], OPSETS)]
    for k in range(1, levels):
        names = ["x", *(f"t{i}" for i in range(calls - 1)), "y"]
        body = [node(f"F{k - 1}", [a], [b], domain="own") for a, b in pairwise(names)]
        functions.append(helper.make_function("own", f"F{k}", ["x"], ["y"], body, OPSETS))
    proto = model([node(f"F{levels - 1}", ["x"], ["y"], domain="own")], {"x": (1, 4)}, domains=["own"])
    proto.functions.extend(functions)
    return proto


def chain(count):
    return model([node("Relu", [f"t{k}"], [f"t{k + 1}"]) for k in range(count)], {"t0": (1, 4)}, [f"t{count}"])


@pytest.mark.parametrize(
    ("proto", "count"),
    [(nested(28), "134,217,728"), (nested(15), "16,384"), (nested(60), "2^59 or more"), (nested(99), "2^98 or more"),
     (nested(3, 100), "10,000"), (chain(MOST_NODES + 1), "8,193")],
    ids=["28 twice", "15 twice", "60 twice", "99 twice", "3 times 100", "a chain"],
)  # fmt: skip
def test_too_many_nodes(proto, count):
    """Neither time nor memory: what would be 2^98 nodes is refused as fast as any."""
    with pytest.raises(ValueError, match=rf"^model must have at most 8,192 nodes.*, not {count.replace('^', '.')}"):
        import_model(proto)


def test_the_count_is_that_of_what_is_inlined():
    for proto in (nested(1), nested(4), nested(3, 5), chain(7)):
        assert node_count(proto) == len(import_model(proto).nodes)


def test_bodies_of_control_flow_count():
    body = helper.make_graph([node("F3", ["x"], ["z"], domain="own")], "body", [], [info("z", (1, 4))])
    proto = nested(4)
    proto.graph.node.append(helper.make_node("If", ["c"], ["w"], then_branch=body, else_branch=body))
    assert node_count(proto) == 8 + 1 + 2 * 8


def test_functions_that_call_themselves():
    first, second = nested(2).functions
    first.node[0].op_type, first.node[0].domain = "F1", "own"
    proto = nested(2)
    del proto.functions[:]
    proto.functions.extend([first, second])
    with pytest.raises(ValueError, match=r"must not call itself|must be valid ONNX"):
        import_model(proto)
    with pytest.raises(ValueError, match="function 'F1' must not call itself, also not by way of others"):
        node_count(proto)


def test_the_message_says_that_functions_count():
    with pytest.raises(
        ValueError, match="nodes, with the nodes of every function wherever it is called, not 134,217,728"
    ):
        import_model(nested(28))
    with pytest.raises(ValueError, match="at most 8,192 nodes, not 8,193: a program has an instruction or more"):
        import_model(chain(MOST_NODES + 1))
