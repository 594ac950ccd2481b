"""Deep tests are divided, fit into a time, resume, and are noted when all have passed; on a small project."""

import os
import signal
import subprocess
import threading
import tomllib
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest

from deep import NOTE, UNKNOWN, combine, expectations, in_order, main, reached, stopping, table
from support.deep_chunks import LONGEST, START, Chunk, in_chunks, shard_of
from support.deep_processes import Ended, Processes, Run, settled
from support.deep_state import Note, Outcome, Repository, State, combined, write_note
from support.families import Budgets, Family

GOOD, BAD, NONE = Outcome("passed", 2.0, 3.0), Outcome("failed", 1.0, 1.0), Outcome("skipped")


def ids(file, count):
    return tuple(f"{file}::test[{number}]" for number in range(count))


def chunk(file, count=1, seconds=1.0):
    return Chunk(file, ids(file, count), count * seconds)


def test_chunks_are_files_cut_where_they_are_long():
    tests = [*ids("b.py", 3), *ids("a.py", 2), *ids("long.py", 2)]
    seconds = dict.fromkeys(ids("b.py", 3), LONGEST / 2) | dict.fromkeys(ids("long.py", 2), 2 * LONGEST)
    chunks = in_chunks(tests, lambda test: seconds.get(test, 1.0))
    assert [(one.file, len(one.tests), one.seconds) for one in chunks] == [
        ("b.py", 2, LONGEST), ("b.py", 1, LONGEST / 2), ("a.py", 2, 2.0),
        ("long.py", 1, 2 * LONGEST), ("long.py", 1, 2 * LONGEST),
    ]  # fmt: skip
    assert [test for one in chunks for test in one.tests] == tests


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_have_everything_once_and_take_about_as_long(count):
    chunks = [chunk(f"{number}.py", seconds=(number * 37) % 50) for number in range(20)]
    shards = [shard_of(chunks, number, count) for number in range(1, count + 1)]
    assert sorted(one.file for shard in shards for one in shard) == sorted(one.file for one in chunks)
    loads = [sum(one.seconds + START for one in shard) for shard in shards]
    assert max(loads) - min(loads) <= 49 + START
    assert shards == [shard_of(chunks[::-1], number, count) for number in range(1, count + 1)]


def test_a_long_chunk_is_worth_many_short_ones():
    chunks = [chunk("long.py", seconds=100.0), *(chunk(f"{number}.py") for number in range(20))]
    assert [len(shard_of(chunks, number, 2)) for number in (1, 2)] == [2, 19]


@pytest.mark.parametrize(("number", "count"), [(0, 2), (3, 2), (1, 0)])
def test_shards_that_are_none(number, count):
    with pytest.raises(ValueError, match=f"shard must be one of 1/{count} to {count}/{count}, not {number}/{count}"):
        shard_of([], number, count)


@pytest.mark.parametrize(("left", "count"), [(START, 0), (START + 1.9, 0), (START + 2, 1), (START + 5, 2), (1e9, 3)])
def test_as_many_tests_as_fit(left, count):
    assert chunk("a.py", 3).fitting(left, lambda _: 2.0).tests == ids("a.py", 3)[:count]


@pytest.mark.parametrize(
    ("status", "records", "outcomes", "again"),
    [
        (0, [(0, "passed"), (1, "skipped"), (2, "passed")], "passed skipped passed", ""),
        (1, [(0, "passed"), (1, "failed"), (2, "passed")], "passed failed passed", ""),
        (-11, [(0, "passed"), (1, None)], "passed failed -", "2"),  # ended in the second
        (3, [(0, None)], "failed - -", "1 2"),
        (2, [], "failed failed failed", ""),  # cannot be collected
        (0, [(0, "passed")], "passed - -", "1 2"),
        (None, [(0, "passed"), (1, None)], "passed - -", ""),  # stopped
        (None, [], "- - -", ""),
    ],
)
def test_what_a_process_leaves(status, records, outcomes, again):
    one = chunk("a.py", 3)
    lines = []
    for number, result in records:
        lines += [{"test": one.tests[number]}]
        lines += [{"test": one.tests[number], "result": result, "seconds": 1.0, "computing": 2.0}] if result else []
    came, left = settled(one, Ended(status, lines, ""))
    assert [came[test].result if test in came else "-" for test in one.tests] == outcomes.split()
    assert left == [one.tests[int(number)] for number in again.split()]
    assert all(came[test].reason == f"the process ended with the status {status}" for test in came
               if not came[test].seconds)  # fmt: skip


class Machine:
    """A machine with a clock of its own, on which tests take what they take."""

    def __init__(self, seconds, limit):
        self.now, self.seconds, self.limit, self.runs, self.noted = 0.0, seconds, limit, [], []

    def left(self):
        return self.limit - self.now

    def execute(self, one, seconds):
        assert seconds == self.left()
        self.runs.append(one.tests)
        self.now += START + sum(self.seconds[test] for test in one.tests)
        lines = [{"test": test, "result": "passed", "seconds": self.seconds[test]} for test in one.tests]
        return Ended(0, lines, "")

    def run(self, chunks, expected, execute=None, jobs=1, stopped=None):
        state = State("key", "")
        note = lambda *words: self.noted.append(words)  # noqa: E731
        arguments = chunks, execute or self.execute, state, expected, self.left, note, stopped or threading.Event()
        Run(*arguments).work(jobs)
        return state


@pytest.mark.parametrize(
    ("after", "others"),
    [(0, []), (START + 2, ["short"]), (START + 3, ["last"]), (2 * START + 4, ["last", "short"])],
)
def test_nothing_begins_that_does_not_fit(after, others):
    """A long chunk is cut, and short ones take the rest of the time to the end of it."""
    long, last, short = chunk("long.py", 4, 20.0), chunk("last.py", 1, 3.0), chunk("short.py")
    seconds = dict.fromkeys(long.tests, 20.0) | {last.tests[0]: 3.0, short.tests[0]: 1.0}
    machine = Machine(seconds, START + 60 + after)
    state = machine.run([long, last, short], seconds.__getitem__)
    assert machine.runs == [long.tests[:3], *((f"{name}.py::test[0]",) for name in others)]
    assert set(state.outcomes) == {test for tests in machine.runs for test in tests}
    assert len(machine.noted) == len(machine.runs)


def test_what_a_process_did_not_reach_runs_in_another():
    one, statuses = chunk("a.py", 3), iter([-9, 0])

    def execute(part, seconds):
        runs.append(part.tests)
        ended = part.tests[:1] if len(runs) == 1 else part.tests
        lines = [{"test": test, "result": "passed"} for test in ended]
        return Ended(next(statuses), [*lines, *({"test": test} for test in part.tests[1:2])], "")

    runs = []
    state = Machine({}, float("inf")).run([one], lambda _: 1.0, execute)
    assert runs == [one.tests, one.tests[2:]]
    assert [state.outcomes[test].result for test in one.tests] == ["passed", "failed", "passed"]


def test_jobs_share_the_chunks_and_end_when_they_are_stopped():
    chunks, stopped, together = [chunk(f"{number}.py") for number in range(9)], threading.Event(), threading.Barrier(3)

    def execute(part, seconds):
        together.wait(60)  # three at a time
        stopped.set()
        return Ended(0, [{"test": test, "result": "passed"} for test in part.tests], "")

    state = Machine({}, float("inf")).run(chunks, lambda _: 1.0, execute, 3, stopped)
    assert len(state.outcomes) == 3


def test_passes_are_kept_for_the_same_sources(tmp_path):
    path, (a, b, c) = tmp_path / "build" / "deep.json", "abc"
    state = State("key", "commit", [a, b, c])
    state.add({a: GOOD, b: BAD})
    state.write(path)
    assert State.read(path) == state
    same = State.continued(path, "key", "later")
    assert (same.outcomes, same.commit, same.missing([a, b, c])) == (state.outcomes, "later", [b, c])
    other = State.continued(path, "other", "commit")
    assert other == State("other", "commit", seconds={a: 2.0})
    assert State.continued(tmp_path / "none", "key", "commit") == State("key", "commit")


def test_shards_are_put_together():
    tests = ["a", "b", "c"]
    first, second = (State("key", "commit", tests, outcomes) for outcomes in ({"a": GOOD}, {"b": NONE, "c": BAD}))
    whole = combined([first, second])
    assert whole.outcomes == {"a": GOOD, "b": NONE, "c": BAD} and not whole.complete
    assert combined([second, State("key", "commit", tests, {"c": GOOD})]).outcomes["c"] == BAD
    second.outcomes["c"] = GOOD
    assert combined([first, second]).complete
    assert not first.complete and not State("key", "", tests, whole.outcomes | {"c": GOOD}).complete
    assert not State("key", "commit").complete
    with pytest.raises(ValueError, match="commit must be commit in all files, not none"):
        combined([first, State("key", "", tests)])
    with pytest.raises(ValueError, match="files must have the same tests, not 3 and 2"):
        combined([first, State("key", "commit", tests[:2])])


def test_a_complete_run_is_noted(tmp_path, capsys):
    path = tmp_path / "deep.toml"
    assert Note.read(path) == Note()
    tests = [*ids("tests/test_b.py", 2), *ids("tests/test_a.py", 1)]
    states = [State("key", "abc", tests, {test: GOOD}) for test in tests]
    paths = [tmp_path / f"{number}.json" for number in range(3)]
    for state, place in zip(states, paths, strict=True):
        state.write(place)
    assert combine(paths[:2], path) == 1 and not path.exists()
    assert capsys.readouterr().out.splitlines() == [
        f"not run: {tests[2]}", "2 of 3 deep tests of abc have passed or cannot run",
    ]  # fmt: skip
    assert combine(paths, path) == 0
    assert Note.read(path) == Note("abc", {"tests/test_a.py": (1, 2.0), "tests/test_b.py": (2, 4.0)})
    write_note(path, combined(states), date(2026, 11, 29))
    text = tomllib.loads(path.read_text())
    assert (text["date"], text["passed"], text["skipped"], text["computing"]) == (date(2026, 11, 29), 3, 0, 9)


FAMILIES = Budgets(
    0.02, {"one": Family("one", ("tests/a*",), {"deep": 8.0}), "rest": Family("rest", ("*",), {"deep": 0.0})}
)


def test_seconds_are_those_of_the_last_run_or_of_the_budget():
    tests = [*ids("tests/a.py", 2), *ids("tests/a_new.py", 2), "tests/z.py::test"]
    expected = expectations(tests, Note("abc", {"tests/a.py": (4, 6.0)}), FAMILIES)
    assert [expected(test) for test in tests] == [1.5, 1.5, 2.0, 2.0, UNKNOWN]


def test_what_failed_is_first_then_what_is_near_then_what_is_short():
    chunks = [chunk("far.py"), chunk("long.py", 2), chunk("short.py", 2), chunk("fails.py", 3), chunk("done.py")]
    state = State("key", "", outcomes={"fails.py::test[0]": BAD, "done.py::test[0]": GOOD, "short.py::test[1]": NONE})
    ordered = in_order(chunks, state, lambda _: 1.0, {"far.py": 2, "fails.py": 7})
    assert [one.tests for one in ordered] == [
        ids("fails.py", 3), ids("short.py", 1), ids("long.py", 2), ids("far.py", 1),
    ]  # fmt: skip


def test_the_table():
    tests = [*ids("tests/a.py", 3), *ids("tests/b.py", 3)]
    state = State("key", "")
    state.add(
        dict(zip(tests, [GOOD, GOOD, Outcome("passed", 1, 20.0), NONE, Outcome("failed", reason="why")], strict=False))
    )
    lines = list(table(tests, state, lambda _: 2.0, FAMILIES, 2.0))
    assert [line.split() for line in lines[1:3]] == [
        ["one", "3", "3", "0", "0", "0", "13", "s", "8", "s"], ["rest", "3", "0", "1", "1", "1", "0", "s", "0", "s"],
    ]  # fmt: skip
    assert lines[3:] == [
        "above its budget: one, with 13 s for 8 s",
        "not run: 1 of rest, about 2 s, in tests/b.py",
        "failed: tests/b.py::test[1], why",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_processes(number):
    before, processes = signal.getsignal(number), SimpleNamespace(stopped=threading.Event())
    with stopping(processes) as came:
        os.kill(os.getpid(), number)
    assert came == [number] and processes.stopped.is_set()
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("words", ["--shard 3/2", "--shard 1", "--shard a/b"])
def test_shards_that_are_refused(words, capsys):
    with pytest.raises(SystemExit):
        main(words.split())
    assert f"must be such as 2/6, not '{words.split()[1]}'" in capsys.readouterr().err


TEST = """
import os
import signal
import pytest

def note(name):
    with open("ran", "a") as file:
        file.write(name + " ")

@pytest.mark.deep
def test_good():
    note("good")

@pytest.mark.deep
def test_crashes():
    note("crashes")
    if os.path.exists("crash"):
        os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.deep
def test_behind():
    note("behind")

@pytest.mark.deep
@pytest.mark.skip
def test_cannot(): pass

def test_shallow():
    note("shallow")
"""
PROJECT = {
    "pytest.ini": "[pytest]\nmarkers =\n deep: at night\n slow: later\n"
    "pythonpath = tests\naddopts = --import-mode=importlib\n",
    ".gitignore": "build/\n__pycache__/\n.pytest_cache/\nran\n",
    "tests/conftest.py": 'pytest_plugins = ["support.depth", "support.chosen_tests"]\n',
    "tests/budgets.toml": 'loop = 0.02\n[family.first]\nfiles = ["tests/test_first.py"]\ndeep = 50\n'
    '[family.rest]\nfiles = ["tests/*"]\ndeep = 50\n',
    "tests/script_of_second.py": "",
    "tests/test_first.py": TEST,
    "tests/test_second.py": "import pytest\nimport script_of_second\n\n@pytest.mark.deep\ndef test_second():\n"
    "    assert script_of_second.__doc__ is None\n",
}  # fmt: skip


class Project:
    def __init__(self, root):
        self.root = root
        for name, text in PROJECT.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
        self.git("init", "--quiet")
        self.first = self.commit()

    def git(self, *words):
        command = ["git", "-c", "user.name=tests", "-c", "user.email=tests@example.org", *words]
        return subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "tests: a step")
        return self.git("rev-parse", "HEAD")

    def run(self, *words):
        """Exit status, and the deep tests of the first file that ran."""
        (self.root / "ran").unlink(missing_ok=True)
        state = str(self.root / "build" / "deep.json")
        status = main(["--jobs", "1", "--state", state, *words], self.root)
        ran = self.root / "ran"
        return status, ran.read_text().split() if ran.exists() else []


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return Project(tmp_path)


@pytest.mark.slow
def test_a_project_from_the_first_run_to_the_note(project, capsys):
    """A test in which its process ends fails, those after it run all the same, and passes are not repeated."""
    (project.root / "crash").touch()
    assert project.run("--families", "first") == (1, ["good", "crashes", "behind"])
    shown = capsys.readouterr().out
    assert "failed: tests/test_first.py::test_crashes, the process ended with the status -9" in shown
    (project.root / "crash").unlink()
    (project.root / "new").touch()  # other sources
    assert project.run("--families", "first", "--minutes", "0") == (0, [])
    assert "not run: 4 of first" in capsys.readouterr().out
    assert project.run() == (0, ["good", "crashes", "behind"])
    assert "5 deep tests, of which 5 are to run" in capsys.readouterr().out
    assert not (project.root / NOTE).exists()  # not committed
    project.commit()
    assert project.run() == (0, [])
    assert "5 deep tests, of which 0 are to run" in capsys.readouterr().out
    note = Note.read(project.root / NOTE)
    assert note.commit == project.git("rev-parse", "HEAD")
    assert {file: count for file, (count, _) in note.files.items()} == {
        "tests/test_first.py": 4,
        "tests/test_second.py": 1,
    }
    assert project.run("--again", "--families", "first") == (0, ["good", "crashes", "behind"])


@pytest.mark.slow
def test_what_changes_reach_runs(project, capsys):
    (project.root / "tests" / "script_of_second.py").write_text('"""Something."""\n')
    assert project.run("--since", project.first) == (1, [])
    shown = capsys.readouterr().out
    assert "1 files have changed since" in shown and "reach 1 of 2 test files" in shown
    assert "failed: tests/test_second.py::test_second\n" in shown and "assert 'Something.' is None" in shown
    (project.root / "tests" / "script_of_second.py").write_text("")
    assert project.run("--since", project.first) == (0, [])
    assert "0 deep tests, of which 0 are to run" in capsys.readouterr().out
    assert project.run("--since-deep", "--shard", "2/2", "--minutes", "0") == (0, [])
    assert "names no complete run, so no tests can be chosen by what has changed since\n0 deep tests" in (
        capsys.readouterr().out
    )


@pytest.mark.slow
def test_a_commit_that_was_not_fetched(project, capsys):
    repository = Repository(project.root)
    assert reached(project.root, repository, "1" * 40) is None
    assert f"{'1' * 40} is not in the history that was fetched" in capsys.readouterr().out
    assert repository.commit() == project.first
    (project.root / NOTE).write_text("")
    key = repository.key()
    assert (repository.commit(), repository.changed(project.first)) == (project.first, [NOTE])
    (project.root / "new.py").write_text("")
    assert (repository.commit(), repository.changed(project.first)) == ("", ["new.py", NOTE])
    (project.root / "tests" / "conftest.py").unlink()
    assert repository.changed(project.first) == ["new.py", "tests/conftest.py", NOTE]
    assert repository.key() != key


@pytest.mark.slow
def test_files_that_cannot_be_collected(project, capsys):
    (project.root / "tests" / "test_third.py").write_text("import nothing_of_this_name\n")
    assert project.run() == (1, [])
    assert "No module named 'nothing_of_this_name'" in capsys.readouterr().out


@pytest.mark.slow
def test_a_process_that_is_stopped_keeps_what_has_ended(project, tmp_path_factory):
    """The second test waits for the end, which comes when it has begun."""
    (project.root / "tests" / "test_first.py").write_text(
        "import pytest\nimport time\n\npytestmark = pytest.mark.deep\n\ndef test_0(): pass\n\n"
        "def test_1():\n    open('ran', 'w').close()\n    time.sleep(600)\n"
    )
    one = Chunk("tests/test_first.py", tuple(f"tests/test_first.py::test_{number}" for number in (0, 1)), 1.0)
    processes = Processes(project.root, tmp_path_factory.mktemp("processes"))
    assert processes.run(one, 0.0).status is None
    ended = []
    thread = threading.Thread(target=lambda: ended.append(processes.run(one, float("inf"))))
    thread.start()
    while not (project.root / "ran").exists():
        assert thread.is_alive()
        thread.join(0.05)
    processes.stopped.set()
    thread.join()
    outcomes, again = settled(one, ended[0])
    assert ([*outcomes], again, ended[0].status) == ([one.tests[0]], [], None)
    assert processes.run(one, float("inf")).status is None  # and nothing begins
