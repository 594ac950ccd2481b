"""Summary of a model, in a line."""

from __future__ import annotations

from concord.derive import ir


def summary(model: ir.Model) -> str:
    """Layers, operations, loops, and gathers that have no simpler form."""
    layers = len(dict.fromkeys(node.layer for node in model.body if any(pc >= 0 for pc in node.pcs)))
    loops = [node for node in model.body if isinstance(node, ir.Loop)]
    nodes = [node for body in (model.body, *(loop.body for loop in loops)) for node in body]
    operations = [node for node in nodes if not isinstance(node, ir.Constant | ir.Loop)]
    gathers = sum(isinstance(node, ir.Gather) for node in nodes)
    iterations = ", ".join(f"{loop.count} iterations of {loop.layer or 'a loop'}" for loop in loops)
    words = [f"{layers} layers", f"{len(operations)} operations"]
    words += [iterations] if iterations else []
    words += [f"{gathers} gathers"] if gathers else []
    return ", ".join(words)
