"""Which test files a change of some files reaches: by the imports between sources, tests and what tests share.

It is read from the sources, and as complete as these are plain about what they use. An import counts in a function,
too, but not one for type checkers. Of a package counts what is imported from it, not all that it exports. A module that
a text names counts, whole or behind ``-m``: programs are started in this way, and modules loaded by name. Of plugins,
which a ``conftest.py`` names, the files count, not what they import: they watch the tests.

The software knows the hardware by such names alone. They count for tests that say so: those that use one of the modules
in which the names stand themselves, have the device ``rtl`` in a text, or follow the pages of the documentation.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath

from concord_bench.pictures.sources import imported_names, modules

ROOT = Path(__file__).parents[2]
#: Packages, of the software and of others.
SOFTWARE = "sw/concord"
PACKAGES = (SOFTWARE, "hw/concord_rtl", "constraints/concord_boards", "bench/concord_bench")
#: Folders of scripts and test files.
SCRIPTS = ("tests", "sim")
#: Modules that import by names which no text has whole: what they import, all of a package where there is a point.
LOADERS = {
    "concord.cli.lazy": "concord.cli.",
    "concord.networks.records": "concord.integer.",
    "test_units": "replay_tb",
}
#: Files that every test depends on.
EVERYWHERE = frozenset({"pyproject.toml"})
#: Files on which no outcome of a test depends: when tests run, and what was.
NOWHERE = frozenset({"tests/budgets.toml", "tests/deep.toml", "CHANGELOG.md"})
#: Tests that follow pages.
_PAGES = "tests/docs/"
#: What stands for the hardware where the software names it.
_STARTED = "hardware that the software starts"
_DOTTED = re.compile(r"[a-z]\w*(\.\w+)+\.?")
_FILE = re.compile(r"[\w./-]+\.\w+")
_DEVICE = re.compile(r"\brtl\b")
#: Nodes that may say something, and those that never do, nor what is in them.
_SAYING = (ast.Import, ast.ImportFrom, ast.Constant, ast.If, ast.Expr, ast.Subscript, ast.Compare, ast.BinOp,
           ast.List, ast.Tuple, ast.Call, ast.Assign)  # fmt: skip
_NOTHING = (ast.Name, ast.expr_context, ast.operator, ast.cmpop, ast.arg)


@dataclass
class Facts:
    """What a source says about what it uses.

    Parameters
    ----------
    imports : list of nodes
        Not those for type checkers.
    texts : set of str
        All but docstrings and names asked for in ``sys.modules``, and paths that ``/`` joins.
    programs : set of str
        Names behind ``-m`` in lists, tuples and calls.
    constants : set of str
        Variables that are one.
    """

    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, source: str) -> Facts:
        """Read a source."""
        facts = cls()
        nodes: list[ast.AST] = [ast.parse(source)]
        for node in nodes:  # which grows meanwhile
            if isinstance(node, _NOTHING):
                continue
            children: Iterable[ast.AST] = ast.iter_child_nodes(node)
            if not isinstance(node, _SAYING):
                nodes += children
                continue
            match node:
                case ast.Import() | ast.ImportFrom():
                    facts.imports.append(node)
                    continue
                case ast.Constant(value=str(text)):
                    facts.texts.add(text)
                case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    children = node.orelse
                case ast.Expr(value=ast.Constant()) | ast.Subscript(value=ast.Attribute(attr="modules")):
                    continue
                case ast.Compare(comparators=[ast.Attribute(attr="modules")]):
                    continue
                case ast.BinOp(op=ast.Div()) if parts := _joined(node):
                    facts.texts.add("/".join(parts))
                case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Call(args=items):
                    words = [item.value if isinstance(item, ast.Constant) else None for item in items]
                    facts.programs |= {str(name) for flag, name in pairwise(words) if flag == "-m"}
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant()):
                    facts.constants.add(name)
            nodes += children
        return facts


def _joined(node: ast.AST) -> list[str]:
    """The texts at the end of a path that ``/`` joins."""
    match node:
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            end = _joined(right)
            return [*_joined(left), *end] if end else []
        case ast.Constant(value=str(text)):
            return [text]
    return []


class Sources:
    """The files of the project, and what each of them uses of the others.

    Parameters
    ----------
    root : Path
        Of the project.
    """

    def __init__(self, root: Path = ROOT):
        self._mentions: dict[str, set[str]] = {}  # files of the project that have a text, by the text
        self._users: dict[str, set[str]] = {}  # files that use a file
        self._files: dict[str, str] = {}  # names of modules by file
        for folder in (*PACKAGES, *SCRIPTS):
            for name, path in modules(root / folder).items():
                self._files[path.relative_to(root).as_posix()] = name.removeprefix(f"{folder}.")
        self._modules = {name: file for file, name in self._files.items() if file.rpartition("/")[2] != "conftest.py"}
        facts = {file: Facts.of((root / file).read_text(encoding="utf-8")) for file in self._files}
        self._exports = {
            name: self._exported(name, facts[file]) for name, file in self._modules.items() if _is_package(file)
        }
        used = {file: self._used(file, facts[file]) for file in facts}
        starting = {file for file, others in used.items() if _STARTED in others}
        for file, others in used.items():
            if file.startswith(SOFTWARE):
                others.discard(_STARTED)
            elif file.startswith(_PAGES) or others & starting or any(map(_DEVICE.search, facts[file].texts)):
                others.add(_STARTED)
            for other in others - {_whole(file)}:
                self._users.setdefault(other, set()).add(_whole(file))

    def _exported(self, name: str, facts: Facts) -> dict[str, str]:
        """Where names of a package come from: a name in another module, or nothing for a constant."""
        names = dict.fromkeys(facts.constants, "")
        for node in facts.imports:
            if isinstance(node, ast.ImportFrom):
                _, *full = imported_names([node], name.split("."))
                names |= {alias.asname or alias.name: other for alias, other in zip(node.names, full, strict=True)}
        return names

    def _used(self, file: str, facts: Facts) -> set[str]:
        """What a file uses: files, and packages with all that they export."""
        name = self._files[file]
        package = name.split(".") if _is_package(file) else name.split(".")[:-1]
        used = {file}
        for node in facts.imports:
            base, *names = imported_names([node], package)
            for other in names if isinstance(node, ast.ImportFrom) else [base, *names]:
                used.update(self._named(other))
        for text in facts.texts:
            if _DOTTED.fullmatch(text):
                files = set(self._named(text)) & self._files.keys()
                used |= set(map(_alone, files)) if file.endswith("conftest.py") else files
            if _FILE.fullmatch(text):
                self._mentions.setdefault(text, set()).add(file)
                used |= {text} & self._files.keys()
        for program in facts.programs:
            for other in {program, f"{program}.__main__"} & self._modules.keys():
                used.update(self._named(other))
        if name in LOADERS:
            used.update(self._named(LOADERS[name]))
        if file.startswith(SCRIPTS):
            used |= {f"{folder}/conftest.py" for folder in PurePosixPath(file).parents} & self._files.keys()
        if file.startswith(SOFTWARE):
            hardware = {other for other in used if other.startswith(("hw/", "constraints/"))}
            for other in hardware:
                self._users.setdefault(other, set()).add(_STARTED)
            used = used - hardware | ({_STARTED} if hardware else set())
        return used

    def _named(self, text: str) -> Iterator[str]:
        """What a name of a module or of something in it needs; with a point at its end, all modules of a package."""
        if text.endswith("."):
            yield from (file for name, file in self._modules.items() if name.startswith(text))
            return
        module, rest = text, ""
        while module and module not in self._modules:
            module, _, rest = module.rpartition(".")
        parts = module.split(".") if module else []
        above = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        yield from (self._modules[name] for name in above if name in self._modules)
        if module in self._exports:
            origin = self._exports[module].get(rest)
            if origin:
                yield from self._named(origin)
            elif origin is None:
                yield _whole(self._modules[module])

    def test_files(self) -> list[str]:
        """All test files."""
        return sorted(file for file in self._files if _is_test(file))

    def reached(self, changed: Iterable[str]) -> dict[str, int]:
        """Test files that changes of some files reach, with the number of imports from there to the nearest of them.

        A file that is no source reaches what names it, and the modules beside it if nothing does, as does a source that
        nothing uses; a page of the documentation reaches the tests of the pages, too.
        """
        changed = set(changed) - NOWHERE
        if changed & EVERYWHERE:
            return dict.fromkeys(self.test_files(), 0)
        distances = dict.fromkeys((user for file in changed for user in self._beside(file)), 1)
        distances |= dict.fromkeys([*changed, *map(_alone, changed)], 0)
        pending = deque(sorted(distances, key=distances.__getitem__))
        while pending:
            file = pending.popleft()
            for user in sorted(self._users.get(file, ())):
                if user not in distances:
                    distances[user] = distances[file] + 1
                    pending.append(user)
        return {file: distances[file] for file in sorted(distances) if file in self._files and _is_test(file)}

    def _beside(self, file: str) -> set[str]:
        """What uses a file that is no source, or a source that nobody imports."""
        path = PurePosixPath(file)
        if path.suffix == ".py" and (file not in self._files or file in self._users or _is_test(file)):
            return set()
        tails = ("/".join(path.parts[start:]) for start in range(len(path.parts)))
        users = {user for tail in tails for user in self._mentions.get(tail, ())}
        if path.parts[0] == "docs":
            return users | {other for other in self._files if other.startswith(_PAGES)}
        folders = [str(folder) for folder in path.parents][:-1]
        beside = ([other for other in self._files if str(PurePosixPath(other).parent) == folder] for folder in folders)
        return users or {other for other in next(filter(None, beside), ()) if not other.endswith("conftest.py")}


def _is_test(file: str) -> bool:
    return file.startswith(SCRIPTS) and PurePosixPath(file).name.startswith("test_")


def _is_package(file: str) -> bool:
    return file.endswith("/__init__.py")


def _alone(file: str) -> str:
    """A file without what it imports."""
    return f"{file}:alone"


def _whole(file: str) -> str:
    """A file with all that it imports; of a package, what a module in it needs is the file alone."""
    return f"{file}:exports" if _is_package(file) else file
