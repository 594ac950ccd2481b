"""The model that backends read, built by hand, and what it computes."""

import numpy as np
import pytest

from concord.derive import ir
from concord.derive.checks import check
from concord.derive.evaluate import run
from concord.golden import accumulate, binary16, blocks
from concord.operations import OPERATIONS
from concord.spec.formats import BlockFormat
from concord.spec.isa import Op
from concord.spec.presets import TINY

FORM = TINY.act


def product_model(weight, bias):
    """An input of six elements: two blocks of four, the last one with two, then a product, a sum and a ReLU."""
    x = ir.Value("x", (6,), ir.Type.REAL)
    values = [ir.Value(name, shape) for name, shape in (("x16", (6,)), ("xq", (6,)), ("y", (3,)), ("z", (3,)))]
    b, r, out = ir.Value("b", (3,), batched=False), ir.Value("r", (3,)), ir.Value("out", (3,), ir.Type.REAL)
    x16, xq, y, z = values
    nodes = (
        ir.ToBinary16(output=x16, x=x),
        ir.Quantise(output=xq, x=x16, form=FORM, blocks=(4, 2), peaks=(0.0, 0.0)),
        ir.MatMul(output=y, x=xq, weight=weight, width=48, frac=30, unit=-22, bound=2.0**24),
        ir.Constant(output=b, data=binary16.encode(bias)),
        ir.Elementwise(output=z, operation=OPERATIONS[Op.VV_ADD], xs=(y, b)),
        ir.Elementwise(output=r, operation=OPERATIONS[Op.V_RELU], xs=(z,)),
        ir.ToReal(output=out, x=r),
    )
    return ir.Model("product", (x,), ir.Body(nodes), (out,), {"x": "input", "out": "output"})


def test_a_model_built_by_hand_computes_what_the_golden_model_does():
    rng = np.random.default_rng(1)
    weight = np.ldexp(rng.integers(-127, 128, (3, 6)), -7)
    bias = rng.normal(size=3)
    model = product_model(weight.astype(np.float64), bias)
    check(model)
    x = rng.normal(size=(5, 6))
    padded = np.zeros((5, 8))
    padded[:, :6] = x
    block = blocks.quantize(binary16.encode(padded).reshape(5, 2, 4), FORM)
    mant = np.zeros((3, 8), np.int64)
    mant[:, :6] = np.ldexp(weight, 7)
    acc = accumulate.accumulate(block.mant, block.exp, mant.reshape(3, 2, 4), np.full((3, 2), -7), 30)
    want = binary16.relu(binary16.add(accumulate.acc_to_binary16(acc, (48, 30))[0], binary16.encode(bias)))
    assert np.array_equal(run(model, {"input": x})["output"], binary16.decode(want))


def test_constants_that_are_not_there_count_for_the_exponent():
    x, q, real = ir.Value("x", (2,)), ir.Value("q", (2,)), ir.Value("real", (2,), ir.Type.REAL)
    out = ir.Value("out", (2,), ir.Type.REAL)
    for peak in (0.0, 0.5, 64.0):
        nodes = (
            ir.ToBinary16(output=x, x=real),
            ir.Quantise(output=q, x=x, form=BlockFormat(3, 4, -15, 14), blocks=(2,), peaks=(peak,)),
            ir.ToReal(output=out, x=q),
        )
        model = ir.Model("peaks", (real,), ir.Body(nodes), (out,), {"real": "x", "out": "y"})
        found = run(model, {"x": [[0.25, 0.3]]})["y"]
        assert np.array_equal(found, blocks_by_hand([0.25, 0.3, peak], 3)[None, :2]), peak


def blocks_by_hand(values, mant):
    """Values of one block, by the formula."""
    exp = max(-15, int(np.floor(np.log2(max(map(abs, values))))) - (mant - 2))
    codes = np.clip(
        np.rint(binary16.decode(binary16.encode(values)) / 2.0**exp), 1 - 2 ** (mant - 1), 2 ** (mant - 1) - 1
    )
    return codes * 2.0**exp


def loop_model():
    """A running sum of four inputs: h = h + x[t], from a constant; all steps and the last one."""
    x, x16 = ir.Value("x", (4, 2), ir.Type.REAL), ir.Value("x16", (4, 2))
    start, h, xt = ir.Value("start", (2,), batched=False), ir.Value("h", (2,)), ir.Value("xt", (2,))
    new, last, every = ir.Value("new", (2,)), ir.Value("last", (2,)), ir.Value("every", (4, 2))
    out, outs = ir.Value("out", (2,), ir.Type.REAL), ir.Value("outs", (4, 2), ir.Type.REAL)
    step = ir.Elementwise(output=new, operation=OPERATIONS[Op.VV_ADD], xs=(h, xt))
    loop = ir.Loop(
        output=last,
        count=4,
        body=ir.Body((step,)),
        carried=(ir.Carried(start, h, new, last),),
        scanned=(ir.Scanned(x16, xt),),
        stacked=(ir.Stacked(new, every),),
    )
    nodes = (
        ir.ToBinary16(output=x16, x=x),
        ir.Constant(output=start, data=binary16.encode([1.0, -1.0])),
        loop,
        ir.ToReal(output=out, x=last),
        ir.ToReal(output=outs, x=every),
    )
    return ir.Model("sums", (x,), ir.Body(nodes), (out, outs), {"x": "x", "out": "last", "outs": "every"})


def test_a_loop_carries_scans_and_stacks():
    model = loop_model()
    check(model)
    x = np.arange(24, dtype=float).reshape(3, 4, 2)
    found = run(model, {"x": x})
    want = np.cumsum(x, axis=1) + np.array([1.0, -1.0])
    assert np.array_equal(found["every"], want)
    assert np.array_equal(found["last"], want[:, -1])


def test_models_that_are_wrong_are_refused():
    model = loop_model()
    late = ir.Model("late", model.inputs, ir.Body(model.body.nodes[::-1]), model.outputs, model.names)
    with pytest.raises(ValueError, match="must be computed before it"):
        check(late)
    twice = ir.Model("twice", model.inputs, ir.Body((*model.body, model.body.nodes[0])), model.outputs, model.names)
    with pytest.raises(ValueError, match="computed once"):
        check(twice)
    short = ir.Value("short", (3,), ir.Type.REAL)
    bad = ir.ToReal(output=short, x=model.body.nodes[2].outputs[0])
    with pytest.raises(ValueError, match="must have shape"):
        check(ir.Model("bad", model.inputs, ir.Body((*model.body, bad)), (short,), model.names))
