"""Comparing training on the NPU with the host finds numbers and cycles that differ, and says what was compared."""

from fractions import Fraction

import pytest
from click.testing import CliRunner

from concord.host.emulated import EmulatedDevice
from concord.spec.memmap import RegionId
from concord.train import Settings
from concord.train.npu import training_config
from concord_bench import npu_equality
from concord_bench.npu_equality import DifferenceError, compare_steps, data

SETTINGS = Settings(1, 32, Fraction(1, 16), Fraction(9, 10), seed=2)


@pytest.fixture(scope="module")
def few():
    learned, test = data()
    return learned.part(slice(0, 40)), test.part(slice(0, 20))


def compared(device, few):
    return compare_steps(device, "dense", *few, SETTINGS)


@pytest.mark.slow
def test_all_numbers_of_all_steps_are_counted(few):
    got = compared(EmulatedDevice(training_config()), few)
    weights = 64 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10
    blocks = 6  # with an exponent of the parameter and one of its momentum each
    assert (got.steps, got.numbers) == (2, 2 * (3 * weights + 2 * blocks))
    assert got.cycles[0] < got.cycles[1] == 34_552
    assert 0 <= min(got.accuracy) <= max(got.accuracy) <= 1


class WrongBit(EmulatedDevice):
    """Reads one of the narrow vectors with a wrong bit."""

    def read(self, region, addr, count=1):
        words = super().read(region, addr, count)
        return [word ^ (1 << 3) * (k == 2 and region == RegionId.NARROW) for k, word in enumerate(words)]


class OtherCycles(EmulatedDevice):
    """Counts a cycle more."""

    def counters(self):
        counted = super().counters()
        return counted | {"CYCLES": counted["CYCLES"] + 1}


@pytest.mark.slow
def test_a_wrong_bit_is_found_and_named(few):
    text = r"step 0: \S+weight\[\d+\] must be -?\d+, as on the host, not -?\d+; 1 of \d+ differ"
    with pytest.raises(DifferenceError, match=text):
        compared(WrongBit(training_config()), few)


@pytest.mark.slow
def test_other_cycles_are_found(few):
    with pytest.raises(DifferenceError, match=r"step 0: counters must be .*34552.*, as in the emulator, not .*34553"):
        compared(OtherCycles(training_config()), few)


@pytest.mark.slow
def test_the_command(few, monkeypatch, tmp_path):
    monkeypatch.setattr(npu_equality, "data", lambda: few)
    result = CliRunner().invoke(npu_equality.main, ["--on", "emulator", "--epochs", "1", "--momentum", "9/10"])
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "2, 40 samples, batch 32" in words and "39,444, none different" in words
    (tmp_path / "half.toml").write_text('preset = "ecp5-85f"\nlanes = 4\n')
    options = ["--on", "emulator", "--epochs", "1", "--config", str(tmp_path / "half.toml")]
    result = CliRunner().invoke(npu_equality.main, options)
    assert result.exit_code == 0 and "32,447" in result.output and "(half)" in result.output
    monkeypatch.setattr(npu_equality, "connect", lambda on, config: WrongBit(config))
    result = CliRunner().invoke(npu_equality.main, ["--on", "emulator", "--epochs", "1"])
    assert result.exit_code == 1 and "as on the host" in result.output
