"""Figures of training on the NPU are those of the page."""

import pytest
from click.testing import CliRunner

from concord.spec import docs
from concord_bench import npu_training
from concord_bench.npu_training import NETWORKS, step_figures

PAGE = (docs.ROOT / "training-npu.md").read_text(encoding="utf-8")


def row(*numbers):
    return " | ".join(f"{number:,}" for number in numbers)


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_cycles_and_words(network):
    plain, more = (step_figures(network, momentum=momentum) for momentum in (False, True))
    words = more.narrow, more.wide, more.matrix, more.program
    assert row(plain.forward, plain.backward, more.backward, *words) in PAGE and more.forward == plain.forward


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_bytes(loss):
    got = step_figures("dense", momentum=True, loss=loss)
    assert f"{got.sent:,} bytes go to the NPU, and {got.received:,} come back" in PAGE


@pytest.mark.slow
def test_the_table_is_shown(monkeypatch):
    monkeypatch.setattr(npu_training, "NETWORKS", {"dense": NETWORKS["dense"]})
    result = CliRunner().invoke(npu_training.main)
    assert result.exit_code == 0, result.output
    assert "22,933" in result.output and "34,552" in result.output
