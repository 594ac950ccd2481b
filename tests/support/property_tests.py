"""Property tests have the same examples in every run, and in deep ones random examples, ten times as many.

``--depth deep`` chooses the profile ``deep`` of Hypothesis. What it finds is shown as an ``@example`` to add to the
test, so that every later run has it.
"""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import settings

#: How many times as many examples deep runs have.
MORE = 10
_COUNT = 100


def examples(count: int) -> settings:
    """Settings of a test with so many examples, and with more in deep runs."""
    return settings(max_examples=count * settings.default.max_examples // _COUNT)


def pytest_configure(config):
    """Choose the profile, before test files make their settings."""
    settings.register_profile("test", max_examples=_COUNT, deadline=None, database=None, derandomize=True)
    settings.register_profile(
        "deep", max_examples=MORE * _COUNT, deadline=None, database=None, derandomize=False, print_blob=True
    )
    settings.load_profile("deep" if config.getoption("--depth", None) == "deep" else "test")


def as_example(note: str, given: frozenset[str] | set[str] = frozenset()) -> str | None:
    """The decorator that repeats a failure which Hypothesis tells; ``None`` where there is none.

    Parameters
    ----------
    note : str
        What Hypothesis adds to the exception, such as ``Falsifying example: test(x=1)``.
    given : set of str
        Arguments that pytest gives to the test, which an example leaves out.
    """
    match = re.match(r"(?:Falsifying example|Failing test case): (\w+\(.*\))\s*$", note, re.DOTALL)
    try:
        call = ast.parse(match[1], mode="eval").body if match else None
    except SyntaxError:  # a value without a form in Python
        return None
    if not isinstance(call, ast.Call):
        return None
    words = [f"{word.arg}={ast.unparse(word.value)}" for word in call.keywords if word.arg not in given]
    return None if any(word.partition("=")[2] == "data(...)" for word in words) else f"@example({', '.join(words)})"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Say what to add to a test that failed."""
    report = yield
    if report.when == "call" and report.failed:
        given = set(getattr(item, "fixturenames", ())) | {"self"}
        notes = getattr(call.excinfo.value, "__notes__", ())
        found = [text for text in (as_example(note, given) for note in notes) if text]
        if found:
            report.sections.append(("Hypothesis: to be added to the test", "\n".join(found)))
    return report
