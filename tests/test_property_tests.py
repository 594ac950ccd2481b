"""Property tests are the same in every run but deep ones, and a failure is shown as an example to add."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.property_tests import MORE, as_example, examples, pytest_runtest_makereport


def drawn(profile):
    """Numbers of two runs of a test."""

    def run():
        seen = []

        @settings(settings.get_profile(profile), max_examples=20)
        @given(st.integers())
        def check(x):
            seen.append(x)

        check()
        return seen

    return run(), run()


def test_only_deep_runs_draw_anew():
    first, second = drawn("test")
    assert first == second
    first, second = drawn("deep")
    assert first != second


def test_nothing_depends_on_time_or_on_runs_before():
    for name in ("test", "deep"):
        profile = settings.get_profile(name)
        assert profile.deadline is None and profile.database is None
    assert settings.get_profile("deep").print_blob


def test_deep_runs_have_more_examples(request):
    deep = request.config.getoption("--depth", None) == "deep"
    assert examples(60).max_examples == 60 * (MORE if deep else 1)
    assert settings.get_profile("deep").max_examples == MORE * settings.get_profile("test").max_examples


def failed(check):
    """Notes of the failure of a test."""
    with pytest.raises(AssertionError) as caught:
        check()
    return caught


@pytest.mark.slow
def test_what_was_found_is_an_example_to_add():
    @given(x=st.integers(), name=st.text("ab"), value=st.just(None))
    def check(x, name, value):
        assert x < 10

    caught = failed(check)
    notes = [text for text in (as_example(note) for note in caught.value.__notes__) if text]
    assert notes == ["@example(x=10, name='', value=None)"]

    def report():
        hook = pytest_runtest_makereport(SimpleNamespace(fixturenames=["name"]), SimpleNamespace(excinfo=caught))
        next(hook)
        made = SimpleNamespace(when="call", failed=True, sections=[])
        with pytest.raises(StopIteration) as end:
            hook.send(made)
        assert end.value.value is made
        return made.sections

    assert report() == [("Hypothesis: to be added to the test", "@example(x=10, value=None)")]


def test_what_cannot_be_written_is_no_example():
    @given(st.data())
    def check(data):
        assert data.draw(st.integers()) < 10

    assert not any(map(as_example, failed(check).value.__notes__))
    assert as_example("Failing test case: check(\n    x=<object at 0x7f>,\n)") is None
    assert as_example("assert 1 == 2") is None
    assert as_example(
        "Falsifying example: check(\n    x=1,  # or any other generated value\n    self=None,\n)", {"self"}
    ) == ("@example(x=1)")
