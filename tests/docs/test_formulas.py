"""Formulas of isa.md for integer chains, evaluated as they stand there or written from its text, and the machines."""

import random
import re
from types import SimpleNamespace

import numpy as np
import pytest

from concord.emulator.integers import updated
from concord.golden.integers import IntegerRangeError
from concord.golden.tensor_registers import TensorRegisters
from concord.program.chains import Address, Pad, VectorPlace, Window
from concord.program.integers import ChainSteps, IntegerChain, Planes, ProductTaps
from concord.spec.docs import ROOT
from concord.spec.isa import Mem
from concord.spec.operations import IntegerSource, Op
from support.integer_contents import TRAIN_LARGE, TRAIN_SMALL, TRAIN_WHOLE

SECTION = (ROOT / "isa.md").read_text(encoding="utf-8").partition("### Steps\n")[2].partition("\n### ")[0]
#: Rows of the table: by step the last formula of each cell behind its name.
STEPS = {
    name: [re.findall(r"`([^`]+)`", cell.replace("^", "**"))[-1:] for cell in cells.split("|")]
    for name, cells in re.findall(r"^\| `(t_\w+)[^`]*` \|(.*)\|$", SECTION, re.MULTILINE)
}
#: The lines with names that the table uses.
NAMES = dict(re.findall(r"^    (\w) = (.+?)(?: {3}.*)?$", SECTION, re.MULTILINE))
#: Registers that are used.
REGISTERS = 8


class Trapped(Exception):
    """The page says that the step traps."""


def moved(v, k):
    """To the nearest, halves away from zero; exact to the left."""
    if k <= 0:
        return v * 2**-k
    return (abs(v) + 2 ** (k - 1)) // 2**k * (1 if v > 0 else -1)


def size(v):
    """Bits of a magnitude."""
    return len(f"{v:b}") if v else 0


def page_step(name, exp, top, fields):
    """Exponent and greatest magnitude of z, and what else the step leaves, as the page says."""
    x, y = fields["x"], fields["y"]
    env = {"size": size, "moved": moved, "exp": exp, "top": top, **fields, "k": 0, "g": exp[x]}
    there = [number for number in (x, y) if top[number]]
    if name == "t_fit" and top[x]:
        env["k"] = eval(NAMES["k"], env)
        if not -127 <= exp[x] + env["k"] <= 127:
            raise Trapped
    if name == "t_add" and there:  # an operand that is left out is none but the other one again
        both = {"x": there[0], "y": there[-1]}
        env["g"] = eval(NAMES["g"], env | both | {"least": min(exp[number] for number in there)})
    if name == "t_bias" and top[y] and size(top[y]) + exp[y] - exp[x] > 46:
        raise Trapped
    if name == "t_set":
        env["exp"] = fields["value"]
    results = [eval(cell[0], env) if cell else None for cell in STEPS[name]]
    if name == "t_fit" and not top[x]:
        results[0] = min(max(exp[x], -128), 127)
    if name in ("t_add", "t_bias"):
        results[2] = tuple(move if top[number] else 0 for move, number in zip(results[2], (x, y), strict=True))
    if name != "t_upd" and not (-512 <= results[0] <= 511 and results[1] < 2**47):
        raise Trapped
    return results


def drawn(rng):
    """Registers with exponents and magnitudes near all limits."""
    spans = (-512, 511), (-170, 170), (-130, -126), (126, 130), (-20, 20)
    exps = [rng.randint(*rng.choice(spans)) for _ in range(REGISTERS)]
    tops = [max(0, min((1 << rng.randint(0, 47)) + rng.randint(-2, 2), (1 << 47) - 1)) for _ in exps]
    tops = [top if rng.random() < 0.7 else rng.choice([0, 0, 1, 3, (1 << 31) + 1]) for top in tops]
    if rng.random() < 0.1:
        exps[0], tops[0] = 511, (1 << 47) - 1
    return exps, tops


def left(registers, place):
    return registers.rounding[place], registers.moves, registers.update


@pytest.mark.parametrize("name", ["t_set", "t_mul", "t_fit", "t_scale", "t_add", "t_bias", "t_upd"])
def test_steps_are_those_of_the_page(name):
    rng, trapped, left_something = random.Random(name), 0, False
    for _ in range(400):
        exp, top = drawn(rng)
        z, x, y, factor = (rng.randrange(REGISTERS) for _ in range(4))
        place = rng.randrange(2)
        fields = {
            "x": x, "y": y, "z": z, "bits": rng.choice([2, 8, 32, rng.randint(2, 32)]), "value": rng.randint(-512, 511),
            "factor_exp": rng.randint(-512, 511), "factor_mant": rng.choice([0, 1, -65536, rng.randint(-65536, 65535)]),
            "accumulators": rng.randrange(1 << 14), "coarser": rng.randrange(6),
        }  # fmt: skip
        registers = TensorRegisters()
        registers.exp[:REGISTERS], registers.top[:REGISTERS] = exp, top
        registers.factor_exp[factor], registers.mant[factor] = fields["factor_exp"], fields["factor_mant"]
        before = left(registers, place)
        arguments = {
            "exp": fields["value"], "bits": fields["bits"], "place": place, "factor": factor,
            "accumulators": fields["accumulators"], "coarser": fields["coarser"],
        }  # fmt: skip
        try:
            want = page_step(name, exp, top, fields)
        except Trapped:
            trapped += 1
            with pytest.raises(IntegerRangeError):
                registers.step(Op[name.upper()], z=z, x=x, y=y, **arguments)
            want = [exp[z], top[z], None]
        else:
            registers.step(Op[name.upper()], z=z, x=x, y=y, **arguments)
        if want[0] is None:
            want[:2] = exp[z], top[z]
        assert (registers.exp[z], registers.top[z]) == tuple(want[:2])
        after = list(before)
        if want[2] is not None:
            after[{"t_fit": 0, "t_add": 1, "t_bias": 1, "t_upd": 2}[name]] = tuple(want[2])
            left_something = True
        assert left(registers, place) == tuple(after)
    assert bool(trapped) == (name not in ("t_set", "t_upd"))
    assert left_something == (name in ("t_fit", "t_add", "t_bias", "t_upd"))


def test_a_run_begins_as_the_page_says():
    registers = TensorRegisters()
    assert left(registers, 0) == left(registers, 1) == ((0, 32), (0, 0), (0, 0, 0, 0))


# Chains ------------------------------------------------------------------------------------------


def page_interval(chain, config):
    """The least interval, as the page says."""
    steps, window, n = chain.steps, chain.window, config.native
    read = 0
    if chain.kind is IntegerSource.PRODUCT:
        read = chain.taps.digits * window.kh * window.kw * chain.cols * n // config.lanes
    elif chain.kind is not IntegerSource.WIDE:
        read = 1
    operand = steps.add or steps.mask or steps.update
    read += bool(operand) and chain.operand.mem is Mem.NARROW
    written = chain.planes.count if steps.to_vector and chain.destination.mem is Mem.NARROW else 0
    if steps.update:
        written = 1
    tiles = (chain.planes.count if steps.to_column else 0) + (n // config.lanes if steps.to_row else 0)
    return max(4, n // config.mfu_lanes, read, written, tiles)


def test_the_least_interval_is_that_of_the_page():
    rng, found = random.Random(3), set()
    for _ in range(1000):
        config = rng.choice([TRAIN_SMALL, TRAIN_WHOLE, TRAIN_LARGE])
        on = {name: rng.randrange(2) for name in ("add", "mask", "to_vector", "to_column", "to_row")}
        chain = IntegerChain(
            pc=0, rows=1, cols=rng.randint(1, 3), inner=1, outer=1, kind=rng.choice(list(IntegerSource)),
            source=Address(0), operand=VectorPlace(rng.choice(list(Mem)), Address(0)),
            destination=VectorPlace(rng.choice(list(Mem)), Address(0)), tiles=Address(0),
            taps=ProductTaps(digits=rng.randint(1, 5)), window=Window(rng.randint(1, 3), rng.randint(1, 3)), pad=Pad(),
            columns=Address(0), tile_rows=Address(0), planes=Planes(rng.randint(1, 5)),
            steps=ChainSteps(interval=1, update=int(rng.random() < 0.2), **on),
        )  # fmt: skip
        want = page_interval(chain, config)
        assert chain.least_interval(config) == want
        found.add(want)
    assert {4, 5, 6, 8, 16} < found


def page_update(weights, accumulators, changes, e_z, e_x, point):
    """New weights and accumulators of a block, its exponent, and the three counts, as the page says."""
    refused = vanished = grown = 0
    results = []
    for w, a, c in zip(weights, accumulators, changes, strict=True):
        on_grid = moved(c, e_z - point - e_x)
        total = min(max(on_grid + a, -32767), 32767)
        refused += total != on_grid + a
        vanished += bool(c) and not on_grid
        carry = moved(total, point)
        results.append((w + carry, total - carry * 2**point))
    if any(abs(w) > 127 for w, _ in results):
        grown = 1
        totals = [moved(w * 2**point + a, 1) for w, a in results]
        results = [(moved(total, point), total - moved(total, point) * 2**point) for total in totals]
    return results, e_z + grown, (refused, vanished, grown)


def test_updates_are_those_of_the_page():
    rng, totals = random.Random(5), np.zeros(3, dtype=np.int64)
    for _ in range(100):
        most = rng.choice([100, 127])
        weights = [rng.choice([rng.randint(-most, most), rng.choice([-most, most])]) for _ in range(8)]
        accumulators = [rng.choice([rng.randint(-32767, 32767), -32767, 16384, -16384, 0]) for _ in range(8)]
        changes = [rng.randint(-(1 << rng.randint(0, 31)) + 1, (1 << rng.randint(0, 31)) - 1) for _ in range(8)]
        e_z = rng.randint(-60, 60)
        e_x = e_z - rng.randint(0, 50)
        block = [np.array([values]) for values in (weights, accumulators, changes)]
        coarser = rng.choice([0, rng.randint(0, 5)])
        got = updated(*block, SimpleNamespace(exp=[e_z, e_x]), 0, 1, coarser)
        results, exp, counts = page_update(weights, accumulators, changes, e_z, e_x, 15 - coarser)
        assert list(zip(got.weight[0].tolist(), got.acc[0].tolist(), strict=True)) == results
        assert (got.exp[0], (got.refused.sum(), got.vanished.sum(), got.grown[0])) == (exp, counts)
        totals += counts
    assert (totals > 20).all()
