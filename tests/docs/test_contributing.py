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


def jobs(name):
    """Jobs of a workflow, with their steps."""
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())["jobs"]


def commands(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def options(job, action):
    """What an action of a job is given."""
    (step,) = [step for step in job["steps"] if step.get("uses", "").startswith(f"{action}@")]
    return step.get("with", {})


def test_the_hosted_check_is_the_local_one_with_all_of_the_history():
    job = jobs("ci")["everything"]
    assert commands(job) == ["bash .ci/run"]
    assert options(job, "actions/checkout") == {"fetch-depth": 0}
    assert options(job, "actions/cache")["path"].split() == ["~/.cache/concord", "~/.cache/YoWASP"]
    assert 'test-deep ARGS="--since-deep --minutes 4"' in (ROOT / ".ci" / "run").read_text()


def test_all_that_is_not_checked_before_runs_at_night():
    nightly = jobs("nightly")
    deep, mutants = nightly["deep"], nightly["mutants"]
    shards = deep["strategy"]["matrix"]["shard"]
    assert shards == list(range(1, len(shards) + 1))
    (run,) = [run for run in commands(deep) if "test-deep" in run]
    assert f"--shard ${{{{ matrix.shard }}}}/{len(shards)} " in run
    (combined,) = [run for run in commands(nightly["note"]) if "--combine" in run]
    assert nightly["note"]["needs"] == "deep" and "test-deep" in combined
    assert options(deep, "actions/upload-artifact")["path"] == "build/deep.json"
    assert any("--only ${{ matrix.list }} " in run for run in commands(mutants))
    assert "tests/mutants" in commands(nightly["lists"])[0]
    targets = [line["target"] for line in nightly["targets"]["strategy"]["matrix"]["include"]]
    assert {"formal", "fuzz", "gates", "prove"} <= set(targets)
    makefile = (ROOT / "Makefile").read_text()
    words = [run.split() for job in nightly.values() for run in commands(job)]
    targets += [word[1] for word in words if word[0] == "make" and "$" not in word[1]]
    assert all(f"\n{target}: " in makefile for target in targets)


def test_hooks_are_checks_of_the_project():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text()
    for hook in hooks:
        command = hook["entry"].split()
        assert command[0].startswith(".venv/bin/")
        assert all((ROOT / word).exists() for word in command if word.startswith(("tests/", ".ci/")))
    assert "ruff check" in makefile and "ruff format --check" in makefile and "-m mypy" in makefile
