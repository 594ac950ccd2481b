"""Tests of packages that ``make torch`` installs: what they need is a mark, by which that target chooses them."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from support import frameworks
from support.frameworks import PACKAGES, needs

TESTS = Path(__file__).parent


def unmarked(text):
    """Packages for which a test file skips something that has no mark."""
    named = set(re.findall(r"""(?:importorskip|find_spec|missing)\(["']([\w-]+)""", text))
    marked = set(re.findall(r"""needs\(["']([\w-]+)""", text))
    packages = {package for some in PACKAGES.values() for package in some if package != "onnx"}
    return sorted(named & (packages | PACKAGES.keys()) - marked)


def test_what_skips_has_a_mark():
    files = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py") if path != Path(__file__)}
    assert {str(path): found for path, text in files.items() if (found := unmarked(text))} == {}


@pytest.mark.parametrize(
    "text, found",
    [
        ('torch = pytest.importorskip("torch")', ["torch"]),
        ('torch = pytest.importorskip("torch")\npytestmark = needs("torch")', []),
        ('if missing("tflite"):\n    pass', ["tflite"]),
        ('pytest.importorskip("distributed")', []),
    ],
)
def test_a_missing_mark_is_noticed(text, found):
    assert unmarked(text) == found


def test_a_test_is_skipped_without_its_packages(monkeypatch):
    item = SimpleNamespace(iter_markers=lambda name: [needs("torch").mark])
    monkeypatch.setitem(PACKAGES, "torch", ("no_such_package",))
    with pytest.raises(pytest.skip.Exception, match="needs no_such_package: make torch installs it"):
        frameworks.pytest_runtest_setup(item)
    monkeypatch.setitem(PACKAGES, "torch", ("onnx",))
    frameworks.pytest_runtest_setup(item)
