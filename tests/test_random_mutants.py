"""Random changes are those that a slip would make, on lines that changed, and tests near them are run."""

import subprocess
import tomllib
from pathlib import Path

import pytest

import mutation
from mutation import Mutant, Outcome, entry, random_mutants, run_random, summarise_random, without_effect
from support.nearest_tests import FAST, SLOW, nearest, stages
from support.random_mutants import changed_lines, changes, draw, fitting, made

CASES = {
    "x < y": {"x <= y", "x >= y"},
    "x == y": {"x != y"},
    "x is not y": {"x is y"},
    "x not in y": {"x in y"},
    "a = x + y": {"a = x - y"},
    "a = x << y": {"a = x >> y"},
    "a = x // y": {"a = x % y"},
    "a -= x": {"a += x", "pass"},
    "m.d.sync += x": {"pass"},
    "x and y": {"x or y", "y"},
    "not x": {"x"},
    "a = -x": {"a = x"},
    "a = 0": {"a = 1"},
    "a = 7": {"a = 8", "a = 6"},
    "a = 1.5": {"a = 3.0"},
    "a = True": {"a = False"},
    "a = x[y:z]": {"a = x[:z]", "a = x[y:]"},
    "a = min(x, 'b')": {"a = max(x, 'b')"},
    "a = f(x, y)": {"a = f(y, x)"},
    "a = f(x, b=y)": {"a = f(x)"},
    "a = np.floor(x)": {"a = np.ceil(x)"},
    "f(x)": {"pass"},
    "if x: y": {"if not x: y"},
    "while x > y: z": {"while not (x > y): z", "while x >= y: z", "while x <= y: z"},
    "for x in y:\n    break": {"for x in y:\n    continue"},
    "a = [x for x in y if x.z]": {"a = [x for x in y if not x.z]"},
    "a = x if y else z": {"a = x if not y else z"},
    "def f(x=y): return x + y": {"def f(x=y): return x - y"},
    "a: int = x * y": {"a: int = x + y"},
    "a = 'ä' + x  # é\nb = 'ü' if x < y else z": {
        "a = 'ä' + x  # é\nb = 'ü' if x <= y else z", "a = 'ä' + x  # é\nb = 'ü' if x >= y else z",
        "a = 'ä' + x  # é\nb = 'ü' if not (x < y) else z",
    },
}  # fmt: skip
UNTOUCHED = [
    '"""About 3 things."""', "a = 'min 3'", "a = f'{x + 1}'", "raise ValueError(x + 1)", "assert x < 3, x + 1",
    "import a.b", "a: x | y", "def f(x: a | b) -> c | d: ...", "a = zip(x, strict=True)", "print(x + 1, y)",
    "if TYPE_CHECKING: import x", "def __repr__(self): return x + 1", "# x < 3", "a = '%s' % x",
]  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_what_a_slip_would_make(text):
    assert {made(text.encode(), change) for change in changes(text)} == CASES[text]


@pytest.mark.parametrize("text", UNTOUCHED)
def test_what_is_only_read_stays(text):
    assert changes(text) == []


def test_an_entry_has_lines_that_are_there_once():
    text = "def f(x):\n    if x:\n        y = 1\n\ndef g(x):\n    if x:\n        z = 1\n"
    for change in changes(text):
        old, new = fitting(text, change)
        assert text.count(old) == 1 and text.replace(old, new) == made(text.encode(), change)
        assert not old.startswith(" ") or text.count(old.strip()) > 1


SOURCE = "def clamp(x, low, high):\n    return max(min(x, high), low)\n\n\ndef sign(x):\n    return (x > 0) - (x < 0)\n"
TESTS = "from example.numbers.clamps import {0}\n\ndef test_{0}():\n    assert {1}\n"


def git(folder, *words):
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path):
    """Sources whose second function has changed since the first commit, and tests of both."""
    texts = {
        "sw/example/numbers/clamps.py": SOURCE.replace("(x > 0) - (x < 0)", "x"),
        "tests/sw/numbers/test_clamps.py": TESTS.format("clamp", "clamp(9, 0, 5) == 5 and clamp(-9, 0, 5) == 0"),
        "tests/sw/other/test_sign.py": TESTS.format("sign", "[sign(x) for x in (-2, 0, 3)] == [-1, 0, 1]"),
        "tests/conftest.py": 'pytest_plugins = ["support.computing_limit"]\n',
        "pyproject.toml": (
            '[tool.pytest.ini_options]\npythonpath = ["tests"]\naddopts = "--import-mode=importlib"\n'
            'markers = ["slow", "deep"]\n'
        ),
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tests" / "support").symlink_to(Path(mutation.__file__).parent / "support")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    (tmp_path / "sw/example/numbers/clamps.py").write_text(SOURCE)
    return tmp_path


def test_lines_that_changed(project):
    assert changed_lines("HEAD", project, ["sw", "tests"]) == {"sw/example/numbers/clamps.py": [6]}
    with pytest.raises(ValueError, match="since must be a commit, not 'nothing': "):
        changed_lines("nothing", project, ["sw"])


def test_a_draw_depends_on_its_seed_and_on_the_lines_alone(project):
    lines = {"sw/example/numbers/clamps.py": [2, 6]}
    draws = [list(draw(lines, project, 5, seed)) for seed in range(20)]
    assert draws == [list(draw(lines, project, 5, seed)) for seed in range(20)]
    assert {len(drawn) for drawn in draws} == {2} and len({str(drawn) for drawn in draws}) > 5
    assert [list(draw(lines, project, 1, seed)) for seed in range(20)] == [drawn[:1] for drawn in draws]
    (project / "sw/example/numbers/clamps.py").write_text(f"# a comment\n{SOURCE}")
    assert list(draw({"sw/example/numbers/clamps.py": [3, 7]}, project, 5, 0)) == draws[0]


class Known:
    """What imports what, as the project's sources have it."""

    def __init__(self, distances):
        self.distances = distances

    def reached(self, files):
        return self.distances


DISTANCES = {
    "tests/sw/other/test_sign.py": 1, "tests/sw/numbers/test_far.py": 4, "tests/sw/numbers/test_clamps.py": 2,
    "tests/sw/numbers/test_direct.py": 1, "tests/sw/last/test_most.py": 3,
}  # fmt: skip


def test_the_nearest_tests_come_first(project):
    own, close, far = nearest("sw/example/numbers/clamps.py", Known(DISTANCES), project)
    assert own == ["tests/sw/numbers/test_clamps.py", "tests/sw/numbers/test_direct.py"]
    assert close == ["tests/sw/numbers/test_far.py"]
    assert far == ["tests/sw/other/test_sign.py", "tests/sw/last/test_most.py"]


def test_stages(project):
    """Fast tests from near to far, then slow ones, those that build the RTL last."""
    folder = project / "tests" / "sw" / "numbers"
    (folder / "test_far.py").write_text("@pytest.mark.slow\nfind_library")
    (folder / "test_direct.py").write_text("@pytest.mark.slow")
    found = [(stage.files, stage.marks) for stage in stages("sw/example/numbers/clamps.py", Known(DISTANCES), project)]
    names = {name: f"tests/sw/numbers/test_{name}.py" for name in ("clamps", "direct", "far")}
    assert found == [
        ((names["clamps"], names["direct"]), FAST), ((names["far"],), FAST),
        (("tests/sw/other/test_sign.py", "tests/sw/last/test_most.py"), FAST),
        ((names["direct"],), SLOW), ((names["far"],), SLOW),
    ]  # fmt: skip


@pytest.mark.slow
def test_random_changes_are_run(project, monkeypatch):
    """All of the changed line are noticed by tests of another package, and one by none when its test is weaker."""
    found, lines, results = {}, [], project / "build" / "results.json"
    distances = {name: 1 for name in DISTANCES if (project / name).exists()}
    monkeypatch.setattr(mutation, "Sources", lambda root: Known(distances))
    for seed in range(4):
        mutants = random_mutants("HEAD", 10, seed, root=project)
        assert [mutant.file for mutant in mutants] == ["sw/example/numbers/clamps.py"]
        (result,) = run_random(mutants, root=project, results=results, say=lines.append)
        found[result.mutant.new] = result.outcome
    assert set(found.values()) == {Outcome.NOTICED} and len(found) > 1
    assert any(line.endswith("(tests/sw/other/test_sign.py::test_sign)") for line in lines)
    assert (project / "sw/example/numbers/clamps.py").read_text() == SOURCE
    (project / "tests" / "sw" / "other" / "test_sign.py").write_text(TESTS.format("sign", "sign(2) == 1 or sign"))
    (survived,) = run_random(mutants, root=project, results=results, say=lines.append)
    assert survived.outcome is Outcome.SURVIVED


@pytest.mark.slow
def test_a_file_that_cannot_be_collected_proves_nothing(project, monkeypatch):
    """Whatever the change: an end, and no verdict."""
    (project / "tests" / "sw" / "other" / "test_sign.py").write_text("from example.numbers.clamps import nothing\n")
    monkeypatch.setattr(mutation, "Sources", lambda root: Known({"tests/sw/other/test_sign.py": 1}))
    (result,) = run_random(random_mutants("HEAD", 1, 0, root=project), root=project, say=str)
    assert result.outcome is Outcome.INVALID


def test_an_entry_is_ready_to_be_pasted(project):
    mutant = Mutant("random", "sw/example/numbers/clamps.py", "(x > 0)", '(x >= 0)  # "why"')
    (read,) = tomllib.loads(entry(mutant))["mutant"]
    assert read == {"file": mutant.file, "old": mutant.old, "new": mutant.new, "equivalent": ""}
    listed = Mutant("some", mutant.file, "x > 0", "x >= 0", equivalent="why")
    plain = Mutant("random", mutant.file, "return (x > 0) - ", "return (x >= 0) - ")
    assert without_effect(plain, [listed], project)
    assert not without_effect(plain, [], project) and not without_effect(mutant, [listed], project)


def test_survivors_are_told(capsys):
    mutant = Mutant("random", "sw/a.py", "x", "y")
    good = [mutation.Result(mutant, outcome, 1.0) for outcome in (Outcome.NOTICED, Outcome.TIMEOUT)]
    assert summarise_random(good, 1) == 0
    assert "2 of 3 noticed, 1 without effect (100 %)" in capsys.readouterr().out
    assert summarise_random([*good, mutation.Result(mutant, Outcome.SURVIVED, 1.0)], 1) == 1
    assert entry(mutant) in (text := capsys.readouterr().out) and "2 of 4 noticed, 1 without effect (75 %)" in text
