"""Costs of programs: cycles do not depend on exponents, and equal programs are counted once."""

import pytest

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.compiler.pipeline import costs
from concord.cycles import count
from concord.graph.ir import Graph
from concord.spec.isa import OPCODE_BITS, Op
from concord.spec.presets import TINY
from support.compiled_nets import residual
from support.expressions import ROOMY
from support.row_tiled_nets import random_net


def static(graph: Graph, config, exponent: int):
    """A network with the same static exponent everywhere."""
    tensors = [layer.tensor for layer in compile_graph(graph, config).lowered.layers]
    return compile_graph(graph, config, Formats(exponents=dict.fromkeys(tensors, exponent)))


@pytest.mark.parametrize("config", [ROOMY, TINY], ids=lambda config: config.name)
def test_exponents_take_no_cycles(config):
    words = static(residual(), config, 3).image.program
    assert any(word % (1 << OPCODE_BITS) == Op.SET_QUANT for word in words)
    plain = costs._untimed(words)
    assert plain != tuple(words) and len(plain) == len(words)
    assert plain == costs._untimed(static(residual(), config, -4).image.program)
    assert count(plain, config).cycles == count(words, config).cycles > 0


@pytest.fixture
def counted(monkeypatch):
    """Programs that were counted."""
    found = []
    monkeypatch.setattr(costs, "count", lambda words, config, pc: found.append(words) or count(words, config, pc))
    costs._cycles.cache_clear()
    yield found
    costs._cycles.cache_clear()


@pytest.mark.slow
def test_programs_that_differ_in_exponents_are_counted_once(counted):
    graph = random_net(1)
    first = static(graph, TINY, 3)
    assert counted
    before = len(counted)
    again = static(graph, TINY, -4)
    assert len(counted) == before
    assert again.image.program != first.image.program
    assert again.strategies == first.strategies
