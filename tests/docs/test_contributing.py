"""The rules of CONTRIBUTING.md, where a program can check them."""

import runpy
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
faults = runpy.run_path(str(ROOT / ".ci" / "subject.py"))["faults"]
GOOD = "compiler.row_tiling: rows of padding are written once\n\nThey are constant.\n"


def test_the_example_of_the_page_is_a_good_message():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (example,) = [block for block in text.split("```\n") if block.startswith("compiler.row_tiling: ")]
    assert list(faults(example)) == list(faults(GOOD)) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("x: " + "y" * 70 + "\n\nWhy.\n", "at most 72 characters, not 73"),
        ("Fix things\n\nWhy.\n", "'area: what changed', not 'Fix things'"),
        ("x: y\nWhy.\n", "second line must be empty, not 'Why.'"),
        ("x: y\n", "body must say why"),
        ("x: y\n\n# comment of the editor\n", "body must say why"),
        ("", "'area: what changed', not ''"),
    ],
)
def test_other_messages_are_refused(message, fault):
    assert any(fault in line for line in faults(message))


def test_hosted_and_local_checks_are_those_of_the_project():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = workflow["jobs"]["everything"]["steps"]
    assert "bash .ci/run" in [step.get("run") for step in steps]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text()
    for hook in hooks:
        command = hook["entry"].split()
        assert command[0].startswith(".venv/bin/")
        assert all((ROOT / word).exists() for word in command if word.startswith(("tests/", ".ci/")))
    assert "ruff check" in makefile and "ruff format --check" in makefile and "-m mypy" in makefile
