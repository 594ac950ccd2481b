"""The lists of mutants fit the sources, the runner tells what is noticed from what is not, and a sample is noticed."""

import ast
import zlib
from dataclasses import replace
from functools import cache

import pytest

import mutation
from mutation import ROOT, Mutant, Outcome, Result, choose, load, main, missing, run, summarise

MUTANTS = load()
#: Mutants that every run of the tests tries, other ones whenever a source has changed.
SAMPLE = 6


@cache
def functions(file):
    """Names of the tests of a file."""
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def misfits(mutants):
    """What is wrong with entries of the lists, a line each: the text must be there once, and so must be the tests."""
    for mutant in mutants:
        where = f"{mutant.area}: {mutant.file}: {mutant.old!r}"
        text = (ROOT / mutant.file).read_text() if (ROOT / mutant.file).is_file() else ""
        if text.count(mutant.old) != 1:
            yield f"{where} must be there once, not {text.count(mutant.old)} times"
        if mutant.old == mutant.new:
            yield f"{where} must change"
        if bool(mutant.tests) == bool(mutant.equivalent):
            yield f"{where} must have either tests, or a reason why there are none"
        for test in mutant.tests:
            file, _, name = test.partition("::")
            if not (ROOT / file).is_file() or (name and name.partition("[")[0] not in functions(file)):
                yield f"{where}: there must be a test {test}"


@pytest.mark.slow
def test_mutants_fit_the_sources():
    assert not list(misfits(MUTANTS))


def test_misfits_are_found():
    real = next(mutant for mutant in MUTANTS if mutant.tests)
    wrong = {
        "once, not 0 times": replace(real, old="no such text"),
        "must change": replace(real, new=real.old),
        "either tests, or a reason": replace(real, equivalent="it has tests"),
        "must be a test tests/none.py": replace(real, tests=("tests/none.py",)),
        "must be a test tests/test_mutants.py::test_none": replace(
            real, tests=("tests/test_mutants.py::test_none[1]",)
        ),
    }
    assert not list(misfits([real]))
    for text, entry in wrong.items():
        (line,) = misfits([entry])
        assert text in line


def test_no_mutant_is_listed_twice():
    changes = [(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS]
    assert len(changes) == len(set(changes))


@pytest.mark.slow
def test_a_sample_is_noticed():
    fast = [mutant for mutant in MUTANTS if mutant.fast and mutant.possible]
    seed = zlib.crc32("".join((ROOT / mutant.file).read_text() for mutant in fast).encode())
    chosen = choose(fast, seed=seed, count=SAMPLE)
    lines = []
    found = run(chosen, jobs=2, say=lines.append)
    left = [(result.outcome, result.mutant.describe()) for result in found if result.outcome is not Outcome.NOTICED]
    assert len(found) == SAMPLE and not left, "\n".join(lines)


# The runner on a project of its own --------------------------------------------------------------

SOURCE = """
def clamp(x, low, high):
    while x > high:
        x -= 1
    return max(x, low)  # not below
"""
TESTS = """
from clamps import clamp

def test_high():
    assert clamp(9, 0, 5) == 5

def test_low():
    assert clamp(-9, 0, 5) == 0

def test_wrong():
    assert clamp(1, 0, 5) == 2
"""


@pytest.fixture
def project(tmp_path):
    return project_of(tmp_path)


def project_of(tmp_path):
    """A folder with a source and tests."""
    for name, text in {"sw/clamps.py": SOURCE, "tests/test_clamps.py": TESTS}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def mutant(old, new, *names, **more):
    return Mutant(
        "some", "sw/clamps.py", old, new, tuple(f"tests/test_clamps.py::test_{name}" for name in names), **more
    )


NOTICED = mutant("max(x, low)", "max(x, high)", "low", "high")
SURVIVES = mutant("# not below", "# at least", "low", "high")
CASES = {
    NOTICED: Outcome.NOTICED,
    SURVIVES: Outcome.SURVIVED,
    mutant("max(x, low)", "x", "high"): Outcome.SURVIVED,
    mutant("x -= 1", "x += 1", "high"): Outcome.TIMEOUT,
    mutant("return max", "return = max", "high"): Outcome.INVALID,
}


@pytest.fixture
def outcomes(project, monkeypatch):
    """Runs mutants; outcomes in order, and the lines of progress."""
    monkeypatch.setattr(mutation, "_TIMEOUT", 2.0)
    monkeypatch.setattr(mutation, "_LONGER", 2.0)

    def go(mutants, results=None):
        lines = []
        found = {r.mutant: r.outcome for r in run(mutants, results=results, root=project, say=lines.append)}
        assert (project / "sw" / "clamps.py").read_text() == SOURCE
        return [found[m] for m in mutants], lines

    return go


@pytest.mark.slow
def test_what_comes_of_mutants(outcomes):
    assert outcomes(list(CASES))[0] == list(CASES.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrong", "nothing"])
def test_tests_that_fail_without_a_change_prove_nothing(name, outcomes):
    assert outcomes([mutant("x -= 1", "x -= 2", name)])[0] == [Outcome.INVALID]


@pytest.mark.slow
def test_what_was_noticed_is_not_run_again(project, outcomes):
    """As long as neither the source nor the tests change; what survived is run again."""
    results, both = project / "build" / "results.json", [NOTICED, SURVIVES]
    want = [Outcome.NOTICED, Outcome.SURVIVED]
    found, lines = outcomes(both, results)
    assert found == want and not any("noticed before" in line for line in lines)
    found, lines = outcomes(both, results)
    assert found == want and lines[0] == "1 of 2 were noticed before" and len(lines) == 3
    keys = NOTICED.key(project)
    for name in ("tests/test_clamps.py", "sw/clamps.py"):
        with open(project / name, "a") as file:
            file.write("# changed\n")
        assert NOTICED.key(project) != keys
        keys = NOTICED.key(project)


@pytest.mark.parametrize("outcome", Outcome)
def test_only_what_is_noticed_ends_well(outcome, capsys):
    real = MUTANTS[0]
    good = outcome in (Outcome.NOTICED, Outcome.TIMEOUT)
    assert summarise([Result(real, outcome, 1.0)], [real], 1.0) == (0 if good else 1)
    text = capsys.readouterr().out
    assert ("1 of 1 noticed" in text) == good and (f"{outcome}: {real.file}" in text) != good


def test_a_text_that_is_not_there_once_is_refused():
    with pytest.raises(ValueError, match=r"old text of a mutant must occur once in sw/clamps\.py, not 2 times: 'x -'"):
        mutant("x -", "x +").apply("x - x - 1")


def test_a_sample_depends_on_its_seed():
    many = [mutant("x", str(k), "low") for k in range(50)]
    assert choose(many, seed=1, count=5) == choose(many, seed=1, count=5) != choose(many, seed=2, count=5)
    assert choose(many, count=100) == many
    assert choose(many, "some") == choose(many, "clamps") == many and choose(many, "other") == []
    assert choose([mutant("x", "y", equivalent="why not")]) == []


def test_mutants_whose_tests_cannot_run_are_left_out(tmp_path, monkeypatch, capsys):
    here, there, everywhere = (replace(mutant("x", "y"), needs=name) for name in ("no_such_module", "json", ""))
    assert choose([here, there, everywhere]) == [there, everywhere]
    assert here.key(project_of(tmp_path)) == everywhere.key(tmp_path), "what is installed does not change an outcome"
    assert missing([here, there, here]) == ["mutants not run, as tests need no_such_module, which is not installed: 2"]
    monkeypatch.setattr(mutation, "load", lambda lists: [replace(here, area="far"), everywhere])
    with pytest.raises(SystemExit):
        main(["--only", "far"])
    assert "tests need no_such_module, which is not installed: 1" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_line(tmp_path, monkeypatch, capsys):
    asked = []

    def fake(mutants, **options):
        asked.append((mutants, options["jobs"], options["results"] is None))
        return [Result(m, Outcome.NOTICED if m.area == "link" else Outcome.SURVIVED, 1.0) for m in mutants]

    monkeypatch.setattr(mutation, "run", fake)
    assert main(["--only", "link", "--count", "3", "--seed", "5", "--jobs", "2"]) == 0
    assert main(["--only", "rtl", "--count", "1", "--again"]) == 1
    assert asked[0] == (choose(MUTANTS, "link", 5, 3), 2, False) and asked[1][1:] == (1, True)
    with pytest.raises(SystemExit):
        main(["--only", "nothing"])
    areas = sorted({mutant.area for mutant in MUTANTS})
    assert f"{areas} or part of a path, not 'nothing'" in capsys.readouterr().err
