"""State and test of the external memory, and images that need it."""

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.host import connect
from concord.host import device as devices
from concord.host.dram import memory_test
from concord.host.emulated import EmulatedDevice
from concord.host.errors import DeviceError
from concord.image import Image, MemorySegment
from concord.spec.memmap import Reg, RegionId
from concord.spec.presets import TINY
from support.rtl_configs import COPYING


class Faulty(EmulatedDevice):
    """An NPU whose external memory has an address line that is stuck, a bit that is, or does not work."""

    def __init__(self, fault):
        super().__init__(COPYING)
        self.fault = fault

    def _register(self, reg):
        value = super()._register(reg)
        if reg is not Reg.STATUS:
            return value
        return value & ~(1 << 9) | (self.fault == "searching") << 8 if self.fault in ("broken", "searching") else value

    def write(self, region, addr, words):
        if region is not RegionId.DRAM or self.fault not in ("line", "bit"):
            super().write(region, addr, words)
            return
        for k, word in enumerate(words):
            at = addr + k
            super().write(region, at & ~(1 << 12) if self.fault == "line" else at, [word | (self.fault == "bit")])


def test_a_memory_that_works():
    with connect("emulator", COPYING) as device:
        assert device.dram_state().works
        result = memory_test(device, 20_000, 3)
        assert (result.errors, result.wrong) == (0, ()) and result.columns >= 20_000


@pytest.mark.parametrize("fault", ["line", "bit"])
def test_faults_are_noticed(fault):
    with Faulty(fault) as device:
        result = memory_test(device, 1 << 14, 3)
    assert result.errors > 1000 and len(result.wrong) == 8
    column, want, got = result.wrong[0]
    assert want != got and 0 <= column < COPYING.sdram.columns


@pytest.mark.parametrize(
    "fault, message", [("broken", "which does not work: at most 0 neighbouring"), ("searching", "must end the search")]
)
def test_a_memory_that_does_not_work_refuses_images_that_copy(fault, message, monkeypatch):
    monkeypatch.setattr(devices, "_SEARCH_READS", 50)
    columns = MemorySegment.from_words(RegionId.DRAM, 0, [1, 2], COPYING)
    with Faulty(fault) as device:
        device.load(Image(COPYING, (1,)))
        with pytest.raises(DeviceError, match=message):
            device.load(Image(COPYING, (1,), (columns,)))


def test_a_device_without_the_memory():
    with connect("emulator", TINY) as device, pytest.raises(DeviceError, match="tiny has no external memory"):
        device.dram_state()


def test_all_bits_of_addresses_change():
    with connect("emulator", COPYING) as device:
        memory_test(device, 1 << 17, 3)
        used = np.flatnonzero(np.array(device._emulator.memories.dram))
    assert (np.bitwise_or.reduce(used), np.bitwise_and.reduce(used)) == (COPYING.sdram.columns - 1, 0)


def test_the_command():
    result = CliRunner().invoke(main, ["memtest", "--kilobytes", "16"])
    assert result.exit_code == 0, result.output
    assert (
        "256 Mbit SDR SDRAM: works; its clock is not simulated" in result.output
        and "16 KB: 0 wrong columns in two passes" in result.output
    )
    refused = CliRunner().invoke(main, ["memtest", "--preset", "tiny"])
    assert refused.exit_code == 1 and "tiny has no external memory" in refused.output
