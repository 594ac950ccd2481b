"""What random programs cover: instructions, formats, corners of values, shapes, addresses, state and flags.

An item is a tuple of words. :func:`covered` finds those of a program that the emulator runs, :func:`required` says
which there must be for a configuration.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np

from concord.host.emulated import EmulatedDevice
from concord.program import trace
from concord.program.access import Access
from concord.spec import isa
from concord.spec.formats import BLOCK_ROUNDINGS, ExponentMode, Flag, Rounding
from concord.spec.isa import Mem, MvMode, Op
from concord.spec.operations import INTEGER_OPS

#: Corners of wide values, and of blocks.
WIDE = ("+0", "-0", "subnormal", "normal", "greatest", "+inf", "-inf", "nan")
NARROW = ("zero block", "least exponent", "greatest exponent", "greatest code", "zero code", "negative")
_MFU = (Op.VV_MUL, Op.VV_ADD, Op.VV_SUB, Op.VV_RSUB, Op.VV_MAX, Op.VV_MIN, Op.V_RELU, Op.V_TBL)
_SUMS = ("dense", "depthwise")
_MAXIMA = ("v_max", "v_redmax")
#: Corners that results cannot have: exact sums are no NaN, a ReLU gives nothing negative, numbers of blocks are finite.
_NEVER = {("wide", name, "nan") for name in _SUMS} | {("wide", "v_relu", "-0"), ("wide", "v_relu", "-inf")}
_NEVER |= {("wide", "copy of narrow", corner) for corner in ("-0", "+inf", "-inf", "nan")}
_NEVER |= {("narrow", "v_relu", "negative"), ("narrow", "v_redmax", "zero code")}
#: Corners that a few programs need not meet: sums that round to just these numbers (all roundings of sums are compared
#: one by one, see derive_numbers), maxima of many elements, subnormal numbers of blocks that are not converted.
_RARE = {("wide", name, corner) for name in _SUMS for corner in ("-0", "greatest", "subnormal")}
_RARE |= {("wide", "v_redmax", "-0"), ("wide", "v_redmax", "-inf")}
_RARE |= {("wide", "copy of narrow", "greatest"), ("wide", "copy of narrow", "subnormal")}
#: Accumulators of more bits hold every sum of random programs.
_LONG = 60


def _name(chain):
    """The instruction that makes the result of a chain."""
    if chain.mfu_ops:
        return chain.mfu_ops[-1].op.name.lower()
    if chain.reduce is Op.MV_MUL:
        return MvMode(chain.mode).name.lower()
    if chain.reduce is not None:
        return chain.reduce.name.lower()
    return f"copy of {chain.mem.name.lower()}"


NAMES = (*(op.name.lower() for op in _MFU), *_SUMS, *_MAXIMA, "copy of wide", "copy of narrow")


def required(config):
    """Items that programs for a configuration must have, all of them together."""
    found = {("wide", name, corner) for name, corner in product(NAMES, WIDE)}
    found |= {("narrow", name, corner) for name, corner in product(NAMES, NARROW)}
    found -= _NEVER | _RARE
    found |= {("stage", op.name.lower(), f"unit {unit}") for op, unit in product(_MFU, (0, 1))}
    found |= {("source", name, mem.name.lower()) for name, mem in product((*_MAXIMA, "copy"), Mem)}
    found |= {("targets", text) for text in ("wide", "narrow", "wide and narrow")}
    roundings = [one for one in BLOCK_ROUNDINGS if one is not Rounding.STOCHASTIC or config.stochastic]
    found |= {("conversion", a.name.lower(), b.name.lower()) for a, b in product(ExponentMode, roundings)}
    found |= {("loop of vectors", name) for name in ("rows", "inner", "outer", "cols")}
    found |= {("window", text) for text in ("1 x 1", "column", "row", "both", "dilated", "partly outside")}
    found |= {("window step", axis, sign) for axis in ("y", "x") for sign in "-0+"}
    found |= {("address step", who, axis, sign) for who in ("source", "operand", "target")
              for axis in ("row", "inner", "outer") for sign in "-0+"}  # fmt: skip
    found |= {("order", "reads what it writes")}
    left_out = [op for op in Op if op in INTEGER_OPS or not config.has(op)]
    forms = [form for form in isa.FORMS.values() if form.op not in left_out]
    found |= {("control", form.mnemonic) for form in forms if not form.is_chain}
    found |= {("loops", f"{depth} deep") for depth in range(1, min(config.loop_levels, 3) + 1)}
    found |= {("flag", flag.name.lower()) for flag in Flag}
    return found - ({("flag", "acc_overflow")} if config.acc_width > _LONG else set())


def required_sliding(config):
    """Items of windows that slide, which programs for a configuration with some must have."""
    taps = {config.window_taps, *({9} if config.window_taps > 9 else ())}
    found = {("sliding", f"{count} taps") for count in taps}
    found |= {("sliding", text) for text in ("one new column", "several new columns", "all columns new")}
    return found | {("sliding", text) for text in ("partly outside", "columns left out", "dilated", "second half")}


def of_sliding(chain, config):
    """Items of a chain whose windows slide, of others none."""
    if not chain.sliding:
        return
    window = chain.window
    yield "sliding", f"{window.taps} taps"
    if chain.inner > 1 and window.kw > 1:
        new = {1: "one new column", window.kw: "all columns new"}
        yield "sliding", new.get(chain.fresh, "several new columns")
    inside = chain.inside()
    if inside.any() and not inside.all():
        yield "sliding", "partly outside"
    if chain.skipped and chain.inner > 1:
        yield "sliding", "columns left out"
    if window.kw > 1 and window.dil_x > 1:
        yield "sliding", "dilated"
    if window.taps > config.lanes // 2:
        yield "sliding", "second half"


def covered(image, inputs):
    """How often a program has each item, on some samples."""
    found = Counter()
    words = list(image.program)
    for phase in image.schedule():
        for chain in dict.fromkeys(trace(words, image.config, phase.pc).chains):
            found.update(_of_chain(chain, image.config))
    found.update(_of_text(words))

    def after(part, lanes, count):
        if part.last:
            for target in part.chain.destinations:
                at = np.unique(part.chain.addresses(target.address))
                found.update(_of_values(part.chain, target.mem, at, lanes, count))

    with EmulatedDevice(image.config, workers=1, after=after) as device, np.errstate(all="ignore"):
        device.load(image)
        device.run(inputs)
        flags = device.flags()
    found.update(("flag", flag.name.lower()) for raised in flags.values() for flag in raised)
    return found


def _sign(value):
    return "-0+"[int(np.sign(value)) + 1]


def _of_chain(chain, config):
    yield from (("stage", mfu_op.op.name.lower(), f"unit {isa.FORMS[mfu_op.op].stages.index(mfu_op.stage)}")
                for mfu_op in chain.mfu_ops if mfu_op.op in _MFU)  # fmt: skip
    reduce = "copy" if chain.reduce is None else chain.reduce.name.lower()
    yield "source", reduce, chain.mem.name.lower()
    targets = {one.mem for one in chain.destinations}
    yield "targets", " and ".join(mem.name.lower() for mem in (Mem.WIDE, Mem.NARROW) if mem in targets)
    if Mem.NARROW in targets:
        yield "conversion", chain.quant.mode.name.lower(), chain.quant.rounding.name.lower()
    yield from (("loop of vectors", name) for name in ("rows", "inner", "outer", "cols") if getattr(chain, name) > 1)
    addresses = [("source", chain.source), *(("operand", s.operand) for s in chain.mfu_ops if s.operand is not None)]
    addresses += [("target", one.address) for one in chain.destinations]
    for who, address in addresses:
        yield from (("address step", who, axis, _sign(getattr(address, axis))) for axis in ("row", "inner", "outer")
                    if getattr(chain, {"row": "rows"}.get(axis, axis)) > 1)  # fmt: skip
    if Access.of(chain, config)._writers() is not None:
        yield "order", "reads what it writes"
    if chain.reduce is not None:
        yield from _of_window(chain)


def _of_window(chain):
    window = chain.window
    yield (
        "window",
        {(False, False): "1 x 1", (True, False): "column", (False, True): "row", (True, True): "both"}[
            window.kh > 1, window.kw > 1
        ],
    )
    for axis, taps, step in (("y", window.kh, window.stride_y), ("x", window.kw, window.stride_x)):
        if taps > 1:
            yield "window step", axis, _sign(step)
    if (window.kh > 1 and window.dil_y > 1) or (window.kw > 1 and window.dil_x > 1):
        yield "window", "dilated"
    inside = chain.inside()
    if inside.any() and not inside.all():
        yield "window", "partly outside"


def _of_text(words):
    """Control instructions, and how deep loops are."""
    depth = 0
    for word in words:
        form, _ = isa.decode(word)
        if form.is_chain:
            continue
        yield "control", form.mnemonic
        depth += (form.op is Op.LOOP) - (form.op is Op.END_LOOP)
        if form.op is Op.LOOP:
            yield "loops", f"{depth} deep"
        if form.op is Op.HALT:
            return


def _of_values(chain, mem, at, lanes, count):
    name = _name(chain)
    x = lanes.memory(mem)[at][..., :count]
    if mem is Mem.WIDE:
        size, finite = np.abs(x), np.isfinite(x)
        corners = (
            (x == 0) & ~np.signbit(x), (x == 0) & np.signbit(x), (size > 0) & (size < 2.0**-14),
            finite & (size >= 2.0**-14), size == 65504, x == np.inf, x == -np.inf, np.isnan(x),
        )  # fmt: skip
        yield from (("wide", name, corner) for corner, there in zip(WIDE, corners, strict=True) if there.any())
        return
    act, power = lanes.config.act, lanes.scale[at][:, None, :count]
    codes = x / power
    corners = (
        (codes == 0).all(axis=1), power == 2.0**act.exp_min, power == 2.0 ** min(act.exp_max, 15 - act.headroom),
        np.abs(codes) == act.q_max, (codes == 0) & (codes != 0).any(axis=1, keepdims=True), codes < 0,
    )  # fmt: skip
    yield from (("narrow", name, corner) for corner, there in zip(NARROW, corners, strict=True) if there.any())
