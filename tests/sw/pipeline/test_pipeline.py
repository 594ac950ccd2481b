"""The pass manager alone: passes over numbers, instruments that see them."""

from contextlib import contextmanager

import pytest

from concord.pipeline.instruments import Checks, Dump, PassError, Timings
from concord.pipeline.manager import _INSTRUMENTS, Instrument, Level, Pass, Pipeline, instrumented, remark


def divided(value):
    if not value:
        raise ValueError("value must not be 0")
    return 12 // value, 12 % value


#: A number is measured by itself, shown by its name, and must not be above 10.
NUMBER = Level(
    int,
    "units",
    lambda value: value,
    lambda value: [f"number {value}"],
    lambda value, state: [f"{value} is above {state.get('limit', 10)}"] if value > state.get("limit", 10) else [],
)
DOUBLE = Pass("double it", ("x",), ("x",), lambda x: 2 * x, "Times two.")
DIVIDE = Pass("divide", ("x",), ("quotient", "rest"), divided)
LOOK = Pass("look", ("quotient",), (), lambda quotient: None)
PIPELINE = Pipeline("arithmetic", ("x",), (DOUBLE, DIVIDE, LOOK), (NUMBER,))


@contextmanager
def unchecked():
    """Without the checks that all tests have."""
    token = _INSTRUMENTS.set(())
    yield
    _INSTRUMENTS.reset(token)


def test_values_go_from_pass_to_pass_by_name():
    given = {"x": 2, "other": "kept"}
    assert PIPELINE.run(given) == {"x": 4, "other": "kept", "quotient": 3, "rest": 0}
    assert given == {"x": 2, "other": "kept"}


def test_a_pass_takes_only_what_there_is():
    with pytest.raises(ValueError, match=r"^pass divide must take values that exist before it, not x$"):
        Pipeline("wrong", (), (DIVIDE,))
    with pytest.raises(ValueError, match=r"^pipeline arithmetic must be given x, not y$"):
        PIPELINE.run({"y": 1})


def test_a_pass_makes_as_many_values_as_it_says():
    with pytest.raises(ValueError, match="argument"):
        Pipeline("short", ("x",), (Pass("short", ("x",), ("a", "b"), lambda x: (x,)),)).run({"x": 1})


def test_times_and_sizes():
    timings = Timings()
    with instrumented(timings):
        PIPELINE.run({"x": 2})
        with pytest.raises(ValueError, match="must not be 0"):
            PIPELINE.run({"x": 0}, "again")
    PIPELINE.run({"x": 2})  # not observed
    found = [(row.pipeline, row.name, row.before, row.after, row.error) for row in timings.rows]
    assert found == [
        ("arithmetic", "double it", "2 units", "4 units", ""),
        ("arithmetic", "divide", "4 units", "3 units", ""),
        ("arithmetic", "look", "3 units", "", ""),
        ("again", "double it", "0 units", "0 units", ""),
        ("again", "divide", "0 units", "refused", "value must not be 0"),
    ]
    assert all(row.seconds >= 0 for row in timings.rows)
    assert timings.table().row_count == len(found) + 3


def test_instruments_end_with_their_block_and_nest():
    class Names(Instrument):
        def __init__(self):
            self.seen = []

        def ran(self, run):
            self.seen.append(run.done.name)

        def remarked(self, remark):
            self.seen.append(remark)

    outer, inner = Names(), Names()
    with instrumented(outer):
        with instrumented(inner):
            PIPELINE.run({"x": 1})
        remark("between")
        with pytest.raises(KeyError), instrumented(inner):
            raise KeyError
        PIPELINE.run({"x": 1})
    remark("behind")
    names = ["double it", "divide", "look"]
    assert inner.seen == names and outer.seen == [*names, "between", *names]


def test_checks_name_the_pass_and_the_value():
    with unchecked(), instrumented(Checks()):
        assert PIPELINE.run({"x": 5})["x"] == 10
        with pytest.raises(PassError, match=r"^pass double it must make a consistent x: 12 is above 10$"):
            PIPELINE.run({"x": 6})
        assert PIPELINE.run({"x": 6, "limit": 12})["x"] == 12
        with pytest.raises(PassError, match=r"^pass double it must make a consistent x: 10 is above 4$"):
            PIPELINE.run({"x": 5, "limit": 4})
    with unchecked():
        assert PIPELINE.run({"x": 6})["x"] == 12


def test_dumps_are_numbered_and_say_what_has_changed(tmp_path):
    folder = tmp_path / "new" / "dump"
    with instrumented(Dump(folder)):
        PIPELINE.run({"x": 2})
        remark("one remark")
        with pytest.raises(ValueError, match="must not be 0"):
            PIPELINE.run({"x": 0})
        PIPELINE.run({"x": 0.0 + 2, "limit": 1})
    texts = {path.name: path.read_text() for path in sorted(folder.iterdir())}
    assert list(texts) == [
        "000-double-it.txt", "001-divide.txt", "002-look.txt", "003-double-it.txt", "004-divide.txt",
        "005-double-it.txt", "006-divide.txt", "007-look.txt", "remarks.txt",
    ]  # fmt: skip
    assert texts["000-double-it.txt"] == "# arithmetic: double it\n# Times two.\n\n# x, 4 units\nnumber 4\n"
    assert texts["001-divide.txt"].endswith("# quotient, 3 units\nnumber 3\n\n# rest, 0 units\nnumber 0\n")
    assert texts["004-divide.txt"] == "# arithmetic: divide\n\n# refused: value must not be 0\n"
    assert texts["remarks.txt"] == "one remark\n"
    with instrumented(Dump(folder)):
        Pipeline("short", ("x",), (DOUBLE, DOUBLE, DIVIDE), (NUMBER,)).run({"x": 0 + 1})
    assert [path.name for path in sorted(folder.iterdir())] == [
        "000-double-it.txt", "001-double-it.txt", "002-divide.txt"
    ]  # fmt: skip


def test_what_is_as_before_is_written_once(tmp_path):
    same = Pass("same", ("x",), ("x",), lambda x: x)
    with instrumented(Dump(tmp_path)):
        Pipeline("short", ("x",), (same, same, DOUBLE), (NUMBER,)).run({"x": 3})
    assert "number 3" in (tmp_path / "000-same.txt").read_text()
    assert (tmp_path / "001-same.txt").read_text().endswith("# x, 3 units: the same as in 000-same.txt\n")
    assert "number 6" in (tmp_path / "002-double-it.txt").read_text()


def test_checks_are_on_in_all_tests():
    with pytest.raises(PassError, match="12 is above 10"):
        PIPELINE.run({"x": 6})
