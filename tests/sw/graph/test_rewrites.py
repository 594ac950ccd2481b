"""Every rewrite rule on graphs in which it applies: the same results in double precision, and nothing else is lost.

Sums of products of the numbers that are drawn are exact, so results are the same to the bit unless a rule divides,
takes a root or looks a function up.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import Phase, assume, given, reject, settings
from hypothesis import strategies as st

import support.rewritten_graphs as draw
from concord.compiler.ir.table_segments import divided
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.compiler.lowering import decomposition, fake_quantization
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.lowering.rules import EXPANSIONS, lowered
from concord.compiler.pipeline.column import TABLES
from concord.frontend import masks
from concord.functions import FUNCTIONS
from concord.golden.codes import Codes
from concord.graph import passes
from concord.graph.equalised import equalised, with_preparation
from concord.graph.execute import run
from concord.graph.ir import Graph, Node
from concord.graph.level import problems
from concord.graph.ops.elementwise import FunctionAttributes
from concord.graph.passes.batch import with_batch
from concord.spec.presets import TINY
from support.expressions import ROOMY, graph_of
from support.property_tests import examples
from support.rewritten_graphs import Drawn

#: Distance of neighbouring numbers at 1.
ULP = 2.0**-52


@dataclass(frozen=True)
class Rule:
    """A rule, and the graphs that it is for.

    Parameters
    ----------
    make : callable
        ``make(drawn)``: a graph to which it applies.
    apply : callable
        ``apply(graph, inputs)``: the graph that it makes of a copy.
    gone : tuple of str
        Operators that there are none of afterwards.
    ulps : float
        Largest difference of results, in units of the last place of the largest number there is in the graph.
    done : callable
        ``done(graph)``: whether it has done its work.
    coded : bool
        Whether tensors may have codes before.
    always : bool
        Whether it applies to every graph; else those to which it does not are left out.
    side_by_side : bool
        Whether all samples are one of the graph afterwards.
    """

    make: Callable[[Drawn], Graph]
    apply: Callable
    gone: tuple[str, ...] = ()
    ulps: float = 0.0
    done: Callable[[Graph], bool] = bool
    coded: bool = True
    always: bool = True
    side_by_side: bool = False

    def __call__(self, graph, inputs):
        made = graph.copy()
        made.quantization = dict(graph.quantization)
        return self.apply(made, inputs) or made


def _pass(module, make, *gone, ulps=0.0):
    return Rule(make, lambda graph, inputs: module.run(graph), gone, ulps)


def _uncentred(graph):
    return not any(node.attrs.get("centred") for node in graph.nodes)


def _line(name, **parameters):
    return _pass(passes.piecewise, draw.one_function([name], **parameters), "Function", ulps=8)


def _decomposed(make, ulps=8.0):
    def apply(graph, inputs):
        return decomposition.decompose(graph, TINY, draw.bounds_of(graph, inputs))

    return Rule(make, apply, (), ulps)


def _equalised(graph, inputs):
    scales = draw.random_scales(graph, np.random.default_rng(len(graph.nodes)))
    return with_preparation(equalised(graph, scales), scales)


def _lowered(graph, config=ROOMY, formats=DEFAULT):
    try:
        return lowered(graph, config, formats=formats).graph
    except Unsupported:
        reject()


def _in_segments(graph, inputs):
    """With several tables, as samples ask for."""
    node = graph.nodes[0]
    tables = divided(node.attributes(FunctionAttributes).spec, np.sort(inputs[graph.inputs[0]], axis=None), 3, 96)
    return _lowered(graph, formats=Formats(table_segments={node.name: tables or reject()}))


def _expanded(op, make):
    """Nodes in the place of one that is lowered, with sums of a few terms where only long ones need stages."""
    if op == "Function":
        return Rule(make, _in_segments, ulps=8, coded=False)
    config = ROOMY.replace(max_terms=8) if op in ("AveragePool", "ReduceMean", "ReduceSum") else ROOMY
    ulps = 8.0 if op in ("AveragePool", "LogSoftmax", "Normalise", "ReduceMean", "Softmax") else 0.0
    always = op not in ("Dense", "Pad")  # which depend on where elements lie
    return Rule(make, lambda graph, inputs: _lowered(graph, config), ulps=ulps, coded=False, always=always)


#: Rules by the name of their pass, or of what they rewrite.
RULES = {
    "order": _pass(passes.order, draw.order),
    "dead nodes": _pass(passes.dead, draw.dead),
    "quantised tensors": replace(_pass(passes.fake_quantize, draw.fake_quantize, "FakeQuantize"), coded=False),
    "no-ops": _pass(passes.noops, draw.noops),
    "reshapes": _pass(passes.reshapes, draw.reshapes),
    "uneven windows": _pass(passes.uneven_windows, draw.uneven_windows, "Pick", ulps=8),
    "gelu": _pass(passes.gelu, draw.gelu, "Add", ulps=8),
    "leaky_relu": _line("leaky_relu", alpha=(0.0, 0.01, 1.0, -1.0, -0.5, 2.0, -3.0)),
    "hardsigmoid": _line("hardsigmoid", alpha=(0.0, 0.2, -0.5, 40.0, -2000.0), beta=(0.5, 0.0, 3.0)),
    "hardswish": _line("hardswish"),
    "fold affine": _pass(passes.fold_affine, draw.fold_affine, "Add", "Sub", "Mul"),
    "fold padding": _pass(passes.fold_pad, draw.fold_pad, "Pad"),
    "join functions": _pass(passes.functions, draw.functions, ulps=8),
    "normalisations": _pass(passes.normalisations, draw.normalisations, "Function", ulps=64),
    "sums of constants": _pass(passes.offsets, draw.offsets),
    "centring": replace(_pass(passes.centring, draw.centring, ulps=64), done=_uncentred),
    "scales": _pass(passes.scales, draw.scales),
    "masks": Rule(draw.masks, lambda graph, inputs: masks.limit(graph)),
    "equalisation": Rule(draw.equalisation, _equalised),
    "batch": Rule(draw.batch, lambda graph, inputs: with_batch(graph, 3), coded=False, side_by_side=True),
    "rounding to codes": Rule(
        draw.rounding_to_codes, lambda graph, inputs: fake_quantization.spread(graph, TINY), ("FakeQuantize",)
    ),
    **{f"decomposed {' '.join(names)}": _decomposed(draw.one_function(names)) for names in decomposition.RULES},
    **{f"lowered {op}": _expanded(op, make) for op, make in draw.EXPANDED.items()},
    **{f"tables of {name}": _decomposed(draw.power(name)) for name, each in FUNCTIONS.items() if each.octaves},
}


def marks(name):
    """Passes after import are checked at once."""
    return [pytest.mark.slow] if name.startswith(("lowered", "decomposed", "tables")) else []


def compared(rule, graph, inputs, applies, left=None):
    """Check that a rule changes no result, and that it loses no name and no codes."""
    kept = run(graph, inputs, keep="all")
    after = rule(graph, inputs)
    assert list(problems(after)) == []
    assert after.outputs == graph.outputs and after.inputs == graph.inputs
    if rule.side_by_side:
        results = run(after, {key: value.swapaxes(0, 1) for key, value in inputs.items()})
        results = {key: value.swapaxes(0, 1) for key, value in results.items()}
    else:
        results = run(after, inputs)
    largest = max(float(np.abs(each[np.isfinite(each)]).max(initial=1.0)) for each in kept.values())
    for name in graph.outputs:
        np.testing.assert_allclose(results[name], kept[name], rtol=0, atol=rule.ulps * ULP * largest**2)
    for name, each in graph.quantization.items():
        assert any(each == other for other in after.quantization.values()), name
    weights = {node.name: node.attrs["weight"] for node in after.nodes if "weight" in node.attrs}
    for node in graph.nodes:
        if node.name in graph.weight_quantization:
            assert np.array_equal(weights[node.name], node.attrs["weight"])
    if applies:
        applied = [str(node) for node in after.nodes] != [str(node) for node in graph.nodes] or rule.side_by_side
        assume(applied or rule.always)
        assert applied and rule.done(after) and not any(node.op in rule.gone for node in after.nodes)
        assert set(after.shapes) == {*after.inputs, *(name for node in after.nodes for name in node.outputs)}
        assert left in (None, len(after.nodes))


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in RULES])
@given(data=st.data())
@settings(examples(30), phases=[Phase.generate])
def test_results_stay(name, data):
    """Where the rule applies, where it may nearly apply, and where somebody else sees a tensor in between.

    An exporter may have chosen codes for that tensor, or for all weights. Graphs are small as they are drawn, and
    smaller ones that fail, too, are not looked for, which takes minutes.
    """
    rule, drawn = RULES[name], Drawn(data.draw)
    graph = rule.make(drawn)
    compared(rule, graph, drawn.x, applies=True, left=drawn.left)
    drawn = Drawn(data.draw, near=data.draw(st.booleans()))
    graph = rule.make(drawn)
    passes.dead.run(graph)
    (tensor, *_) = drawn.pick(*graph.nodes).outputs
    what = drawn.pick("nothing", "output", "reader", *["codes", "weights"] * rule.coded)
    if what == "reader":
        drawn.nodes = list(graph.nodes)
        graph = drawn.graph(*graph.outputs, drawn.add("Relu", tensor))
    elif what == "output":
        graph.outputs = [*dict.fromkeys([*graph.outputs, tensor])]
    elif what == "codes":
        graph.quantization = {tensor: Codes(8, 0.5)}
    elif what == "weights":
        graph.weight_quantization = {each.name: None for each in graph.nodes if "weight" in each.attrs}
    compared(rule, graph, drawn.x, applies=False)


def test_every_rule_has_graphs():
    names = {each.name for each in passes.AFTER_IMPORT} | {each.name for each in TABLES.passes}
    names -= {"piecewise functions", "function decomposition"}  # of which there are rules
    names -= {"bounds"}  # which rewrites nothing
    names |= {*passes.piecewise.LINES, *(f"decomposed {' '.join(each)}" for each in decomposition.RULES)}
    names |= {f"lowered {op}" for op in EXPANSIONS}
    assert names - {*RULES} == set()


def test_one_over_a_root_is_a_function_by_itself():
    """That one has several tables, and no entry at zero."""
    chain = [
        Node("Function", name, (x,), (name,), {"functions": ((name, {}),)})
        for x, name in (("x", "sqrt"), ("sqrt", "reciprocal"))
    ]
    graph = graph_of(chain, x=(2, 3))
    passes.functions.run(graph)
    assert [node.attrs["functions"] for node in graph.nodes] == [(("rsqrt", {}),)]
