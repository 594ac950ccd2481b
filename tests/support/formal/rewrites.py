"""Rewrite rules of graphs: the rule itself rewrites a graph whose numbers are symbols, and both graphs are the same.

Numbers are reals: what is rounded differs in the order of operations alone. Of a root, its reciprocal and an error
function nothing is used but that equal numbers have equal ones.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import z3

from concord.graph import ir
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.graph.ops.linear import ConvAttributes, _products
from concord.graph.ops.windows import windows
from concord.graph.passes import centring, fold_affine, gelu, normalisations, offsets, reshapes

from .mutant import Change, changed
from .proof import _MAKING, Outcome, Result

_ROOT, _INVERSE, _ERF = (z3.Function(name, z3.RealSort(), z3.RealSort()) for name in ("root", "inverse", "erf"))
#: Numbers that are tried for all symbols where the solver does not find any that differ.
_TRIED = (2, 3, 5, 7, 11, 13)


class Number:
    """A term over reals, with the operations that the rules and the operators of a graph use."""

    def __init__(self, term: z3.ArithRef):
        self.term = term

    @staticmethod
    def of(value: object) -> z3.ArithRef:
        return value.term if isinstance(value, Number) else z3.RealVal(repr(float(value)))

    def __add__(self, other: object) -> Number:
        return Number(self.term + self.of(other))

    def __sub__(self, other: object) -> Number:
        return Number(self.term - self.of(other))

    def __rsub__(self, other: object) -> Number:
        return Number(self.of(other) - self.term)

    def __mul__(self, other: object) -> Number:
        return Number(self.term * self.of(other))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Number:
        return Number(-self.term)

    def __truediv__(self, other: object) -> Number:
        divisor = self.of(other)
        return Number(self.term / divisor if z3.is_rational_value(divisor) else self.term * _INVERSE(divisor))

    def __rtruediv__(self, other: object) -> Number:
        return Number(self.of(other)) / self

    def sqrt(self) -> Number:
        """The root, as NumPy asks for it."""
        return Number(_ROOT(z3.simplify(self.term, som=True)))

    def erf(self) -> Number:
        return Number(_ERF(z3.simplify(self.term, som=True)))

    def gelu(self) -> Number:
        return self * (1 + (self * math.sqrt(0.5)).erf()) * 0.5

    def rsqrt(self) -> Number:
        return self.sqrt().reciprocal()

    def reciprocal(self) -> Number:
        return 1 / self


def symbols(name: str, *shape: int) -> np.ndarray:
    """An array of symbols."""
    array = np.empty(shape, object)
    for index in np.ndindex(*shape):
        array[index] = Number(z3.Real("_".join(map(str, (name, *index)))))
    return array


def computed(graph: Graph) -> list[Number]:
    """The elements of the outputs, by the operators of the graph; inputs are symbols with their names."""
    values = {name: symbols(name, 1, *graph.shapes[name]) for name in graph.inputs}
    for node in graph.nodes:
        inputs = [values[name] for name in node.inputs]
        if node.op == "Function":
            (made,) = inputs
            for name, _ in node.attrs["functions"]:
                made = np.frompyfunc(lambda number, name=name: getattr(number, name)(), 1, 1)(made)
        elif node.op == "Conv":  # whose evaluation has room for floats alone
            attributes = node.attributes(ConvAttributes)
            view = windows(attributes, attributes.weight.shape[2:], inputs[0][0], 0.0)
            bias = attributes.bias.reshape(-1, *[1] * (view.ndim // 2 - 1))
            made = (_products(attributes, view) + bias)[None]
        else:
            arrays = {key: np.asarray(value) for key, value in node.attrs.items() if isinstance(value, Number)}
            (made,) = operator_of(node).evaluate(node.with_attrs(**arrays), inputs)
        values[node.outputs[0]] = made
    return [number for name in graph.outputs for number in values[name].reshape(-1)]


class Extent:
    """The length of an axis that is longer than 1."""

    def __init__(self, term: z3.ArithRef):
        self.term = term

    def __gt__(self, other: int) -> bool:
        if other != 1:
            raise ValueError(f"other must be 1, not {other!r}")
        return True


def moved(graph: Graph) -> list[Number]:
    """The place of the element of the input, as an index of its elements, from which an element of the output comes.

    Of Transposes and Reshapes. A Reshape between other axes than those of length 1 is any that keeps the order of all
    elements: where it reads an input it does, elsewhere nothing is known of it.
    """
    (name,) = graph.outputs
    shape = graph.shapes[name]
    index = {axis: z3.Int(f"index_{axis}") for axis, size in enumerate(shape) if isinstance(size, Extent)}
    while (node := graph.producer(name)) is not None:
        name = node.inputs[0]
        before, shape = shape, graph.shapes[name]
        if node.op == "Transpose":
            index = {axis: index[k] for k, axis in enumerate(node.attrs["perm"]) if k in index}
        elif [size for size in before if isinstance(size, Extent)] == [s for s in shape if isinstance(s, Extent)]:
            long = (axis for axis, size in enumerate(shape) if isinstance(size, Extent))
            index = dict(zip(long, (index[axis] for axis in sorted(index)), strict=True))
        elif name in graph.inputs:
            shape = before
        else:
            return [Number(z3.Int("unknown"))]
    if not all(isinstance(shape[axis], Extent) for axis in index):
        return [Number(z3.Int("unknown"))]
    place = z3.IntVal(0)
    for axis, part in sorted(index.items()):
        place = place * shape[axis].term + part
    return [Number(place)]


@contextmanager
def _any_attributes() -> Iterator[None]:
    """Let nodes have symbols as attributes."""
    known, ir.OPS = ir.OPS, {}
    try:
        yield
    finally:
        ir.OPS = known


@dataclass(frozen=True)
class Rewrite:
    """A rule that changes no result.

    Parameters
    ----------
    unit, text : str
        What it is about, and what must hold, for people.
    module : module
        The pass, with ``run(graph)``.
    graphs : callable
        Graphs with symbols, with the largest number of nodes that the rule leaves.
    results : callable
        Terms of the results of a graph.
    fast, changes
        As in :class:`~support.formal.proof.Sequential`.
    """

    unit: str
    text: str
    module: ModuleType
    graphs: Callable[[], Iterator[tuple[Graph, int]]]
    results: Callable[[Graph], list[Number]] = computed
    fast: bool = False
    changes: tuple[Change, ...] = ()

    def run(self, *, depth: int | None = None, seconds: float | None = None, change: Change | None = None) -> Outcome:
        begin, count, result = time.monotonic(), 0, Result.PROVEN
        with _MAKING, changed(change), _any_attributes():
            for graph, left in self.graphs():
                before, after = graph.copy(), graph.copy()
                self.module.run(after)
                if len(after.nodes) > left:
                    result = Result.EMPTY
                    break
                if (result := _same(self.results(before), self.results(after), seconds)) is not Result.PROVEN:
                    break
                count += 1
        return Outcome(result, f"all numbers, {count} graphs", time.monotonic() - begin)


def _same(first: list[Number], second: list[Number], seconds: float | None) -> Result:
    """Whether terms are equal for all values of their symbols."""
    if len(first) != len(second):
        return Result.FAILED
    rest = [z3.simplify(a.term - b.term, som=True) for a, b in zip(first, second, strict=True)]
    rest = [each for each in rest if not (z3.is_rational_value(each) or z3.is_int_value(each)) or each.as_long() != 0]
    if not rest:
        return Result.PROVEN
    solver = z3.Solver()
    if seconds is not None:
        solver.set("timeout", int(1000 * seconds))
    solver.add(z3.Or([each != 0 for each in rest]))
    names = sorted({each for term in rest for each in _constants(term)}, key=str)
    solver.push()
    for name, value in zip(names, itertools.cycle(_TRIED)):
        solver.add(name == value)
    if solver.check() == z3.sat:
        return Result.FAILED
    solver.pop()
    answer = solver.check()
    return Result.PROVEN if answer == z3.unsat else Result.FAILED if answer == z3.sat else Result.OPEN


def _constants(term: z3.ExprRef) -> Iterator[z3.ExprRef]:
    if z3.is_const(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
        yield term
    for child in term.children():
        yield from _constants(child)


# Graphs ------------------------------------------------------------------------------------------


def _graph(nodes: list[Node], shapes: dict[str, tuple[int, ...]], shape: tuple[int, ...] = ()) -> Graph:
    """A graph of nodes that have shapes, or else the one that is given; the last node is its result."""
    made = {**{output: shape for node in nodes for output in node.outputs}, **shapes}
    return Graph("symbols", nodes, ["x"], [nodes[-1].outputs[0]], made)


def _chain(*steps: tuple[str, dict]) -> list[Node]:
    return [Node(op, f"n{k}", (f"t{k - 1}" if k else "x",), (f"t{k}",), attrs) for k, (op, attrs) in enumerate(steps)]


def _products_of_all_kinds() -> Iterator[tuple[tuple[str, dict], tuple[int, ...], tuple[int, ...]]]:
    """A Dense and a Conv of two groups with padding, shape of the input, shape of the constant of a channel."""
    yield ("Dense", {"weight": symbols("w", 2, 3), "bias": symbols("b", 2)}), (2, 3), (2,)
    geometry = {"strides": (1,), "pads": (1, 0), "dilations": (1,), "group": 2}
    yield ("Conv", {"weight": symbols("w", 2, 1, 2), "bias": symbols("b", 2), **geometry}), (1, 2, 2), (2, 1)


def _constants_behind_products() -> Iterator[tuple[Graph, int]]:
    kinds = (("Add", {}), ("Sub", {}), ("Sub", {"reversed": True}), ("Mul", {}))
    for (product, x, channel), kind, other in itertools.product(_products_of_all_kinds(), kinds, kinds):
        y = (2, 2) if product[0] == "Dense" else (1, 2, 2)
        for first, second in (((), channel), (channel, ())):
            constants = {"constant": symbols("c", *first)}, {"constant": symbols("d", *second)}
            steps = product, (kind[0], kind[1] | constants[0]), (other[0], other[1] | constants[1])
            yield _graph(_chain(*steps), {"x": x}, y), 1


def _constants_in_a_row() -> Iterator[tuple[Graph, int]]:
    for first, second in itertools.product(((), (2,), (2, 1), (1, 2)), repeat=2):
        steps = (("Add", {"constant": symbols(name, *shape)}) for name, shape in (("c", first), ("d", second)))
        yield _graph(_chain(*steps), {"x": (2, 2)}, (2, 2)), 1


def _decomposed_normalisations() -> Iterator[tuple[Graph, int]]:
    shape = (2, 2)
    roots = (("rsqrt", {}),), (("sqrt", {}), ("reciprocal", {}))
    for axes, centred, root, scaled in itertools.product(((0,), (1,), (0, 1)), (False, True), roots, (False, True)):
        less = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        mean = {"axes": axes, "keepdims": True}
        y = "y" if centred else "x"
        nodes = [Node("ReduceMean", "m", ("x",), ("m",), mean), Node("Sub", "y", ("x", "m"), ("y",))] if centred else []
        nodes += [
            Node("Mul", "square", (y, y), ("square",)),
            Node("ReduceMean", "mean", ("square",), ("mean",), mean),
            Node("Add", "shifted", ("mean",), ("shifted",), {"constant": np.asarray(0.125)}),
            Node("Function", "root", ("shifted",), ("root",), {"functions": root}),
            Node("Mul", "product", (y, "root"), ("product",)),
        ]
        if scaled:
            nodes.append(Node("Mul", "scale", ("product",), ("scale",), {"constant": symbols("s", 2)}))
        yield _graph(nodes, {"x": shape, **dict.fromkeys(("m", "mean", "shifted", "root"), less)}, shape), 1


def _decomposed_gelus() -> Iterator[tuple[Graph, int]]:
    def half(name: str, x: str) -> Node:
        return Node("Mul", name, (x,), (name,), {"constant": np.asarray(0.5)})

    for order in (1, -1):
        nodes = [
            Node("Mul", "scaled", ("x",), ("scaled",), {"constant": np.asarray(math.sqrt(0.5))}),
            Node("Function", "erf", ("scaled",), ("erf",), {"functions": (("erf", {}),)}),
            Node("Add", "sum", ("erf",), ("sum",), {"constant": np.asarray(1.0)}),
        ]
        for rest in (
            [half("half", "sum"), Node("Mul", "y", ("x", "half")[::order], ("y",))],
            [Node("Mul", "y", ("x", "sum")[::order], ("y",)), half("half", "y")],
            [half("half", "x"), Node("Mul", "y", ("half", "sum")[::order], ("y",))],
        ):
            yield _graph([*nodes, *rest], {"x": (2,)}, (2,)), 2


def _sums_for_normalisations() -> Iterator[tuple[Graph, int]]:
    attrs = {"axes": (1,), "centred": True, "epsilon": 0.125, "scale": np.ones(())}
    for product, x, _ in _products_of_all_kinds():
        if product[0] == "Conv":
            product[1].update(group=1, weight=symbols("w", 2, 2, 2))
        y = (2, 2) if product[0] == "Dense" else (1, 2, 2)
        for shape in ((), (2,) if product[0] == "Dense" else (2, 1)):
            steps = product, ("Sub", {"constant": symbols("c", *shape), "reversed": True}), ("Normalise", attrs)
            yield _graph(_chain(*steps), {"x": x}, y), 3


def _moves() -> Iterator[tuple[Graph, int]]:
    """Transposes of up to four axes, and two of up to three in a row; each axis of any length."""
    for rank in (1, 2, 3, 4):
        for long in itertools.product((False, True), repeat=rank):
            shape = tuple(Extent(z3.Int(f"size_{axis}")) if longer else 1 for axis, longer in enumerate(long))
            for perms in itertools.product(itertools.permutations(range(rank)), repeat=1 if rank == 4 else 2):
                nodes = _chain(*(("Transpose", {"perm": perm}) for perm in perms))
                shapes, kinds = {"x": shape}, set()
                for node in nodes:
                    before, perm = shapes[node.inputs[0]], node.attrs["perm"]
                    shapes[node.outputs[0]] = tuple(before[axis] for axis in perm)
                    order = [axis for axis in perm if isinstance(before[axis], Extent)]
                    kinds.add(order == sorted(order))
                yield _graph(nodes, shapes), len(kinds)


_PASSES = "concord.graph.passes."
PROOFS = (
    Rewrite(
        "constants behind a product", "part of its weights and bias: sums, differences both ways, factors, two of them",
        fold_affine, _constants_behind_products, fast=True,
        changes=(
            Change(_PASSES + "fold_affine", "= -weight, constant - bias", "= -weight, bias - constant"),
            Change(_PASSES + "fold_affine", "weight * factor, bias * constant", "weight * factor, bias"),
        ),
    ),
    Rewrite(
        "constants in a row", "one constant, in all shapes that are broadcast", offsets, _constants_in_a_row, fast=True,
        changes=(Change(_PASSES + "offsets", "first + constant", "first"),),
    ),
    Rewrite(
        "decomposed normalisation", "one node: any axes, with and without mean, scale, either form of the root",
        normalisations, _decomposed_normalisations, fast=True,
        changes=(Change(_PASSES + "normalisations", '"centred": bool(centre)', '"centred": not centre'),),
    ),
    Rewrite(
        "decomposed Gelu", "one function, in any order of the products", gelu, _decomposed_gelus, fast=True,
        changes=(Change(_PASSES + "gelu", "last.name, (x,)", "last.name, (node.inputs[0],)"),),
    ),
    Rewrite(
        "sums for normalisations", "what is centred before needs no mean: products, constants",
        centring, _sums_for_normalisations, fast=True,
        changes=(Change(_PASSES + "centring", ": _less_mean(weights.bias_of(node), 0)", ": weights.bias_of(node)"),),
    ),
    Rewrite(
        "transposed axes of any length", "a Reshape where the order of elements stays; two in a row are one",
        reshapes, _moves, moved, fast=True,
        changes=(
            Change(_PASSES + "reshapes", "(first[axis] for axis in second)", "(second[axis] for axis in first)"),
            Change(_PASSES + "reshapes", "if long == sorted(long)", "if len(long) < 3"),
        ),
    ),
)  # fmt: skip
