"""Share of a network that the host computes, and what it changes on the link, in words."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from concord.compiler.codes.package import CodesPackage
from concord.compiler.model import Compiled
from concord.graph.cost import macs
from concord.graph.host_operations import Action
from concord.graph.host_rules import has_operations, operations
from concord.graph.ir import Graph

#: Share of the multiply-accumulates of a network below which a user is told that the NPU does little of it.
_LITTLE = 0.1
#: Seconds that the host takes for one.
_SECONDS = 20e-9
_MOVES = (Action.RESHAPE, Action.TRANSPOSE, Action.CONCAT, Action.SLICE, Action.FILL)


def host_work(part: Graph) -> int:
    """Operations of one sample that the host computes, moves left out; nodes without a rule count by their results."""
    if not all(map(has_operations, part.nodes)):
        return sum(prod(part.shapes[name]) for node in part.nodes for name in node.outputs if name)
    made = operations(part)
    shapes = {name: part.shapes[name] for name in part.inputs} | {item.output: item.shape for item in made}

    def size(operation: Action, shape: tuple[int, ...], first: tuple[int, ...]) -> int:
        reads = operation in (Action.SUM, Action.GREATEST)
        return prod(first if reads else shape)

    return sum(
        size(item.action, item.shape, shapes[item.operands[0]] if isinstance(item.operands[0], str) else ())
        for item in made
        if item.action not in _MOVES
    )


def host_lines(compiled: Compiled) -> Iterator[str]:
    """A line for what the host computes in front of the NPU, one for what it computes after, and one for its share."""
    package, multiplied = compiled.package, macs(compiled.npu)
    if isinstance(package, CodesPackage) and package.split.host:
        yield f"the host computes {', '.join(package.host_operations)}"
    for where, part in (("in front of", package.front), ("behind", package.host_graph)):
        if part is None:
            continue
        work, beside = host_work(part), package.arrangement.beside  # what the NPU does not see
        reads = [name for name in part.inputs if part is package.front or name not in beside]
        writes = [name for name in part.outputs if part is not package.front or name not in beside]
        ops = ", ".join(dict.fromkeys(node.op for node in part.nodes))
        yield (
            f"{where} the NPU the host computes {ops}: {work:,} operations a sample, beside {multiplied:,} "
            f"multiply-accumulates of the NPU; {_values(reads, part)} become {_values(writes, part)}"
        )
    if own := _macs_of_host(compiled):
        share = 100 * own / (own + multiplied)
        yield f"the host computes {own:,} of {own + multiplied:,} multiply-accumulates of the network ({share:.3g} %)"


def share_warnings(compiled: Compiled) -> list[str]:
    """Line about a network of which the NPU computes less than a tenth; empty if it computes more."""
    own, others = macs(compiled.npu), _macs_of_host(compiled)
    if own >= _LITTLE * (own + others):
        return []
    share, seconds = 100 * own / (own + others), others * _SECONDS
    what = f"the NPU computes {share:.3g} % of the multiply-accumulates alone"
    remedy = "take a larger NPU (--preset, --board) or a smaller network"
    return [f"{what}, and the host takes some {seconds:.2g} s a sample for the others; {remedy}"]


def _macs_of_host(compiled: Compiled) -> int:
    return sum(macs(part) for part in (compiled.package.front, compiled.package.host_graph) if part is not None)


def _values(names: list[str], part: Graph) -> str:
    count = sum(prod(part.sample_shape(name)) for name in names)
    return f"{count:,} values" if count != 1 else "1 value"
