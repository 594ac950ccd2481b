"""The pass manager alone: passes over numbers, instruments that see them."""

from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from concord.pipeline.instruments import Checks, Dump, PassError, Timings
from concord.pipeline.manager import _INSTRUMENTS, Instrument, Level, Pass, Pipeline, advance, instrumented, remark


@dataclass(frozen=True)
class Number:
    x: int
    limit: float


@dataclass(frozen=True)
class Doubled(Number):
    x: int


@dataclass(frozen=True)
class Divided(Doubled):
    quotient: int
    rest: int


def doubled(state: Number) -> Doubled:
    return advance(state, Doubled, x=2 * state.x)


def divided(state: Doubled) -> Divided:
    if not state.x:
        raise ValueError("value must not be 0")
    return advance(state, Divided, quotient=12 // state.x, rest=12 % state.x)


def looked(state: Divided) -> None:
    assert state.quotient >= 0


def kept(state: Number) -> Number:
    return state


#: A number is measured by itself, shown by its name, and must not be above 10.
NUMBER = Level(
    int,
    "units",
    lambda value: value,
    lambda value: [f"number {value}"],
    lambda value, state: [f"{value} is above {state.limit:g}"] if value > state.limit else [],
)
DOUBLE = Pass("double it", doubled, "Times two.")
DIVIDE = Pass("divide", divided)
LOOK = Pass("look", looked)
KEEP = Pass("keep", kept)
PIPELINE = Pipeline("arithmetic", Number, Divided, (DOUBLE, DIVIDE, LOOK), (NUMBER,))


@contextmanager
def unchecked():
    """Without the checks that all tests have."""
    token = _INSTRUMENTS.set(())
    yield
    _INSTRUMENTS.reset(token)


def test_states_go_from_pass_to_pass():
    state = Number(2, limit=9.0)
    assert PIPELINE.run(state) == Divided(4, 9.0, 3, 0)
    assert state == Number(2, limit=9.0)


def test_what_a_pass_takes_and_makes_is_said_by_its_annotations():
    assert (DIVIDE.takes, DIVIDE.makes, DIVIDE.values) == (Doubled, Divided, ("quotient", "rest"))
    assert (DOUBLE.takes, DOUBLE.makes, DOUBLE.values) == (Number, Doubled, ("x",))  # declared again: changed
    assert (LOOK.takes, LOOK.makes, LOOK.values) == (Divided, None, ())
    assert KEEP.values == ("x", "limit")  # may be changed in place

    def both(state: Number) -> Divided:
        return divided(doubled(state))

    assert Pass("both", both).values == ("x", "quotient", "rest")


def test_a_pass_takes_only_what_there_is():
    with pytest.raises(TypeError, match=r"^pass divide must take a Number, not a Doubled$"):
        Pipeline("wrong", Number, Divided, (DIVIDE,))
    with pytest.raises(TypeError, match=r"^pipeline short must make a Doubled, not a Divided$"):
        Pipeline("short", Number, Divided, (DOUBLE,))
    with pytest.raises(TypeError, match=r"^pipeline arithmetic must take a Number, not str$"):
        PIPELINE.run("y")


def test_a_pass_makes_the_state_that_it_says():
    def wrong(state: Number) -> Doubled:
        return state

    with pytest.raises(TypeError, match=r"^pass wrong must make a Doubled, not Number\(x=1, limit=10.0\)$"):
        Pipeline("short", Number, Doubled, (Pass("wrong", wrong),)).run(Number(1, 10.0))


def test_times_and_sizes():
    timings = Timings()
    with instrumented(timings):
        PIPELINE.run(Number(2, 10.0))
        with pytest.raises(ValueError, match="must not be 0"):
            PIPELINE.run(Number(0, 10.0), "again")
    PIPELINE.run(Number(2, 10.0))  # not observed
    found = [(row.pipeline, row.name, row.before, row.after, row.error) for row in timings.rows]
    assert found == [
        ("arithmetic", "double it", "2 units", "4 units", ""),
        ("arithmetic", "divide", "4 units", "3 units", ""),
        ("arithmetic", "look", "0 units", "", ""),
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
            PIPELINE.run(Number(1, 10.0))
        remark("between")
        with pytest.raises(KeyError), instrumented(inner):
            raise KeyError
        PIPELINE.run(Number(1, 10.0))
    remark("behind")
    names = ["double it", "divide", "look"]
    assert inner.seen == names and outer.seen == [*names, "between", *names]


def test_checks_name_the_pass_and_the_value():
    with unchecked(), instrumented(Checks()):
        assert PIPELINE.run(Number(5, 10.0)).x == 10
        with pytest.raises(PassError, match=r"^pass double it must make a consistent x: 12 is above 10$"):
            PIPELINE.run(Number(6, 10.0))
        assert PIPELINE.run(Number(6, 12.0)).x == 12
        with pytest.raises(PassError, match=r"^pass double it must make a consistent x: 10 is above 4$"):
            PIPELINE.run(Number(5, 4.0))
    with unchecked():
        assert PIPELINE.run(Number(6, 10.0)).x == 12


def test_dumps_are_numbered_and_say_what_has_changed(tmp_path):
    folder = tmp_path / "new" / "dump"
    with instrumented(Dump(folder)):
        PIPELINE.run(Number(2, 10.0))
        remark("one remark")
        with pytest.raises(ValueError, match="must not be 0"):
            PIPELINE.run(Number(0, 10.0))
        PIPELINE.run(Number(2.0, 1.0))
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
        Pipeline("short", Number, Divided, (DOUBLE, DOUBLE, DIVIDE), (NUMBER,)).run(Number(1, 10.0))
    assert [path.name for path in sorted(folder.iterdir())] == [
        "000-double-it.txt", "001-double-it.txt", "002-divide.txt"
    ]  # fmt: skip


def test_what_is_as_before_is_written_once(tmp_path):
    with instrumented(Dump(tmp_path)):
        Pipeline("short", Number, Doubled, (KEEP, KEEP, DOUBLE), (NUMBER,)).run(Number(3, 10.0))
    assert "number 3" in (tmp_path / "000-keep.txt").read_text()
    assert (tmp_path / "001-keep.txt").read_text().endswith("# x, 3 units: the same as in 000-keep.txt\n")
    assert "number 6" in (tmp_path / "002-double-it.txt").read_text()


def test_checks_are_on_in_all_tests():
    with pytest.raises(PassError, match="12 is above 10"):
        PIPELINE.run(Number(6, 10.0))
