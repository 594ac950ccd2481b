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
    plain, more = (step_figures(network, momentum=momentum, on_host=True) for momentum in (False, True))
    words = more.narrow, more.wide, more.matrix, more.program
    assert row(*plain.cycles, more.cycles[1], *words) in PAGE and more.cycles[0] == plain.cycles[0]


@pytest.mark.slow
def test_losses():
    for what, loss, on_host in (
        ("cross-entropy on the host", "cross_entropy", True), ("cross-entropy on the NPU", "cross_entropy", False),
        ("`mse`", "mse", False),
    ):  # fmt: skip
        got = step_figures("dense", momentum=True, loss=loss, on_host=on_host)
        assert f"| {what} | {len(got.cycles)} | {row(sum(got.cycles), got.sent, got.received)} |" in PAGE
    (whole,) = step_figures("dense", momentum=False).cycles
    apart = step_figures("dense", momentum=False, on_host=True).cycles
    assert f"{whole - sum(apart):,} cycles more: {whole:,} a step" in PAGE


@pytest.mark.slow
def test_the_table_is_shown(monkeypatch):
    monkeypatch.setattr(npu_training, "NETWORKS", {"dense": NETWORKS["dense"]})
    result = CliRunner().invoke(npu_training.main)
    assert result.exit_code == 0, result.output
    assert "20,468" in result.output and "i_loss" in result.output
