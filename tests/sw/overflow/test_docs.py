"""The page on overflow says what the code does."""

import doctest
from pathlib import Path

from concord.overflow import KINDS

PAGE = Path(__file__).parents[3] / "docs" / "overflow.md"


def test_examples_of_the_page():
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.failed == 0 and result.attempted > 10


def test_the_page_has_the_defaults_of_all_kinds():
    rows = {line.split("`")[1]: line for line in PAGE.read_text().splitlines() if line.startswith("| `")}
    for name, settings in KINDS.items():
        numbers = [settings.width, settings.output_width, settings.input_width, settings.weight_width]
        assert [c.strip() for c in rows[name].split("|")[2:7]] == [*map(str, numbers), f"{settings.weight_share:g}"]
        assert (settings.per_bit, settings.least, settings.most, settings.threshold) == (1.0, 0.25, 1.0, 0)
