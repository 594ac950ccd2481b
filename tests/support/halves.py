"""Binary16 operands that meet the corners, and a bench for free-running pipelines."""

from __future__ import annotations

import numpy as np

from concord.golden import binary16
from concord_rtl.parts.control import AddOp
from support.bench import simulate

#: What the adder computes.
SUMS = {
    AddOp.NONE: lambda a, b: a,
    AddOp.ADD: binary16.add,
    AddOp.SUB: binary16.sub,
    AddOp.RSUB: binary16.rsub,
    AddOp.MAX: binary16.maximum,
    AddOp.MIN: binary16.minimum,
}

#: Zeros, subnormals, powers of two and their neighbours, the largest number, infinities, NaNs of several kinds.
CORNERS = np.array(
    sorted(
        {
            sign | (field << 10) | fraction
            for sign in (0, 0x8000)
            for field in (0, 1, 2, 10, 14, 15, 16, 25, 30, 31)
            for fraction in (0, 1, 2, 0x1FF, 0x200, 0x3FE, 0x3FF)
        }
    ),
    dtype=np.uint16,
)


def halves(rng, count, *, corner=0.3):
    """Return ``count`` patterns: corners, few significant bits (ties) and uniform ones."""
    uniform = rng.integers(0, 1 << 16, count, dtype=np.uint16)
    coarse = uniform & rng.choice(np.array([0xFE00, 0xFFC0, 0xFFF8, 0xFFFF], dtype=np.uint16), count)
    return np.where(rng.random(count) < corner, rng.choice(CORNERS, count), coarse)


def pairs(rng, count):
    """Return two arrays of operands; half of the second have an exponent near the one of the first."""
    a, b = halves(rng, count), halves(rng, count)
    field = np.clip((a >> 10 & 0x1F).astype(int) + rng.integers(-13, 14, count), 0, 30)
    near = (b & 0x83FF) | (field << 10).astype(np.uint16)
    return a, np.where(rng.random(count) < 0.5, near, b).astype(np.uint16)


def stream(dut, inputs, outputs, latency):
    """Drive one set of ``inputs`` (port, values) per cycle; return what ``outputs`` are ``latency`` cycles later."""
    count = len(inputs[0][1])
    seen = [[] for _ in outputs]

    async def drive(ctx):
        columns = [(port, [int(v) for v in values]) for port, values in inputs]
        for k in range(count + latency):
            for port, values in columns:
                ctx.set(port, values[min(k, count - 1)])
            got = await ctx.tick().sample(*outputs)
            if k >= latency:
                for log, value in zip(seen, got[2:], strict=True):
                    log.append(value)

    simulate(dut, drive, cycles=count + latency + 10)
    return [np.array(log) for log in seen]


def check(got, want, *operands):
    """Compare arrays; the message shows the first differences with their operands."""
    bad = np.flatnonzero(np.asarray(got) != np.asarray(want))
    lines = [
        f"{k}: " + " ".join(f"{int(x[k]):#06x}" for x in operands) + f" -> {int(got[k]):#x}, want {int(want[k]):#x}"
        for k in bad[:5]
    ]
    assert not len(bad), f"{len(bad)} of {len(got)} differ: " + "; ".join(lines)
