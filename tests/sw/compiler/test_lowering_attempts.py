"""Attempts of lowering: what is refused leaves no layer behind."""

import pytest

from concord.compiler.ir.layers import MfuStep
from concord.compiler.ir.layout import LayoutError
from concord.compiler.lowering.lower import Lowering
from concord.compiler.lowering.rules import RULES
from concord.graph.ir import Graph, Node
from concord.spec.isa import Op
from support.expressions import ROOMY

NODE = Node("Relu", "relu", ("x",), ("y",))


def refused(ids, target):
    raise LayoutError("operand must be elsewhere")


def too_long(ids, target):
    return [MfuStep(Op.V_RELU)] * 9


@pytest.mark.parametrize(("make", "text"), [(refused, "elsewhere"), (too_long, "more stages")])
def test_a_refused_operation_leaves_no_layer(make, text):
    lowering = Lowering(Graph("net", [NODE], ["x"], ["y"], {"x": (1, 8), "y": (1, 8)}), ROOMY, RULES)
    with pytest.raises(LayoutError, match=text):
        lowering.elementwise(NODE, make, "x")
    assert lowering.done.layers == [] and list(lowering.done.views) == ["x"]
    lowering.elementwise(NODE, lambda ids, target: [MfuStep(Op.V_RELU)], "x")
    assert [layer.name for layer in lowering.done.layers] == ["relu"] and set(lowering.done.views) == {"x", "y"}
