"""Steps of the interval execution: whatever is inside stays inside."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.golden import binary16, blocks, table
from concord.operations import OPERATIONS
from concord.overflow.intervals import Bounds, _narrow
from concord.program.chains import Quant
from concord.program.weights import Weights
from concord.spec.formats import BLOCK_ROUNDINGS, ExponentMode, Rounding
from concord.spec.isa import Mem, Op
from concord.sums.histogram import SumStage
from concord.sums.reach import Extremes
from support.compiled_nets import perceptron
from support.expressions import ROOMY


@pytest.fixture(scope="module")
def bounds():
    """Any: the steps do not depend on the program."""
    return Bounds(compile_graph(perceptron(4, 3), ROOMY).image)


def intervals(rng, shape):
    """Ends that are binary16 numbers, some of them alike, infinite or zero, and points between them."""
    size = 10.0 ** rng.uniform(-6, 5, shape)
    low, high = (binary16.decode(binary16.encode(rng.normal(0, 1, shape) * size)) for _ in range(2))
    low, high = np.minimum(low, high), np.maximum(low, high)
    high = np.where(rng.random(shape) < 0.1, low, high)
    low = np.where((rng.random(shape) < 0.1) & (high >= 0), 0.0, low)
    return low, high


def points(rng, ends):
    """binary16 numbers in intervals, ends included."""
    low, high = ends
    finite = [np.clip(end, -65504, 65504) for end in ends]
    share = rng.choice([0.0, 1.0, rng.random()], low.shape)
    inside = binary16.decode(binary16.encode(finite[0] + share * (finite[1] - finite[0])))
    return np.clip(inside, low, high)


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.name)
@pytest.mark.filterwarnings("ignore:(invalid value|overflow)")
def test_steps_hold_for_all_points(bounds, op):
    rng = np.random.default_rng(int(op))
    for _ in range(20):
        x, y = intervals(rng, (50, 4)), intervals(rng, (50, 4))
        low, high = bounds._step(op, None, x, None if op is Op.V_RELU else y)
        for _ in range(10):
            operands = [binary16.encode(points(rng, ends)) for ends in ([x] if op is Op.V_RELU else [x, y])]
            found = binary16.decode(OPERATIONS[op].golden(*operands))
            assert ((low <= found) & (found <= high) | np.isnan(found)).all()


@pytest.mark.parametrize("rounding", BLOCK_ROUNDINGS)
@pytest.mark.parametrize("mode", ExponentMode)
def test_blocks_hold_for_all_points(mode, rounding):
    rng = np.random.default_rng(7 * int(rounding))
    act = ROOMY.act
    for trial, exp in itertools.product(range(20), (-12, -3, 4)):
        x = intervals(rng, (60, act.block))
        quant = Quant(mode, exp, rounding)
        ends, mants = _narrow(ROOMY, x, quant)
        for _ in range(5):
            noise = rng.integers(0, 1 << 16, (60, act.block)) if rounding is Rounding.STOCHASTIC else None
            block = blocks.quantize(binary16.encode(points(rng, x)), act, mode, exp, rounding, noise)
            values = np.ldexp(block.mant.astype(float), np.asarray(block.exp)[..., None])
            assert ((ends[0] <= values) & (values <= ends[1])).all(), trial
            assert ((mants[0] <= block.mant) & (block.mant <= mants[1])).all()


def test_tables_hold_for_all_points():
    graph = perceptron(4, 3, functions=["sigmoid"])
    bounds = Bounds(compile_graph(graph, ROOMY).image)
    slot = next(k for k in range(ROOMY.table_slots) if bounds.memories.slot(k)["high"])
    rng = np.random.default_rng(3)
    x = intervals(rng, (200, 4))
    low, high = bounds._step(Op.V_TBL, slot, x, None)
    for _ in range(10):
        bits = binary16.encode(points(rng, x))
        found = binary16.decode(table.lookup(bits, bounds.memories.table, bounds.memories.slot(slot)).entries)
        assert ((low <= found) & (found <= high)).all()
    assert (high > low).any()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("bits", [40, 50, 51, 52, 53, 54, 57])
def test_sums_beyond_what_float64_counts(bounds, bits, sign):
    """A power of two and one unit of the grid: float64 does not have it from 53 bits on, and the bound must hold it."""
    config, chain = ROOMY, SimpleNamespace(depthwise=False)
    shape = 1, 1, 3 * config.native // config.lanes, config.lanes  # one result, three blocks of elements
    mant, exp = np.zeros(shape, np.int64), np.zeros(shape[:3], np.int64)
    mant.reshape(-1)[[0, 1, 8]] = sign * np.array([64, 64, 1])
    exp[0, 0, -(-8 // config.lanes)] = -15
    high = np.zeros((3, config.native))
    high.reshape(-1)[[0, 1, 8]] = 2.0 ** (bits - 7 - config.acc_frac), 2.0 ** (bits - 7 - config.acc_frac), 2.0**-15
    assert config.acc_frac == 30 and 8 % config.lanes == 0
    store, extremes = SimpleNamespace(ends={Mem.NARROW: (0 * high, high)}, mants=(0 * high, 127 + 0 * high)), Extremes()
    replaced, bounds._store = bounds._store, store
    try:
        low, top = bounds._columns(chain, Weights(mant, exp), slice(0, 1), np.array([[0, 1, 2]]), extremes)
    finally:
        bounds._store = replaced
    want = sign * (2**bits + 1)
    for stage in (SumStage.SUM, SumStage.OUTPUT):
        ends = extremes.low[stage], extremes.high[stage]
        assert ends[0] <= min(want, 0) and ends[1] >= max(want, 0)
        assert bits > 51 or ends == (min(want, 0), max(want, 0))
        assert max(map(abs, ends)) < 2**bits + 2 ** (bits - 20)
    assert low.ravel()[0] * 2**30 <= want <= top.ravel()[0] * 2**30 or bits > 52


def test_ends_are_compared_as_whole_numbers():
    extremes = Extremes()
    assert extremes.bits(SumStage.SUM) == 0
    for low, high, bits in (
        (0, 0, 1),
        (0, 1, 2),
        (-2, 1, 2),
        (-3, 0, 3),
        (0, 4, 4),
        (-8, 0, 4),
        (0, 2**60, 62),
        (-1, 5, 62),
        (2, 0, 62),
    ):
        extremes.include(SumStage.SUM, low, high)
        assert extremes.bits(SumStage.SUM) == bits
