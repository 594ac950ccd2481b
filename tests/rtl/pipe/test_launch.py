# amaranth: UnusedElaboratable=no
"""The launcher starts vectors in order, as soon as everything is there, and none overtakes another."""

import random
from itertools import count, pairwise

import pytest

from concord.golden.blocks import to_binary16
from concord.spec import timing
from concord.spec.presets import TINY
from concord_rtl.parts.control import Act, AddOp, ReduceMode
from concord_rtl.pipe.launch import Launcher
from concord_rtl.pipe.layouts import Reduction
from support.bench import simulate

FOUR_BEATS = TINY.replace(name="four-beats", native=8, lanes=2, mfu_lanes=2)
LATENCY = timing.launch_latency()
UNUSED = {"mul": 0, "add": AddOp.NONE, "act": Act.NONE, "slot": 0}


def random_token(rng, config, number):
    """Controls of a vector, the operand ports that it needs, and its entries of the source queue."""
    reduction = rng.choice([Reduction.PRODUCT, Reduction.PRODUCT, Reduction.NONE, Reduction.MAX, Reduction.MAX_ALL])
    units = [{**UNUSED, "mul": rng.randrange(2), "add": rng.choice([AddOp.NONE, AddOp.RSUB, AddOp.MIN])} for _ in "01"]
    early = rng.random() < 0.6
    if early:
        units[1] = dict(UNUSED)
    ports = sum((unit["mul"] | (unit["add"] != AddOp.NONE) << 1) << 2 * k for k, unit in enumerate(units))
    token = {"reduction": reduction, "unit0": units[0], "unit1": units[1], "early": int(early)}
    taps = {Reduction.PRODUCT: 0, Reduction.NONE: 1}.get(reduction, rng.randint(1, 3))
    return token, ports, [random_entry(rng, config, k, taps, reduction, number) for k in range(taps)]


def random_entry(rng, config, tap, taps, reduction, number):
    q = config.act.q_max
    return {
        "first": int(tap == 0),
        "last": int(tap == taps - 1),
        "outside": int(reduction is not Reduction.NONE and rng.random() < 0.3),
        "wide_source": rng.randrange(2),
        "narrow": {"mant": [rng.randint(-q, q) for _ in range(config.native)], "exp": rng.randint(-9, 0)},
        "wide": {"elem": [rng.randrange(1 << 16) for _ in range(config.native)]},
    }


def trips_of(token, entries, result, config):
    """Controls and elements of every trip of a vector."""
    reduction = token["reduction"]
    if reduction is Reduction.PRODUCT:
        return [{"result": 1, "mode": ReduceMode.PASS, "emit": 1, "elements": result}]
    mode = {Reduction.NONE: ReduceMode.PASS, Reduction.MAX: ReduceMode.MAX, Reduction.MAX_ALL: ReduceMode.LANES}
    trips = []
    for entry in entries:
        narrow = [int(x) for x in to_binary16([entry["narrow"]["mant"]], [entry["narrow"]["exp"]])[0]]
        trips.append({
            "result": 0,
            "mode": mode[reduction],
            "start": entry["first"],
            "skip": entry["outside"],
            "emit": int(entry["last"] and reduction is not Reduction.MAX_ALL),
            "elements": entry["wide"]["elem"] if entry["wide_source"] else narrow,
        })  # fmt: skip
    if reduction is Reduction.MAX_ALL:
        trips.append({"result": 0, "mode": ReduceMode.LANES, "start": 0, "emit": 1})
    return trips


def drive(config, tokens, *, idle=0.0, seed=0):
    """Launch vectors whose sources and operands are missing with probability ``idle``.

    Returns trips as (cycle of the start, controls, elements), and (cycle, early, reserved ports) of what was emitted.
    """
    dut, rng = Launcher(config, latency=LATENCY), random.Random(seed)
    results = [[rng.randrange(1 << 16) for _ in range(config.native)] for _ in tokens]
    trips, emitted = [], []

    async def bench(ctx):
        waiting, held = list(tokens), 0
        entries = [entry for _, _, entries in tokens for entry in entries]
        products = [n for n, (token, *_) in enumerate(tokens) if token["reduction"] is Reduction.PRODUCT]
        arrived, coming, ready, before = 0, {}, False, 0
        for now in count():
            if len(emitted) == len(tokens) and now > emitted[-1][0] + LATENCY + 2 * config.beats:
                break
            ctx.set(dut.tokens.valid, bool(waiting))
            if waiting:
                ctx.set(dut.tokens.p, waiting[0][0])
            held = held or bool(entries and rng.random() >= idle)
            ctx.set(dut.queue.valid, held)
            if held:
                ctx.set(dut.queue.p, entries[0])
            ready = ready or rng.random() >= idle
            ctx.set(dut.result_ready, ready and arrived < len(products))
            ports = 15 if rng.random() >= idle else rng.randrange(16)
            ctx.set(dut.available, ports)
            for lane in range(config.mfu_lanes):
                ctx.set(dut.result[lane], coming.get(now, [rng.randrange(1 << 16)] * config.mfu_lanes)[lane])
            soon = ctx.get(dut.queue_soon)
            *_, taken, launched, leaves, token, reserve, control, beat = await ctx.tick().sample(
                dut.queue.ready, dut.result_launch, dut.emitted, dut.token, dut.reserve, dut.control, dut.beat
            )
            assert ctx.get(dut.queue.ready) == soon
            assert reserve & ~before == 0 and (leaves or not reserve), "operands were there in the cycle before"
            before = ports
            if taken:
                assert held
                entries.pop(0)
                held = False
            if launched:
                number = products[arrived]
                arrived, ready = arrived + 1, False
                for k in range(config.beats):
                    coming[now + LATENCY + k] = results[number][k * config.mfu_lanes :][: config.mfu_lanes]
            if leaves:
                emitted.append((now, int(token.early), reserve))
                waiting.pop(0)
            if control.valid:
                if control.head:
                    trips.append((now, control, []))
                trips[-1][2].extend(int(x) for x in beat)
                assert len(trips[-1][2]) == config.mfu_lanes * (now - trips[-1][0] + 1)

    simulate(dut, bench, cycles=20_000)
    return results, trips, emitted


def check(config, tokens, results, trips, emitted):
    """Everything that left is what had to leave, in order and whole."""
    want = [
        trip for (token, _, entries), result in zip(tokens, results, strict=True)
        for trip in trips_of(token, entries, result, config)
    ]  # fmt: skip
    for (_, control, elements), trip in zip(trips, want, strict=True):
        assert len(elements) == config.native
        assert {name: getattr(control, name) for name in trip if name not in ("elements", "mode")} == {
            name: value for name, value in trip.items() if name not in ("elements", "mode")
        }
        assert control.mode == trip["mode"]
        assert "elements" not in trip or trip.get("skip") or elements == trip["elements"]
    assert [(early, ports) for _, early, ports in emitted] == [(token["early"], ports) for token, ports, _ in tokens]
    ends = [time + timing.mfu_latency(bool(early)) for time, early, _ in emitted]
    assert all(b - a >= config.beats for a, b in pairwise(ends))


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, FOUR_BEATS], ids=lambda config: config.name)
@pytest.mark.parametrize("idle", [0.0, 0.6])
def test_vectors_leave_in_order_with_their_elements(config, idle):
    rng = random.Random(3)
    tokens = [random_token(rng, config, n) for n in range(60)]
    while tokens[-1][0]["reduction"] is not Reduction.MAX_ALL:  # nothing comes behind it
        tokens.append(random_token(rng, config, len(tokens)))
    check(config, tokens, *drive(config, tokens, idle=idle, seed=1))


@pytest.mark.parametrize("config", [TINY, FOUR_BEATS], ids=lambda config: config.name)
def test_vectors_start_as_soon_as_they_may(config):
    """One every N/P cycles; an early one behind another when its beats leave right behind those of the other."""
    flags = [0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0]
    token = {"reduction": Reduction.PRODUCT, "unit0": UNUSED, "unit1": UNUSED}
    *_, emitted = drive(config, [({**token, "early": early}, 0, []) for early in flags])
    starts = [time for time, *_ in emitted]
    behind = timing.mfu_latency(early=False) - timing.mfu_latency(early=True)
    late = starts[0]
    for k in range(1, len(flags)):
        late = late if flags[k - 1] else starts[k - 1]
        least = starts[k - 1] + config.beats
        assert starts[k] == (max(least, late + config.beats + behind) if flags[k] else least)


def test_only_the_last_tap_of_a_maximum_waits_for_operands():
    dut, starts = Launcher(TINY, latency=LATENCY), []
    token = {"reduction": Reduction.MAX, "unit0": {**UNUSED, "mul": 1}, "unit1": UNUSED, "early": 1}

    async def bench(ctx):
        ctx.set(dut.tokens.valid, 1)
        ctx.set(dut.tokens.p, token)
        taken = 0
        for now in range(60):
            ctx.set(dut.queue.valid, taken < 3)
            ctx.set(dut.queue.p, {"first": taken == 0, "last": taken == 2})
            ctx.set(dut.available, now >= 40)
            *_, ready, emitted = await ctx.tick().sample(dut.queue.ready, dut.emitted)
            starts.extend([now] if ready else [])
            taken += ready
            if emitted:
                ctx.set(dut.tokens.valid, 0)

    simulate(dut, bench)
    assert starts == [1, 3, 41]
