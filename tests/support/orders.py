"""Other orders of the nodes of a network, in each of which operands come before results."""

from itertools import islice

import numpy as np


def orders(nodes, inputs_of, outputs_of, count, seed=0):
    """Up to ``count`` different orders, as lists of nodes: all of them if there are no more, else random ones.

    ``inputs_of`` and ``outputs_of`` give the names of tensors of a node.
    """
    computed = {name: k for k, node in enumerate(nodes) for name in outputs_of(node) if name}
    needed = [{computed[name] for name in inputs_of(node) if name in computed} for node in nodes]
    found = [list(order) for order in islice(_all(needed, []), count + 1)]
    if len(found) > count:
        rng = np.random.default_rng(seed)
        found = [_random(needed, rng) for _ in range(count)]
    return [[nodes[k] for k in order] for order in dict.fromkeys(map(tuple, found))]


def _ready(needed, done):
    return [k for k in range(len(needed)) if k not in done and needed[k] <= set(done)]


def _all(needed, done):
    if len(done) == len(needed):
        yield tuple(done)
    for k in _ready(needed, done):
        yield from _all(needed, [*done, k])


def _random(needed, rng):
    done, missing = [], [len(one) for one in needed]
    readers = [[k for k, one in enumerate(needed) if j in one] for j in range(len(needed))]
    ready = [k for k, count in enumerate(missing) if count == 0]
    while ready:
        done.append(ready.pop(int(rng.integers(len(ready)))))
        for k in readers[done[-1]]:
            missing[k] -= 1
            if missing[k] == 0:
                ready.append(k)
    return done


def of_graph(graph, count, seed=0):
    """Orders of the nodes of a graph."""
    return orders(graph.nodes, lambda node: node.inputs, lambda node: node.outputs, count, seed)


def of_model(proto, count, seed=0):
    """Models that list their nodes in other orders."""
    for nodes in orders(list(proto.graph.node), lambda node: node.input, lambda node: node.output, count, seed):
        other = type(proto)()
        other.CopyFrom(proto)
        del other.graph.node[:]
        other.graph.node.extend(nodes)
        yield other
