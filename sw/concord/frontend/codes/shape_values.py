"""Shapes of tensors, and what a model computes of them and of other constants, as constants.

The number of samples is open in most models. It is a number of its own here, so large that no other size is a multiple
of it: products with it and lists that have it in front can be told when a Reshape reads them.
"""

from __future__ import annotations

from concord.frontend.codes.reading import Reading
from concord.frontend.context import OnnxNode
from concord.frontend.folding import OF_SHAPES, evaluated

#: Stands for the number of samples, where it is open.
SAMPLES = (1 << 40) + 15
#: Operators that read constants as no other part of the project does it.
_OTHERS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Clip")


def is_folded(ctx: Reading, node: OnnxNode) -> bool:
    """Compute a node of shapes or constants alone; ``False`` if it is another one."""
    if not node.standard or node.op in _OTHERS:
        return False
    if node.op in ("Shape", "Size") and node.input(0) not in ctx.weights:
        ctx.constants[node.outputs[0]] = OF_SHAPES[node.op](node, _shape(ctx, node.input(0)))
        return True
    names = [name for name in node.inputs if name]
    if not names or not all(name in ctx.constants for name in names):
        return False
    operands = {name: ctx.constants[name] for name in names}
    values = evaluated(node, operands, ctx.opset, "export it with a fixed number of samples")
    ctx.constants.update((name, value) for name, value in zip(node.outputs, values, strict=False) if name)
    return True


def _shape(ctx: Reading, name: str) -> tuple[int, ...]:
    """The shape of a tensor; the number of samples may be open."""
    sizes = ctx.sizes_of(name)
    if name in ctx.constants or all(shape[:1] != (None,) for shape in ctx.graph.shapes.values()):
        return sizes
    return (sizes[0] * SAMPLES, *sizes[1:])
