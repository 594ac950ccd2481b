"""Graphs in a line per node, with two operators more, and random ones; for the tests of the data-type pass."""

from contextlib import contextmanager

import pytest
from hypothesis import strategies as st

from concord.graph.ir import Graph, Node
from concord.graph.ops import OPS, Operator, OperatorKind
from concord.graph.ops.attributes import NoAttributes
from concord.graph.passes.dtypes import Dtype
from support.operator_examples import EXAMPLES

W, N = Dtype.WIDE, Dtype.NARROW
MORE = {"Split": OperatorKind.MOVING, "Twin": OperatorKind.PRECISE}
#: Inputs and outputs of operators in random graphs.
CHOICE = {"Dense": (1, 1), "Relu": (1, 1), "Slice": (1, 1), "Concat": (3, 1), "Add": (2, 1), "Softmax": (1, 1),
          "Split": (1, 2), "Twin": (1, 2), "LSTM": (3, 3)}  # fmt: skip


@contextmanager
def operators_with_two_outputs():
    """What the source speaks of and graphs do not have: a Split is several Slices there, other layers are fused."""
    with pytest.MonkeyPatch.context() as patch:
        for op, kind in MORE.items():
            patch.setitem(OPS, op, Operator(kind, NoAttributes, None, None))
        yield


def graph(*lines, outputs=(), shape=(1, 8)):
    """A graph of lines ``Op name inputs > outputs``; ``-`` is left out, what nothing computes is an input."""
    nodes = []
    for line in lines:
        left, right = line.split(">")
        op, name, *inputs = left.split()
        names = [tuple("" if t == "-" else t for t in part) for part in (inputs, right.split())]
        attrs = EXAMPLES[op][0] if op in EXAMPLES else {}  # types do not depend on them
        nodes.append(Node(op, name, *names, dict(attrs)))
    computed = [t for node in nodes for t in node.outputs if t]
    inputs = list(dict.fromkeys(t for node in nodes for t in node.inputs if t and t not in computed))
    made = Graph("net", nodes, inputs, list(outputs), dict.fromkeys([*inputs, *computed], shape))
    made.check()
    return made


def kinds(types, names):
    return "".join("n" if types.tensors[name] is N else "w" for name in names.split())


@st.composite
def networks(draw):
    """A graph and factors."""
    tensors, lines, factors = ["x0", "x1"], [], {}
    for k in range(draw(st.integers(1, 9))):
        op = draw(st.sampled_from(sorted(CHOICE)))
        reads, writes = CHOICE[op]
        last = tensors[-4:] if draw(st.booleans()) else tensors
        inputs = [draw(st.sampled_from(last)) for _ in range(reads)]
        outputs = [f"t{k}.{i}" for i in range(writes)]
        lines.append(f"{op} n{k} {' '.join(inputs)} > {' '.join(outputs)}")
        tensors += outputs
        if OPS[op].kind is OperatorKind.QUANTISED and draw(st.integers(0, 3)) == 0:
            factors[f"n{k}", 0] = 2.0
    used = {name for line in lines for name in line.split()}
    tensors = [name for name in tensors if name in used]
    outputs = draw(st.lists(st.sampled_from(tensors), unique=True, max_size=2))
    return graph(*lines, outputs=outputs), factors
