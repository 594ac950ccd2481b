"""Names say what they hold: words that say nothing are none, and no two public classes have the same one."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: Words that only say where a value comes from, or nothing at all.
FORBIDDEN = frozenset({"found", "told", "mine", "one", "given", "ahead", "behind"})
PACKAGES = ("sw", "hw", "bench")


def stored_names(tree):
    """``(line, name)`` of what a module names: variables, parameters, functions, classes, attributes, fields."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield node.lineno, name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((node.lineno, alias.asname) for alias in aliases if alias.asname)
            case _:
                pass


def forbidden_names(source):
    """``(line, name)`` of the names in a text that are forbidden."""
    return [(line, name) for line, name in stored_names(ast.parse(source)) if name.strip("_") in FORBIDDEN]


def classes_twice(sources):
    """Public classes that several files have, with these files."""
    files = defaultdict(list)
    for file, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(file)
    return {name: places for name, places in files.items() if len(places) > 1}


def sources_below(*folders):
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


@pytest.mark.slow
def test_names_say_what_they_hold():
    sources = sources_below(*PACKAGES)
    assert not {file: names for file, text in sources.items() if (names := forbidden_names(text))}


@pytest.mark.slow
def test_public_classes_of_the_software_have_names_of_their_own():
    assert not classes_twice(sources_below("sw"))


def test_every_package_has_sources():
    assert all(sources_below(folder) for folder in PACKAGES)


@pytest.mark.parametrize(
    "source",
    [
        "NAME = 1", "a, *NAME = 1, 2", "for NAME in (): pass", "x = [NAME for NAME in ()]", "if (NAME := 1): pass",
        "NAME: int = 1", "x.NAME = 1", "x.NAME: int = 1", "NAME += 1", "with open(0) as NAME: pass",
        "def NAME(): pass", "async def NAME(): pass", "class NAME: pass", "class A:\n    NAME: int\n",
        "class A:\n    def NAME(self): pass\n", "def f(NAME): pass", "def f(*, NAME=1): pass", "def f(*NAME): pass",
        "def f(**NAME): pass", "f = lambda NAME: 1", "import a as NAME", "from a import b as NAME",
        "try:\n    pass\nexcept OSError as NAME:\n    pass\n", "match 1:\n    case int() as NAME:\n        pass\n",
        "match 1:\n    case [*NAME]:\n        pass\n", "match 1:\n    case {**NAME}:\n        pass\n",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["found", "_told"])
def test_a_forbidden_name_is_noticed(source, name):
    assert [word for _, word in forbidden_names(source.replace("NAME", name))] == [name]
    assert not forbidden_names(source.replace("NAME", "founder"))


@pytest.mark.parametrize("word", sorted(FORBIDDEN))
def test_all_words_are_noticed(word):
    assert forbidden_names(f"x = 1\n{word} = x\n") == [(2, word)]


def test_words_in_texts_and_names_of_others_are_allowed():
    assert not forbidden_names('"""What is found."""\nx = a.found\nf(given=x)  # told\n')


def test_a_second_class_of_a_name_is_noticed():
    sources = {
        "a.py": "class Layer: pass\nclass _Part: pass",
        "b.py": "if x:\n    class Layer: pass\nclass _Part: pass",
    }
    assert classes_twice(sources) == {"Layer": ["a.py", "b.py"]}
    assert classes_twice({"a.py": "class A:\n    class Item: pass\nclass B:\n    class Item: pass"})
    assert not classes_twice({"a.py": "class Layer: pass", "b.py": "class Layers: pass\nLayer = 1"})
