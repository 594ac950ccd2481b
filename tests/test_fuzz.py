"""The fuzzer finds what it must find, and a sample of its cases ends as it must."""

import random
from collections import Counter

import pytest

from fuzzing import fuzz, table
from support.fuzz import numbers
from support.fuzz.planted import FAULTS
from support.fuzz.worker import TARGETS


@pytest.mark.slow
def test_faults_of_every_kind_are_found(tmp_path):
    """A traceback, no memory, the end of the process, a hang, and messages that nobody can read."""
    kinds = [kind for _, kind in FAULTS]
    tallies, findings = fuzz(["planted"], 1, cases=len(kinds), limit=1, keep=tmp_path)
    assert tallies["planted"].cases == len(kinds)
    assert len(findings) == kinds.count("finding")
    numbers = [finding.number for finding in findings]
    assert numbers == [number for number, kind in enumerate(kinds) if kind == "finding"]
    texts = " ".join(map(str, findings))
    for text in ("KeyError", "out of memory", "the process ended with status -11", "NoneType", "more than 1 s"):
        assert text in texts
    assert "make fuzz ARGS=" in texts and f"{'planted':12}{len(kinds):>8}" in table(tallies)


@pytest.mark.slow
def test_a_sample_of_cases():
    tallies, findings = fuzz(list(TARGETS), 7, cases=15)
    assert not findings, "\n\n".join(map(str, findings))
    assert {target: tally.cases for target, tally in tallies.items()} == dict.fromkeys(TARGETS, 15)
    ends = sum((tally.ends for tally in tallies.values()), Counter())
    assert min(ends["result"], ends["message"]) > 15


@pytest.mark.slow
def test_random_networks_have_the_right_numbers():
    tallies, findings = fuzz(["numbers"], 1, cases=100)
    assert not findings, "\n\n".join(map(str, findings))
    assert tallies["numbers"].ends["result"] >= 90


@pytest.mark.slow
def test_wrong_numbers_are_findings(monkeypatch, tmp_path):
    def emulate(compiled, inputs):
        results = right(compiled, inputs)
        next(iter(results.values())).flat[-1] += 1
        return results

    right = numbers.emulate
    monkeypatch.setattr(numbers, "emulate", emulate)
    ends = [numbers.case(random.Random(seed), tmp_path) for seed in range(3)]
    findings = [end.text for end in ends if end.kind == "finding"]
    assert findings and all("are wrong, by 1 at most" in text for text in findings)
    assert not any(end.kind == "result" for end in ends)
    assert (tmp_path / "net.onnx").is_file()
