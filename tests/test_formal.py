"""The proofs that take little time hold, slips are noticed, and a proof can fail."""

import pytest
from amaranth.hdl import Signal

from proving import attempt, choose, main, prove
from support.formal import rewrites
from support.formal.bench import Bench
from support.formal.catalogue import PROOFS
from support.formal.mutant import Change, changed
from support.formal.proof import Function, Result, Sequential

#: Units of which one slip each is tried.
NOTICED = ("hazard tracker", "binary16 multiplier", *(proof.unit for proof in rewrites.PROOFS))


def counter(last: int = 3, *, allowed: int = 1):
    """A counter that the solver may stop, and never gets to 4 if ``last`` is 3."""
    bench = Bench()
    count, step = Signal(3), bench.free(1, "step")
    with bench.m.If(step & (count != last)):
        bench.m.d.sync += count.eq(count + 1)
    bench.assume(bench.free(1, "allowed") == allowed)
    bench.assume(bench.constant(2, "kept") == 2)
    bench.must(count < 4)
    bench.reach(count == 3)
    return bench


@pytest.mark.slow
def test_fast_proofs_hold():
    chosen = choose(fast=True)
    lines = prove(chosen, changes=False, jobs=2, say=lambda text: None)
    assert len(lines) == len(chosen) > 8
    assert not [str(line) for line in lines if not line.good]
    assert {line.outcome.result for line in lines} == {Result.PROVEN}


@pytest.mark.slow
@pytest.mark.parametrize("unit", NOTICED)
def test_a_slip_is_noticed(unit):
    index = next(k for k, proof in enumerate(PROOFS) if proof.unit == unit)
    line = attempt(index, 0, None, None)
    assert line.good and line.outcome.result is Result.FAILED


def test_every_unit_has_a_slip():
    assert all(proof.changes for proof in PROOFS)


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: f"{proof.unit}-{proof.text[:8]}")
def test_slips_fit_the_sources(proof):
    """A change is in its file once and changes a function, and nothing is left of it afterwards."""
    for change in proof.changes:
        with changed(change):
            pass


@pytest.mark.slow
def test_what_is_wrong_is_found():
    assert Sequential("counter", "", counter, depth=8).run().result is Result.BOUNDED
    wrong = Sequential("counter", "", lambda: counter(5), depth=8, steps=1)
    assert wrong.run().result is Result.FAILED
    late = wrong.run(depth=4)
    assert late.result is Result.FAILED and "induction" in late.method, "not within 4 cycles, but after any"


@pytest.mark.slow
def test_what_is_proven_of_nothing_is_told():
    """Assumptions that cannot all hold; the count is never reached."""

    def bench():
        bench = counter()
        bench.assume(0)
        return bench

    assert Sequential("counter", "", bench, depth=8, steps=1).run().result is Result.EMPTY


@pytest.mark.slow
def test_cases_that_leave_inputs_out_are_found():
    whole = next(proof for proof in PROOFS if isinstance(proof, Function) and proof.text.startswith("the same number"))
    zero = "(= (in mant) (_ bv0 8))"
    assert whole.__class__(**vars(whole) | {"cases": (zero, f"(not {zero})")}).run().result is Result.PROVEN
    wrong = vars(whole) | {"definition": "(assert true)", "cases": ()}
    assert whole.__class__(**wrong).run().result is Result.FAILED


def test_changes_that_fit_nowhere_are_refused():
    line = "LATENCY = timing.REGISTER_SLICE"
    for old, new, text in (("nowhere", "x", "old must be"), (line, "LATENCY = 2", "new must change")):
        with pytest.raises(ValueError, match=text), changed(Change("concord_rtl.parts.register_slice", old, new)):
            pass


@pytest.mark.slow
def test_the_command(capsys):
    assert main(["--only", "splitter", "--no-changes", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "word splitter" in out and "1 of 1 properties hold, 0 of 0 changes" in out
    with pytest.raises(SystemExit):
        main(["--only", "no such unit"])
    with pytest.raises(SystemExit):
        main(["--depth", "0"])
