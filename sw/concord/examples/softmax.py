"""Softmax by tables and reductions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from concord.examples.base import Example, chain, program
from concord.functions import Number, function
from concord.functions.tables import build_table
from concord.program.allocator import Allocator
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import FloatArray

#: Values whose exponential counts as zero lie this far below the maximum.
DEPTH = 16


def _exp(x: Fraction) -> Number:
    """exp(x), but 0 where it does not count."""
    return function("exp").exact_with()(x) if x > -DEPTH else Fraction(0)


def softmax(config: NpuConfig, *, classes: int = 10) -> Example:
    """Softmax over ``classes`` values: maximum, difference, exponential, sum as a product with ones, reciprocal."""
    scale = 5 if config.table_depth >= 1024 else 3
    allocator = Allocator(config)
    vectors = allocator.tiles(classes)
    padded = vectors * config.native
    mask = np.where(np.arange(padded) < classes, BINARY16_MAX, -BINARY16_MAX)
    allocator.matrix("ones", np.ones((config.native, padded)), "sums all elements into every element")
    allocator.input("x", (classes,), "inputs; elements behind the last class are not looked at")
    allocator.output("y", (classes,), "probabilities; 0 behind the last class")
    allocator.constant("mask", mask, f"{BINARY16_MAX} for a class, -{BINARY16_MAX} behind")
    allocator.wide("masked", vectors, "inputs, with the least number behind the last class")
    allocator.wide("top", 1, "maximum in every element")
    allocator.wide("e", vectors, "exponentials of the differences to the maximum")
    allocator.wide("norm", 1, "reciprocal of their sum in every element")
    allocator.narrow("en", vectors, "exponentials")
    exponentials = build_table(
        _exp, config, low=-(DEPTH << scale), high=0, scale=scale, name="exp", constant_ends=(True, False)
    )
    allocator.table("exp", exponentials)
    allocator.table("recip", build_table("reciprocal", config, low=1 << scale, high=classes << scale, scale=scale))

    def reference(x: FloatArray) -> FloatArray:
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return np.asarray(e / e.sum(axis=-1, keepdims=True))

    largest = [
        "set_shape V, 1",
        *chain("v_rd wide, x, row=1; vv_min mask, row=1; v_wr wide, masked, row=1"),
        "set_shape 1, V",
        "set_window 1, V, stride_y=0, stride_x=1, dil_y=1, dil_x=1",
        *chain("v_rd wide, masked; v_redmax; v_wr wide, top"),
        "set_window 1, 1, stride_y=0, stride_x=0, dil_y=1, dil_x=1",
    ]
    exp_chain = chain(
        "v_rd wide, x, row=1; vv_sub top; vv_min mask, row=1; v_exp; v_wr wide, e, row=1; v_wr narrow, en, row=1"
    )
    sections = [
        ("Maximum over the classes.", largest),
        ("Exponentials; the mask makes those behind the last class zero.", ["set_shape V, 1", *exp_chain]),
        (
            "Reciprocal of the sum.",
            ["set_shape 1, V", *chain("v_rd narrow, en; mv_mul ones; v_recip; v_wr wide, norm")],
        ),
        ("Probabilities.", ["set_shape V, 1", *chain("v_rd wide, e, row=1; vv_mul norm; v_wr wide, y, row=1")]),
    ]
    text = program(allocator, {"V": vectors}, sections)
    return Example(
        name="softmax",
        title=f"Softmax over {classes} values.",
        allocator=allocator,
        text=text,
        reference=reference,
        tolerance=1.5 * 2.0**-scale,
        macs=0,
    )
