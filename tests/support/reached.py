"""Which test files run which functions of the sources: recorded by a plugin of pytest, for ``mutation.py --random``.

``pytest --reached FILE`` writes what it found. A function is one that has run while tests of the file ran; what runs
while modules are imported is not counted.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from support.slowness import computing

#: Folders with packages.
PACKAGES = ("sw", "hw", "constraints", "bench")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(text: str) -> dict[str, range]:
    """Lines of the bodies of all functions by their qualified name; of those with one name, the last."""
    found = {}

    def walk(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inside = names
            if isinstance(child, Function | ast.ClassDef):
                inside = (*names, child.name)
            if isinstance(child, Function):
                found[".".join(inside)] = range(child.body[0].lineno, (child.end_lineno or 0) + 1)
            walk(child, inside)

    walk(ast.parse(text), ())
    return found


def function_at(text: str, line: int) -> str:
    """The innermost function with a line in its body; empty if there is none."""
    around = [(len(lines), name) for name, lines in functions(text).items() if line in lines]
    return min(around, default=(0, ""))[1]


@dataclass(frozen=True)
class Reached:
    """What test files run.

    Parameters
    ----------
    by_source : dict of str to dict of str to list of str
        Functions by source file and test file, both from the root of the project.
    seconds : dict of str to float
        What the tests of a file compute for.
    failed : tuple of str
        Node ids of tests that fail without a change.
    """

    by_source: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Reached:
        """What a run has written."""
        known = json.loads(path.read_text())
        return cls(known["by_source"], known["seconds"], tuple(known["failed"]))

    def files(self, source: str, function: str) -> list[str]:
        """Test files that run a function, those that compute least first.

        Of what is in no function, those that run any one of the file, as its constants are of use to them.
        """
        by_file = self.by_source.get(source, {})
        found = [name for name, names in by_file.items() if not function or function in names]
        return sorted(found, key=lambda name: (self.seconds.get(name, 0.0), name))


class _Recorder:
    """Counts lines while tests run, file by file."""

    def __init__(self, path: Path, root: Path):
        from coverage import Coverage  # half a second, which runs without this option need not wait

        self.path, self.root = path, root
        self.coverage = Coverage(data_file=None, source=[str(root / name) for name in PACKAGES], config_file=False)
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session):
        """Count from the first test on."""
        self.coverage.start()
        try:
            return (yield)
        finally:
            self.coverage.stop()
            found = {"by_source": self._functions(), "seconds": self.seconds, "failed": self.failed}
            self.path.write_text(json.dumps(found))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """What runs belongs to the file of the test."""
        name = item.nodeid.partition("::")[0]
        self.coverage.switch_context(name)
        begin = computing()
        try:
            return (yield)
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + computing() - begin

    def pytest_runtest_logreport(self, report):
        """Note what fails."""
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)

    def _functions(self) -> dict[str, dict[str, list[str]]]:
        data = self.coverage.get_data()
        found: dict[str, dict[str, list[str]]] = {}
        for path in map(Path, data.measured_files()):
            if not path.is_relative_to(self.root):
                continue
            bodies = functions(path.read_text())
            by_file: dict[str, set[str]] = {}
            for line, contexts in data.contexts_by_lineno(str(path)).items():
                here = [name for name, lines in bodies.items() if line in lines]
                for context in filter(None, contexts):
                    by_file.setdefault(context, set()).update(here)
            found[str(path.relative_to(self.root))] = {name: sorted(names) for name, names in by_file.items() if names}
        return found


class _Limit:
    """Leaves out the tests that are left when those before have computed long enough."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self):
        """Tells pytest that a test has been seen to."""
        return True if computing() > self.seconds else None


def pytest_addoption(parser):
    """What to record, and how much to run."""
    parser.addoption("--reached", type=Path, metavar="FILE", help="write which test files run which functions")
    parser.addoption("--computing", type=float, metavar="SECONDS", help="start no test after computing for so long")


def pytest_configure(config):
    """Record or stop if that was asked for."""
    if config.getoption("--reached"):
        config.pluginmanager.register(_Recorder(config.getoption("--reached"), config.rootpath))
    if config.getoption("--computing"):
        config.pluginmanager.register(_Limit(config.getoption("--computing")))


@cache
def _imports(path: Path) -> frozenset[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return frozenset(names)


def near(source: str, root: Path) -> tuple[list[str], list[str]]:
    """Test files of the folder that belongs to a source: those with its name or that import it, and the others.

    The folder of ``tests`` with the longest common path; of the topmost one only the files that are directly in it.
    """
    package, first, *folders, name = Path(source).parts
    top = folder = root / "tests" / {"sw": "sw", "bench": "bench"}.get(package, "rtl")
    for part in folders:
        if not (folder / part).is_dir():
            break
        folder /= part
    module = ".".join([first, *folders, name.removesuffix(".py")]).removesuffix(".__init__")
    names = (f"test_{Path(name).stem}", f"test_{Path(source).parent.name}")
    every = sorted(folder.rglob("test_*.py") if folder != top else top.glob("test_*.py"))
    same = [path for path in every if path.stem in names]
    own = same + [path for path in every if path not in same and module in _imports(path)]
    found = [[str(path.relative_to(root)) for path in paths] for paths in (own, every)]
    return found[0], [path for path in found[1] if path not in found[0]]


@dataclass(frozen=True)
class Stage:
    """Tests that are run in one go: files, which marks, and processor seconds after which no other test starts."""

    files: tuple[str, ...]
    marks: str
    seconds: float


FAST, SLOW = "not slow and not deep", "slow and not deep"


def stages(source: str, line: int, reached: Reached, root: Path) -> list[Stage]:
    """Tests for a change of a line: fast ones close to it, others that run its function, then slow ones close to it."""
    own, beside = near(source, root)
    running = reached.files(source, function_at((root / source).read_text(), line))
    close = own + [name for name in beside if name in running]
    far = [name for name in running if name not in close]
    slow = [name for name in [*own, *beside] if "mark.slow" in (root / name).read_text()]
    found = [Stage(tuple(close), FAST, 40.0), Stage(tuple(far), FAST, 60.0), Stage(tuple(slow), SLOW, 90.0)]
    return [stage for stage in found if stage.files]
