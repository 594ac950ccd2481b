"""Tables of a terminal: what is at the right, what is broken into lines, and that nothing of a cell is lost."""

from rich.console import Console

from concord.display.tables import text_table


def lines(table, width):
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_numbers_end_at_the_right_and_the_title_begins_at_the_left():
    table = text_table("Counts", ("name", "number"), right=("number",), caption="all of them")
    table.add_row("abc", "7")
    assert lines(table, 40) == ["Counts", "", " name  number", " ─────────────", " abc        7", "", "all of them"]


def test_a_long_word_is_broken_unless_it_is_kept_whole():
    table = text_table("", ("whole", "broken"), whole=("whole",), header=False)
    table.add_row("k" * 10, "f" * 20)
    shown = lines(table, 25)
    assert any("k" * 10 in line for line in shown)
    assert sum(line.count("f") for line in shown) == 20
    assert not any("f" * 20 in line for line in shown)


def test_without_names_the_first_row_makes_the_columns():
    table = text_table("Results", rows=[("time", "2 s")], header=False)
    assert lines(table, 20)[2] == " time  2 s"
