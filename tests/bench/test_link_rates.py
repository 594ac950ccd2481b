"""Rates over a link: what is said where they cannot be measured."""

from click.testing import CliRunner

from concord_bench.link_rates import main


def test_without_networks(monkeypatch):
    monkeypatch.delenv("CONCORD_DATA", raising=False)
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 1
    assert result.output == "Error: CONCORD_DATA must name the folder with the networks\n"
