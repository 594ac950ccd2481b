"""The examples of the page on numbers give what the page says."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "numbers.md"


def test_examples_of_the_page_on_numbers():
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.failed == 0 and result.attempted > 15


def test_a_wrong_example_is_found(tmp_path, capsys):
    wrong = tmp_path / "numbers.md"
    wrong.write_text(PAGE.read_text().replace("[4.8828125]", "[4.8828126]"))
    assert doctest.testfile(str(wrong), module_relative=False).failed == 1
    assert "4.8828126" in capsys.readouterr().out
