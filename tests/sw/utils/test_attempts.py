"""Counts of what a search tries."""

from concord.utils.attempts import Attempts


def test_numbers_and_totals():
    seen = []
    attempts = Attempts(lambda *what: seen.append(what))
    attempts.expect(2)
    attempts.begin("a")
    attempts.expect(1)
    attempts.begin("b")
    attempts.begin("c")
    attempts.begin("d")
    assert seen == [("a", 1, 2), ("b", 2, 3), ("c", 3, 3), ("d", 4, 4)], "one that nobody expected counts, too"
    attempts.expect(3)
    attempts.expect(-5)
    assert (attempts.begun, attempts.expected) == (4, 4), "there are never fewer than have begun"


def test_nobody_has_to_look():
    attempts = Attempts()
    attempts.begin("a")
    assert attempts.begun == attempts.expected == 1
