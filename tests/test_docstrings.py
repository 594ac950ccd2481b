"""First sentences of docstrings say what a thing is or does: none is a question, a pronoun or another class."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("sw", "hw", "constraints", "sim", "bench")
#: Openings that leave out the noun: questions, and pronouns whose noun is elsewhere.
OPENINGS = (
    "What", "Whatever", "Whether", "Which", "Whichever", "Who", "Whose", "Why", "How", "Where", "When",
    "It", "Its", "They", "Those", "That of", "That for", "The same", "Likewise", "As there",
)  # fmt: skip
OPENING = re.compile(rf"(?:{'|'.join(OPENINGS)})\b")
#: References to a sentence that stands elsewhere; ``as there are`` counts something.
ELSEWHERE = re.compile(r"\b(?:likewise|as there(?! (?:are|is|was|were)\b))\b", re.IGNORECASE)
#: A word of several capitals at the beginning, such as ``SumHistograms``, in backquotes or not.
CLASS = re.compile(r"`*([A-Z]+[a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+)\b")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def first_sentence(text):
    """The first sentence of a docstring, in one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.:;!?])\s", paragraph, maxsplit=1)[0]


def docstrings(tree):
    """``(node, docstring)`` of a module, and of all classes and functions in it."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node, text


def own_names(node):
    """Names with which the docstring of a class may open: its own, and those of its bases."""
    if not isinstance(node, ast.ClassDef):
        return set()
    inside = [name for base in node.bases for name in ast.walk(base)]
    bases = {name.id for name in inside if isinstance(name, ast.Name)}
    return {node.name.lstrip("_")} | bases | {name.attr for name in inside if isinstance(name, ast.Attribute)}


def reason(node, sentence, classes):
    """Reason for which the first sentence of a docstring breaks the rule, or ``None``."""
    if opening := OPENING.match(sentence):
        return f"opens with {opening[0]!r}"
    if name := CLASS.match(sentence):
        meant = {name[1], name[1].removesuffix("s")} & classes
        if meant and not meant & own_names(node):
            return f"opens with the class {name[1]}"
    if word := ELSEWHERE.search(sentence):
        return f"has {word[0]!r}"
    return None


def class_names(trees):
    return {node.name.lstrip("_") for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def offenders(trees):
    """Lines ``file:line: sentence (reason)`` of all docstrings that break the rule, of syntax trees by file."""
    classes = class_names(trees.values())
    return [
        f"{file}:{node.body[0].lineno}: {sentence} ({why})"
        for file, tree in trees.items()
        for node, text in docstrings(tree)
        if (why := reason(node, sentence := first_sentence(text), classes))
    ]


@pytest.mark.slow
def test_first_sentences_say_what_a_thing_is():
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    trees = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in files}
    assert not offenders(trees)


def test_every_folder_has_sources():
    assert all(any((ROOT / folder).rglob("*.py")) for folder in FOLDERS)


def problem(source):
    """Lines of the docstrings of a source that break the rule, as one text; empty if none does."""
    lines = offenders({"a.py": ast.parse(source)})
    return "; ".join(lines)


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize(
    "source",
    [
        '"""{} x."""', 'class A:\n    """{} x.\n\n    More.\n    """', 'def f():\n    """{}\n    x."""',
        'async def f():\n    """{} x."""', 'class A:\n    @property\n    def _b(self):\n        """{} x."""',
        'def f():\n    def g():\n        """{} x."""\n',
    ],
)  # fmt: skip
def test_a_pronoun_is_noticed(opening, source):
    assert f"opens with {opening!r}" in problem(source.format(opening))


@pytest.mark.parametrize("text", ["Bits likewise.", "Likeness, likewise", "Words as there; more.", "Words as\n there."])
def test_a_reference_to_another_sentence_is_noticed(text):
    assert "(has '" in problem(f'"""{text}"""')


@pytest.mark.parametrize(
    "text",
    [
        "Whatsoever.", "Items.", "Theyre.", "Howitzer.", "As many words as there are bits.", "Bits that the same has.",
        "Bits. Likewise others.", "Bits.\n\nWhat follows.", "That is all.",
    ],
)  # fmt: skip
def test_other_sentences_are_allowed(text):
    assert not problem(f'"""{text}"""')


@pytest.mark.parametrize(
    "source",
    [
        'class SumBounds: pass\ndef f():\n    """SumBounds of x."""',
        'class _SumBounds: pass\ndef f():\n    """SumBounds of x."""',
        'class SumBound: pass\ndef f():\n    """SumBounds that were made."""',
        'class SumBounds: pass\nclass B:\n    """``SumBounds`` of x."""',
        '"""SumBounds of x."""\nclass SumBounds: pass',
        'class SumBounds:\n    def f(self):\n        """SumBounds of x."""',
    ],
)
def test_the_name_of_another_class_is_noticed(source):
    assert "opens with the class SumBounds" in problem(source)


@pytest.mark.parametrize(
    "source",
    [
        'class SumBounds:\n    """SumBounds of x."""', 'class _SumBounds:\n    """SumBounds of x."""',
        'class SumBounds: pass\nclass B(SumBounds):\n    """SumBounds of x."""',
        'class SumBounds: pass\nclass B(a.SumBounds[int]):\n    """SumBounds of x."""',
        'class Sum: pass\ndef f():\n    """Sum of x."""', 'def f():\n    """PyTorch has x."""',
        'class SumBounds: pass\ndef f():\n    """Bounds as SumBounds has them."""',
    ],
)  # fmt: skip
def test_names_that_a_sentence_is_about_are_allowed(source):
    assert not problem(source)


def test_all_lines_are_listed():
    trees = {"a.py": ast.parse('"""What."""\ndef f():\n    """How."""'), "b.py": ast.parse('"""Why."""')}
    assert offenders(trees) == [
        "a.py:1: What. (opens with 'What')", "a.py:3: How. (opens with 'How')", "b.py:1: Why. (opens with 'Why')",
    ]  # fmt: skip
