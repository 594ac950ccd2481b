"""The examples of the pages on numbers, tables and quantised networks give what the pages say."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "numbers.md"


@pytest.mark.parametrize("page, examples", [("numbers.md", 15), ("tables.md", 12), ("integer.md", 11)])
def test_examples_of_the_pages(page, examples):
    result = doctest.testfile(str(DOCS / page), module_relative=False)
    assert result.failed == 0 and result.attempted > examples


def test_a_wrong_example_is_found(tmp_path, capsys):
    wrong = tmp_path / "numbers.md"
    wrong.write_text(PAGE.read_text().replace("[4.8828125]", "[4.8828126]"))
    assert doctest.testfile(str(wrong), module_relative=False).failed == 1
    assert "4.8828126" in capsys.readouterr().out
