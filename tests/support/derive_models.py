"""Small models of :mod:`concord.derive.ir` that together have every node, and samples for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from concord.derive import ir
from concord.derive.checks import check
from concord.derive.flags import every, raisable, with_flags
from concord.golden import binary16
from concord.golden.codes import Codes
from concord.graph.ir import Graph, Node
from concord.graph.ops import operator_of
from concord.operations import OPERATIONS
from concord.spec.formats import BLOCK_ROUNDINGS, BlockFormat, ExponentMode, Rounding
from concord.spec.isa import Op
from support.halves import halves

FORM = BlockFormat(8, 4, -15, 9)


class Maker:
    """Adds nodes one after the other."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.inputs, self.count = [], [], 0
        self.layer = "first"

    def value(self, shape, type=ir.Type.BINARY16, batched=True):
        self.count += 1
        return ir.Value(f"v{self.count}", tuple(shape), type, batched)

    def add(self, kind, shape, type=ir.Type.BINARY16, batched=True, **fields):
        node = kind(output=self.value(shape, type, batched), layer=self.layer, **fields)
        self.nodes.append(node)
        return node.output

    def apply(self, op, *xs):
        """An operation of the multifunction units."""
        shape = np.broadcast_shapes(*(x.shape for x in xs))
        return self.add(ir.Elementwise, shape, operation=OPERATIONS[op], xs=xs)

    def input(self, shape, **prepare):
        given = self.value(shape, ir.Type.REAL)
        self.inputs.append(given)
        ready = self.add(ir.Prepare, shape, ir.Type.REAL, x=given, **prepare)
        return self.add(ir.ToBinary16, shape, x=ready)

    def constant(self, shape):
        bits = halves(self.rng, int(np.prod(shape)), corner=0.1).reshape(shape)
        bits = np.where(binary16.is_nan(bits), np.uint16(0x7E00), bits)
        return self.add(ir.Constant, shape, batched=False, data=bits)

    def quantise(self, x, blocks, peaks=None, form=FORM, **how):
        return self.add(ir.Quantise, x.shape, x=x, form=form, blocks=blocks, peaks=peaks or (0.0,) * len(blocks), **how)

    def product(self, kind, x, weight, shape, offset=None, exponent=-9, width=48, frac=30, unit=-24, bound=2.0**14):
        weight = np.asarray(weight, dtype=np.float64) * 2.0**exponent
        return self.add(
            kind, shape, x=x, weight=weight, offset=offset, width=width, frac=frac, unit=unit, bound=bound
        )  # fmt: skip

    def codes(self, shape):
        """A constant of numbers of blocks."""
        values = self.rng.integers(-127, 128, shape) * 2.0**-7
        return self.add(ir.Constant, shape, batched=False, data=binary16.encode(values))

    def product_of(self, x, matrix, forms=(FORM, FORM), width=60, frac=30, bound=None):
        """A product of two values of these forms."""
        limits = tuple((min(form.q_max * 2.0**form.exp_max, 65504.0), max(form.exp_min, -24)) for form in forms)
        most, fine = (np.array(ends) for ends in zip(*limits, strict=True))
        return self.add(
            ir.ProductOf, (*x.shape[:-1], matrix.shape[-2]), x=x, matrix=matrix, limits=limits, width=width, frac=frac,
            unit=int(fine.sum()), bound=float(most.prod() * x.shape[-1]) if bound is None else bound,
        )  # fmt: skip

    def model(self, *outputs, group=1):
        ends = [self.add(ir.ToReal, x.shape, ir.Type.REAL, x=x) for x in outputs]
        names = {value.name: f"input:{k}" for k, value in enumerate(self.inputs)}
        names |= {value.name: f"output/{k}" for k, value in enumerate(ends)}
        grids = {names[n.x.name]: n.grid for n in self.nodes if isinstance(n, ir.Prepare) and n.grid}
        model = ir.Model(
            "small", tuple(self.inputs), ir.Body(tuple(self.nodes)), tuple(ends), names, group, grids=grids
        )
        check(model)
        return model


def samples(model, count, seed=0):
    """Inputs: ordinary numbers, and binary16 patterns of every kind."""
    rng = np.random.default_rng(seed)
    found = {}
    for value in model.inputs:
        shape = (count, *(value.shape[1:] if model.group > 1 else value.shape))
        odd = binary16.decode(halves(rng, int(np.prod(shape)))).reshape(shape)
        odd = np.where(np.isnan(odd), np.nan, odd)
        usual = rng.normal(size=shape) * 2.0 ** rng.integers(-4, 5, (count, *[1] * (len(shape) - 1)))
        found[model.names[value.name]] = np.where(rng.random(shape) < 0.03, odd, usual)
    return found


def data_movement():
    m = Maker(1)
    x, y = m.input((3, 4, 5)), m.input((6,), grid=(-3, -9, 100), offset=0.375)
    fill = np.array([0x3C00, 0xFC00, 0x8000], np.uint16)
    index = m.rng.integers(-3, 66, (4, 7))
    gathered = m.add(ir.Gather, (4, 7), xs=(x, y), index=index, fill=fill)
    m.layer = "second layer"
    turned = m.add(ir.Transpose, (5, 3, 4), x=x, perm=(2, 0, 1))
    cut = m.add(ir.Slice, (2, 3, 2), x=turned, starts=(4, 2, 0), steps=(-3, -1, 3))
    flat = m.add(ir.Reshape, (12,), x=cut)
    constant = m.constant((4,))
    joined = m.add(ir.Concat, (18,), xs=(flat, y), axis=-1)
    m.layer = "first"
    window = m.add(
        ir.MapWindows, (2, 3, 2, 3, 5), x=x, kernel=(2, 3), stride=(2, 2), origin=(-1, -2), dilation=(1, 2), fill=0xFC00
    )
    beside = [
        m.add(
            ir.MapWindows,
            (2, 3, 1, 1, 5),
            x=x,
            kernel=(1, 1),
            stride=(2, 2),
            origin=(-1, -2),
            dilation=(1, 1),
            fill=fill,
        )
        for fill in (0x0000, 0x8000, 0x7C00, 0x7E00, 0x3555)
    ]
    greatest = m.add(ir.Maximum, (2, 3, 2, 5), x=window, axis=3)
    same = m.add(ir.Gather, (60,), xs=(x,), index=np.arange(60))
    mixed = m.add(ir.Gather, (2, 3), xs=(constant, y), index=np.array([[9, 0, 3], [4, -1, 2]]), fill=fill[:1])
    return m.model(*beside, gathered, joined, window, greatest, same, mixed)


def arithmetic():
    m = Maker(2)
    a, b, c = m.input((3, 8)), m.input((8,)), m.constant((2, 3, 8))
    found = [m.apply(op, a, b) for op in (Op.VV_ADD, Op.VV_SUB, Op.VV_MUL, Op.VV_MAX, Op.VV_MIN)]
    found += [m.apply(op, c, b) for op in (Op.VV_SUB, Op.VV_MIN)]
    found.append(m.apply(Op.V_RELU, a))
    entries = halves(m.rng, 200)
    entries = np.where(binary16.is_nan(entries), np.uint16(0x7E00), entries)
    found.append(m.add(ir.TableLookup, (3, 8), x=a, entries=entries, low=-100, high=99, scale=5))
    found.append(m.add(ir.Maximum, (8,), x=a, axis=0))
    found.append(m.add(ir.Maximum, (3,), x=a, axis=-1))
    return m.model(*found)


def quantised():
    m = Maker(3)
    x = m.input((5, 10))
    found = [m.quantise(x, (4, 4, 2)), m.quantise(x, (5, 5), peaks=(0.0, 3.5)), m.quantise(x, (10,), peaks=(0.1,))]
    found.append(m.quantise(x, (4, 4, 2), rounding=Rounding.NEAREST_AWAY))
    for rounding in (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY):
        found.append(m.quantise(x, (4, 4, 2), mode=ExponentMode.STATIC, exp=-6, rounding=rounding))
    return m.model(*found)


def products():
    m = Maker(4)
    x = m.quantise(m.input((5, 4, 8)), (4, 4))
    codes = lambda *shape: m.rng.integers(-127, 128, shape)  # noqa: E731
    offset = m.rng.integers(-999, 999, 6) * 2.0**-9
    found = [m.product(ir.MatMul, x, codes(6, 8), (5, 4, 6), offset)]
    found.append(m.product(ir.MatMul, x, codes(4, 6, 8), (5, 4, 6)))
    found.append(m.product(ir.Depthwise, x, codes(4, 8), (5, 8), m.rng.integers(-9, 9, 8) * 2.0**-8))
    m.layer = "saturated"
    narrow = {"width": 36, "bound": 2.0**18, "exponent": -2, "unit": -17}
    found.append(m.product(ir.MatMul, x, codes(6, 8), (5, 4, 6), **narrow))
    m.layer = "single"
    y = m.quantise(x, (4, 4), mode=ExponentMode.STATIC, exp=-5)
    found.append(m.product(ir.MatMul, y, codes(6, 8), (5, 4, 6), unit=-14, bound=2.0**8))
    m.layer = "wide"
    spread = codes(6, 8) * 2.0 ** m.rng.integers(0, 16, (6, 1)) * 2.0 ** m.rng.integers(-8, 9, (6, 8))
    wide = {"exponent": -14, "unit": -53, "frac": 60, "width": 90, "bound": 2.0**40}
    found.append(m.product(ir.MatMul, x, spread, (5, 4, 6), **wide))
    found.append(m.product(ir.MatMul, x, spread, (5, 4, 6), offset, **wide))
    found.append(m.product(ir.Depthwise, x, spread[:4], (5, 8), **wide))
    return m.model(*found)


#: Of rows whose exponents have ends on both sides; and of many bits.
ROWS, LONG = BlockFormat(8, 8, -9, -5), BlockFormat(12, 8, -24, 5)


def two_values():
    """Products of two values: of constants, in groups, of blocks that begin elsewhere, in every type of sums."""
    m = Maker(14)
    x, rows, plain = m.quantise(m.input((5, 4, 8)), (4, 4)), m.input((6, 8)), m.input((5, 4, 3, 8))
    matrix = m.quantise(rows, (8,), form=ROWS)
    found = [matrix, m.product_of(x, matrix, (FORM, ROWS))]
    m.layer = "constants"
    found += [m.product_of(m.codes((3, 8)), matrix, (FORM, ROWS)), m.product_of(x, m.codes((6, 8)))]
    m.layer = "groups"
    uneven = m.quantise(plain, (3, 5))
    first = m.add(ir.Slice, (5, 1, 3, 8), x=uneven, starts=(0, 1, 0, 0), steps=(1, 1, 1, 1))
    one = m.add(ir.Reshape, (5, 3, 8), x=first)
    found += [m.product_of(x, one), m.product_of(x, uneven), m.product_of(m.codes((5, 8)), one)]
    m.layer = "halves beside blocks"
    index = np.concatenate([[-1, -2, -1, -1, -1, -1, -1, -1], np.arange(40)]).reshape(6, 8)
    beside = m.add(ir.Gather, (6, 8), xs=(matrix,), index=index, fill=np.array([0x3C00, 0x3800], np.uint16))
    found.append(m.product_of(x, beside))
    m.layer = "saturated"
    found.append(m.product_of(x, matrix, (FORM, ROWS), width=34))
    m.layer = "single"
    still = [m.quantise(value, (4, 4), mode=ExponentMode.STATIC, exp=-5) for value in (x, rows)]
    small = BlockFormat(8, 4, -5, -5)
    found.append(m.product_of(*still, (small, small)))
    m.layer = "wide"
    long, short = m.quantise(m.input((5, 8)), (8,), form=LONG), m.quantise(rows, (8,))
    more, fewer = m.quantise(rows, (8,), form=LONG), m.quantise(m.input((5, 8)), (8,))
    found.append(m.product_of(long, short, (LONG, FORM), width=75, frac=48))
    found.append(m.product_of(fewer, more, (FORM, LONG), width=75, frac=48))
    return m.model(*found)


def loops():
    m = Maker(5)
    x, scale = m.input((7, 6)), m.constant((7, 6))
    start, outside = m.constant((6,)), m.input((6,))
    state, entry, factor = m.value((6,)), m.value((6,)), m.value((6,))
    before, m.nodes = m.nodes, []
    total = m.apply(Op.VV_ADD, state, entry)
    narrow = m.quantise(total, (4, 2))
    weight = m.rng.integers(-100, 100, (6, 6))
    mixed = m.product(ir.MatMul, narrow, weight, (6,), exponent=-10)
    scaled = m.apply(Op.VV_MUL, mixed, factor)
    result = m.apply(Op.VV_MIN, scaled, outside)
    body, m.nodes = ir.Body(tuple(m.nodes)), before
    final, stack = m.value((6,)), m.value((7, 6))
    m.nodes.append(
        ir.Loop(
            output=final,
            layer="recurrent",
            count=7,
            body=body,
            carried=(ir.Carried(start, state, result, final),),
            scanned=(ir.Scanned(x, entry), ir.Scanned(scale, factor)),
            stacked=(ir.Stacked(result, stack),),
        )
    )
    return m.model(final, stack)


def zeros():
    """Zeros of both signs, to which a zero is added, or from which one is taken off: also in a loop."""
    m = Maker(13)
    x = m.input((5, 4))
    least = m.add(ir.Constant, (1,), batched=False, data=np.array([0x0001], np.uint16))
    x = m.apply(Op.VV_MUL, x, least)
    found = []

    def sums(x, shape):
        for bits in (0x0000, 0x8000):
            zero = m.add(ir.Constant, shape, batched=False, data=np.full(shape, bits, np.uint16))
            for op in (Op.VV_ADD, Op.VV_SUB):
                yield from (m.apply(op, *operands) for operands in ((x, zero), (zero, x)))

    for shape in ((1,), (1, 1), (4,)):
        found += sums(x, shape)
    start, state, entry = m.constant((4,)), m.value((4,)), m.value((4,))
    before, m.nodes = m.nodes, []
    inside = list(sums(entry, (1,)))
    body, m.nodes = ir.Body(tuple(m.nodes)), before
    final, *stacks = [m.value((4,)), *(m.value((5, 4)) for _ in inside)]
    m.nodes.append(
        ir.Loop(output=final, layer="loop", count=5, body=body, carried=(ir.Carried(start, state, inside[0], final),),
                scanned=(ir.Scanned(x, entry),), stacked=tuple(map(ir.Stacked, inside, stacks)))
    )  # fmt: skip
    return m.model(*found, final, *stacks)


def alone():
    """Iterations read nothing of their own, and only the last one is left."""
    m = Maker(12)
    start, outside, state = m.input((3,)), m.input((3,)), m.value((3,))
    before, m.nodes = m.nodes, []
    total = m.apply(Op.VV_ADD, state, outside)
    body, m.nodes = ir.Body(tuple(m.nodes)), before
    final = m.value((3,))
    m.nodes.append(
        ir.Loop(output=final, layer="loop", count=5, body=body, carried=(ir.Carried(start, state, total, final),),
                scanned=(), stacked=())
    )  # fmt: skip
    return m.model(final)


def carried():
    """An iteration gives the next one a constant, and what it was given itself."""
    m = Maker(11)
    x, start, later = m.input((4, 3)), m.constant((3,)), m.constant((3,))
    state, kept, entry = m.value((3,)), m.value((3,)), m.value((3,))
    before, m.nodes = m.nodes, []
    total = m.apply(Op.VV_ADD, state, entry)
    both = m.apply(Op.VV_MAX, total, kept)
    body, m.nodes = ir.Body(tuple(m.nodes)), before
    final, again, stack = m.value((3,)), m.value((3,)), m.value((4, 3))
    iterations = (ir.Carried(start, state, later, final), ir.Carried(start, kept, kept, again))
    scanned, stacked = (ir.Scanned(x, entry),), (ir.Stacked(both, stack),)
    m.nodes.append(
        ir.Loop(
            output=final, layer="recurrent", count=4, body=body, carried=iterations, scanned=scanned, stacked=stacked
        )
    )
    return m.model(final, again, stack)


def groups():
    m = Maker(6)
    x = m.input((3, 4))
    turned = m.add(ir.Transpose, (4, 3), x=x, perm=(1, 0))
    return m.model(m.add(ir.Transpose, (3, 4), x=turned, perm=(1, 0)), group=3)


def names():
    """Values that are called like what files need themselves, and a layer without a name."""
    m = Maker(7)
    x = m.input((2, 3))
    m.inputs[0] = renamed = ir.Value("half_add", (2, 3), ir.Type.REAL)
    m.nodes[0] = replace(m.nodes[0], x=renamed)
    m.layer = ""
    for name in ("total", "np", "len", "rest", "iteration", "Relu.1"):
        value = ir.Value(name if name.isidentifier() else "canonical_nan", (2, 3))
        m.nodes.append(ir.Elementwise(output=value, operation=OPERATIONS[Op.VV_ADD], xs=(x, x), layer=m.layer))
        m.layer, x = name, value
    return m.model(m.quantise(x, (2, 1)))


def softmax():
    """The host turns, and has a softmax."""
    m = Maker(8)
    model = m.model(m.apply(Op.V_RELU, m.input((3, 4))))
    shapes = {"output/0": (1, 3, 4), "turned": (1, 4, 3), "flat": (1, 12), "shares": (1, 12)}
    nodes = [
        Node("Transpose", "turn", ("output/0",), ("turned",), {"perm": (0, 2, 1)}),
        Node("Reshape", "flatten", ("turned",), ("flat",), {"shape": (1, 12)}),
        Node("Softmax", "softmax", ("flat",), ("shares",), {"axis": 1}),
    ]
    behind = Graph("host", nodes, ["output/0"], ["shares"], shapes, set(shapes))
    behind.check()
    return replace(model, host_partition=behind)


def limits():
    """Operations at what raises flags; :func:`at_limits` has inputs on both sides of it."""
    m = Maker(9)
    x, fine = m.input((2,)), m.input((2,))
    found = []
    m.layer = "accumulator"
    found.append(m.product(ir.MatMul, x, [[1.0, 2.0**-8]], (1,), exponent=0, width=20, frac=8, unit=-8, bound=2.0**18))
    found.append(
        m.product(ir.Depthwise, m.add(ir.Reshape, (2, 1), x=x), [[1.0], [2.0**-8]], (1,), exponent=0, width=20, frac=8,
                  unit=-8, bound=2.0**18)
    )  # fmt: skip
    m.layer = "wide accumulator"  # more bits than float64 has, two sums
    wide = {"exponent": 0, "width": 67, "frac": 54, "unit": -54, "bound": 2.0**17}
    found.append(m.product(ir.MatMul, fine, [[1.0, 2.0**-30]], (1,), **wide))
    m.layer = "half"
    found.append(m.product(ir.MatMul, x, [[32.0, 0.0]], (1,), exponent=0, width=48, frac=8, unit=-8, bound=2.0**23))
    for op in (Op.VV_ADD, Op.VV_SUB, Op.VV_MUL):
        found.append(m.apply(op, x, x))
        found.append(m.apply(op, found[-1], found[-1]))
    square = found[-2]
    entries = halves(m.rng, 8, corner=0.0)
    for number, constant_ends in enumerate([(False, False), (True, False), (False, True)]):
        m.layer = f"table {number}"
        found.append(
            m.add(ir.TableLookup, (2,), x=x, entries=entries, low=-4, high=3, scale=-9, constant_ends=constant_ends)
        )
    m.layer = "infinite"
    found.append(m.add(ir.TableLookup, (2,), x=square, entries=entries, low=-4, high=3, scale=-20))
    found.append(m.quantise(square, (2,)))
    m.layer = "greatest exponent"
    found.append(m.quantise(x, (2,), form=BlockFormat(8, 2, -9, -4)))
    noise = np.array([0, 65535], np.uint16)
    for rounding in BLOCK_ROUNDINGS:
        m.layer = f"static {rounding.name}"
        how = {"noise": noise} if rounding is Rounding.STOCHASTIC else {}
        found.append(m.quantise(x, (2,), mode=ExponentMode.STATIC, exp=4, rounding=rounding, **how))
    return m.model(*found)


def at_limits(model):
    """Inputs of :func:`limits`: everything that turns a flag on or off, and its neighbours."""
    edges = np.array([2047.0, 2048.0, 2032.0, 2040.0, 1792.0, 1279.0, 1280.0, 1281.0, 255.9, 256.0, 32760.0, 65504.0])
    edges = np.unique(np.concatenate([edges, 0.5 * edges, edges / 32]))
    bits = binary16.encode(edges)[:, None] + np.arange(-2, 3)
    beside = binary16.decode(np.minimum(bits, binary16.encode(65504.0)).astype(np.uint16)).ravel()
    first = np.concatenate([beside, -beside])
    x = np.stack([np.repeat(first, 3), np.tile([-1.0, 0.0, 1.0], len(first))], axis=1)
    top = np.repeat([4096.0, -4096.0, 4095.0], 3)
    fine = np.resize(np.stack([top, np.tile([-(2.0**-24), 0.0, 2.0**-24], 3)], axis=1), x.shape)
    return {model.names[value.name]: values for value, values in zip(model.inputs, (x, fine), strict=True)}


def codes(scale, zero, axis=None):
    """Codes of 4 bits."""
    return Codes(4, scale, zero, axis=axis)


def host_operators():
    """The host has every operator that can be derived, and reads an input, which has a grid."""
    m = Maker(10)
    x, y = m.input((3, 4)), m.input((4,), grid=(-3, -90, 100), offset=0.375)
    model = m.model(m.apply(Op.V_RELU, x), y)
    pick = {"axes": (1, 2), "starts": (2, 0), "stops": (-1, 4), "steps": (-1, 2)}
    norm = {"epsilon": 1e-5, "scale": m.rng.normal(size=(3, 1))}
    table = [
        ("Softmax", ("output/0",), "soft", (1, 3, 4), {"axis": 2}),
        ("Softmax", ("soft",), "columns", (1, 3, 4), {"axis": 1}),
        ("Transpose", ("columns",), "turned", (1, 4, 3), {"perm": (0, 2, 1)}),
        ("Slice", ("soft",), "picked", (1, 3, 2), pick),
        ("Pick", ("soft",), "scattered", (1, 3, 5), {"axis": 2, "indices": (3, 0, 0, 2, 3)}),
        ("Concat", ("soft", "picked"), "joined", (1, 3, 6), {"axis": 2}),
        ("Mul", ("joined",), "scaled", (1, 3, 6), {"constant": m.rng.normal(size=(3, 1))}),
        ("Sub", ("scaled",), "less", (1, 3, 6), {"constant": np.array([0.25]), "reversed": True}),
        ("Relu", ("less",), "positive", (1, 3, 6), {}),
        ("FakeQuantize", ("less",), "coded", (1, 3, 6), {"quantization": codes(0.013, 3)}),
        ("FakeQuantize", ("less",), "rows", (1, 3, 6), {"quantization": codes([0.03, 0.25, 0.004], [7, 0, -8], 1)}),
        ("Clip", ("less",), "clipped", (1, 3, 6), {"min": -0.125, "max": 0.2}),
        ("Add", ("soft", "input:1"), "beside", (1, 3, 4), {}),
        ("Mul", ("beside", "soft"), "both", (1, 3, 4), {}),
        ("Max", ("both", "output/1"), "above", (1, 3, 4), {}),
        ("Min", ("above", "soft"), "below", (1, 3, 4), {}),
        ("Sub", ("soft", "input:1"), "away", (1, 3, 4), {}),
        ("Function", ("away",), "line", (1, 3, 4), {"functions": (("linear", {"slope": -1.7, "offset": 0.3}),)}),
        (
            "Function",
            ("line",),
            "gate",
            (1, 3, 4),
            {
                "functions": (
                    ("identity", {}),
                    ("hardsigmoid", {"alpha": 0.3}),
                )
            },
        ),
        ("Function", ("line",), "rest", (1, 3, 4), {"functions": (("relu", {}),)}),
        ("Reshape", ("gate",), "flat", (1, 12), {"shape": (1, 12)}),
        ("LogSoftmax", ("output/0",), "logs", (1, 3, 4), {"axis": 2}),
        ("LogSoftmax", ("away",), "log rows", (1, 3, 4), {"axis": 1}),
        ("Function", ("away",), "log", (1, 3, 4), {"functions": (("log", {}),)}),
        ("Normalise", ("away",), "normal", (1, 3, 4), norm | {"axes": (2,), "centred": True}),
        ("Normalise", ("both",), "all", (1, 3, 4), norm | {"axes": (1, 2), "centred": False}),
    ]
    shapes = {"output/0": (1, 3, 4), "output/1": (4,), "input:1": (4,)} | {one[2]: one[3] for one in table}
    nodes = [Node(op, f"{op} {k}", given, (made,), attrs) for k, (op, given, made, _, attrs) in enumerate(table)]
    ends = [one[2] for one in table[1:] if one[2] not in ("joined", "above")] + ["output/1"]
    batched = {name for name, shape in shapes.items() if len(shape) > 1}
    behind = Graph("host", nodes, ["output/0", "output/1", "input:1"], ends, shapes, batched)
    behind.check()
    return replace(model, host_partition=behind)


def host_windows():
    """The host pads in every way, and takes maxima of windows and of axes."""
    m = Maker(11)
    model = m.model(m.apply(Op.V_RELU, m.input((2, 5, 4))))
    pads, pool = (0, 0, 1, 2, 0, 0, 3, 1), {"kernel": (3, 2), "strides": (2, 1), "dilations": (1, 2)}
    table = [
        ("Softmax", "output/0", "soft", (1, 2, 5, 4), {"axis": 3}),
        ("Mul", "soft", "scaled", (1, 2, 5, 4), {"constant": m.rng.normal(size=(5, 4))}),
        *(("Pad", "scaled", mode, (1, 2, 9, 7), {"pads": pads, "mode": mode, "value": 0.0})
          for mode in ("reflect", "edge", "wrap")),
        ("Pad", "scaled", "numbers", (1, 3, 5, 6),
         {"pads": (0, 1, 0, 0, 0, 0, 0, 2), "mode": "constant", "value": -0.3}),
        ("PadCopy", "scaled", "infinite", (1, 2, 5, 5), {"pads": (0,) * 7 + (1,), "mode": "constant", "value": np.inf}),
        ("Pad", "scaled", "same", (1, 2, 5, 4), {"pads": (0,) * 8, "mode": "reflect", "value": 0.0}),
        ("MaxPool", "scaled", "pooled", (1, 2, 2, 2), {**pool, "pads": (0,) * 4}),
        ("MaxPool", "scaled", "inside", (1, 2, 4, 5), {**pool, "pads": (1, 1, 3, 2)}),
        ("MaxPool", "scaled", "beyond", (1, 2, 7, 4), {"kernel": (1, 1), "strides": (1, 1), "dilations": (1, 1),
                                                       "pads": (2, 0, 0, 0)}),
        ("ReduceMax", "scaled", "rows", (1, 2, 4), {"axes": (2,), "keepdims": False}),
        ("ReduceMax", "numbers", "greatest", (1, 1, 1, 1), {"axes": (1, 2, 3), "keepdims": True}),
        ("ReduceMax", "scaled", "none", (1, 2, 5, 4), {"axes": (), "keepdims": False}),
    ]  # fmt: skip
    shapes = {"output/0": (1, 2, 5, 4)} | {one[2]: one[3] for one in table}
    nodes = [Node(op, f"{op} {k}", (given,), (made,), attrs) for k, (op, given, made, _, attrs) in enumerate(table)]
    behind = Graph("host", nodes, ["output/0"], [one[2] for one in table], shapes, set(shapes))
    behind.check()
    return replace(model, host_partition=behind)


#: By name: those with a host's part.
def host_choices():
    """Comparisons, choices, places, tables and products of the host, of numbers of both signs and equal ones."""
    m = Maker(9)
    model = m.model(m.apply(Op.V_RELU, m.input((3, 4))))
    rng = np.random.default_rng(9)
    x = "output/0"
    nodes = [
        Node("Mul", "rounded", (x,), ("r",), {"constant": np.asarray(4.0)}),
        Node("Truncate", "cut", ("r",), ("t",), {}),
        Node("Sub", "signed", ("t",), ("s",), {"constant": np.full((3, 1), 2.0)}),
        Node("Wrap", "wrapped", ("s",), ("w",), {"low": -4.0, "modulus": 8.0}),
        Node("Less", "less", ("w", "s"), ("l",), {}),
        Node("Less", "first", ("w",), ("m",), {"constant": np.asarray(1.0), "reversed": True}),
        Node("Equal", "equal", ("w", "s"), ("e",), {}),
        Node("Not", "not", ("e",), ("n",), {}),
        Node("Select", "select", ("l", "s"), ("c",), {"other": np.asarray(0.5)}),
        Node("Divide", "divide", ("s",), ("d",), {"constant": np.asarray(3.0)}),
        Node("Modulo", "modulo", ("s",), ("o",), {"constant": np.asarray(-3.0)}),
        *(Node("ArgMax", f"place {k}", ("s",), (f"a{k}",), {"axis": 1 + k % 2, "keepdims": k > 1, "least": k % 2 == 1,
                                                             "last": k > 2}) for k in range(4)),
        *(Node("TopK", f"best {k}", ("s",), (f"v{k}", f"i{k}"), {"axis": 2, "size": 3, "largest": k == 1})
          for k in range(2)),
        Node("Lookup", "table", ("a0",), ("q",), {"table": rng.normal(size=(2, 3, 5)), "axis": 1}),
        Node("Take", "taken", ("s", "a0"), ("k",), {"axis": 1}),
        Node("Function", "functions", ("s",), ("f",), {"functions": (("tanh", {}), ("exp", {}), ("sqrt", {}))}),
        Node("Dense", "dense", ("n",), ("y",), {"weight": rng.normal(size=(5, 4)), "bias": rng.normal(size=5)}),
        Node("MatMul", "product", ("n", "turned"), ("z",), {}),
        Node("ReduceSum", "sum", ("n",), ("b",), {"axes": (1, 2), "keepdims": False}),
    ]  # fmt: skip
    nodes.insert(8, Node("Transpose", "turn", ("l",), ("turned",), {"perm": (0, 2, 1)}))
    shapes = {x: (1, 3, 4)}
    for node in nodes:
        made = operator_of(node).shape(node, [shapes[name] for name in node.inputs])
        shapes |= dict(zip(node.outputs, made, strict=True))
    outputs = [name for node in nodes for name in node.outputs]
    part = Graph("host", nodes, [x], outputs, shapes, {name for name, shape in shapes.items() if shape[:1] == (1,)})
    part.check()
    return replace(model, host_partition=part)


HOST_PARTITIONS = {
    "host_choices": host_choices,
    "softmax": softmax,
    "host_operators": host_operators,
    "host_windows": host_windows,
}

#: By name: what makes a model.
MODELS = {
    "data_movement": data_movement, "arithmetic": arithmetic, "quantised": quantised, "products": products,
    "two_values": two_values, "loops": loops, "alone": alone, "carried": carried, "groups": groups, "names": names,
    "zeros": zeros,
}  # fmt: skip


def flagged(model):
    """The model with all flags that its nodes could raise for any inputs."""
    body = ir.Body(tuple(map(_flagged, model.body)))
    places = dict.fromkeys(node.where for node in every(body) if node.may)
    return with_flags(replace(model, body=body), places, {})


def _flagged(node):
    if isinstance(node, ir.Loop):
        return replace(node, body=ir.Body(tuple(map(_flagged, node.body))))
    anything = (np.inf, -24)
    may = raisable(node, [anything] * len(node.inputs), anything)
    return replace(node, may=may, where=node.layer or "no layer") if may else node


def assert_equal(found, want):
    """Outputs are equal to the last bit, the sign of zeros and NaNs included."""
    assert list(found) == list(want)
    for name, values in want.items():
        assert found[name].shape == values.shape, (name, found[name].shape, values.shape)
        bits, expected = (np.ascontiguousarray(x).view(np.int64) for x in (found[name], values))
        wrong = np.argwhere(bits != expected)
        where = tuple(wrong[0]) if len(wrong) else ()
        assert not len(wrong), f"{name}: {len(wrong)} of {bits.size}, {where}: {found[name][where]!r} {values[where]!r}"
