"""Reference pages define what they name: a module is named as the place of an implementation, after the definition."""

import re

import pytest

from concord.spec.docs import ROOT

#: Pages from which others write interpreters, hosts and scripts of the feeder, without a look at the sources.
PAGES = ("feeder.md", "isa.md", "link.md", "memmap.md", "numbers.md")
#: A module or a source file of the project. A call is an example of its use.
MODULE = re.compile(r"(?:\b(?:sw|hw|constraints)/)?\bconcord(?:_rtl|_boards)?[./]\w[\w./]*+(?!\()")
#: Sentences that may name modules; the first one follows what it is an implementation of.
IMPLEMENTATION, GENERATED = (
    re.compile(rf"{words}(?:(?:, | and )?`{MODULE.pattern}`)+\.")
    for words in ("The implementation is in ", "The tables are generated from ")
)


def sentences(section):
    """Sentences of a section, each line of a table and each item of a list by itself; blocks of code are left out."""
    for block in re.split(r"\n{2,}", re.sub(r"^```.*?^```", "", section, flags=re.DOTALL | re.MULTILINE)):
        lines = block.strip("\n").splitlines()
        if all(re.match(r" {4}(?! *[*-] )", line) for line in lines):
            continue
        for item in re.split(r"\n(?= *(?:\* |\d+\. |\|))", "\n".join(lines)):
            yield from re.split(r"(?<=[.:;])\s+", re.sub(r"^(?:\* |\d+\. )", "", " ".join(item.split())))


def undefined(text):
    """Sentences of a page that name a module for what they do not say."""
    for section in re.split(r"^#+ .*$", text, flags=re.MULTILINE):
        for number, sentence in enumerate(sentences(section)):
            placed = number and IMPLEMENTATION.fullmatch(sentence)
            if MODULE.search(sentence) and not placed and not GENERATED.fullmatch(sentence):
                yield sentence


@pytest.mark.parametrize("page", PAGES)
def test_pages_define_what_they_name(page):
    assert list(undefined((ROOT / page).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "Nothing is moved. `concord.golden.tensor_registers` has the formulas.",
        "Nothing is moved; the details are in the docstring of `concord.spec.link`.",
        "| `interval` | cycles, see :func:`concord.spec.integers.interval` |",
        "* As many cycles as it takes (`concord.spec.integers.interval`).",
        "1. What it does is said in\n   `hw/concord_rtl/feeder/filler.py`.",
        "## Steps\n\nThe implementation is in `concord.golden.tensor_registers`.",
        "It moves. The implementation is in `concord.golden.rounding`, which says how.",
        "It moves. The implementation is in `concord.golden.rounding` for halves.",
        "    a = b\n* `concord.golden.rounding` moves it.",
    ],
)
def test_what_leads_to_a_module_is_found(text):
    assert len(list(undefined(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "It is moved. The implementation is in `concord.golden.rounding`, `concord_rtl.arith` and `concord/a.py`.",
        "The tables are generated from `concord.spec.isa`.",
        '`concord.connect("rtl", network)` simulates it.',
        "So it is:\n\n    >>> from concord.golden import blocks\n",
        "```python\nimport concord.api\n```",
        "`python -m concord_bench.link_rates` measures it, and `concord run net` runs it.",
    ],
)
def test_what_defines_is_left(text):
    assert list(undefined(text)) == []
