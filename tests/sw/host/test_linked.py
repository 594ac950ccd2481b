"""The driver behind the link, against the model of the device: what it makes of status, counters and images."""

import pytest

from concord.host import TrapError
from concord.host.errors import RunTimeout
from concord.host.link import Link
from concord.host.linked import LinkedDevice
from concord.image import Image, MemorySegment
from concord.spec.isa import Op, Trap
from concord.spec.link import WAIT_CYCLES, Kind
from concord.spec.memmap import REGISTERS, Reg, RegionId
from concord.spec.presets import TINY
from support.link_model import DeviceModel
from support.noisy_line import Line

STATUS = REGISTERS[Reg.STATUS].layout


class Board(DeviceModel):
    """A device that is busy for as many WAITs as its program takes."""

    def __init__(self, config, waits=0, **status):
        super().__init__(config)
        self.waits, self.patience = waits, []
        self.status = {field.name: 0 for field in STATUS.fields if field.name != "busy"} | status

    def _execute(self, frame):
        payload = super()._execute(frame)
        if frame.kind != Kind.WAIT:
            return payload
        self.patience.append(WAIT_CYCLES.unpack(int.from_bytes(frame.payload, "little"))["cycles"])
        self.waits -= 1
        return STATUS.pack(busy=int(self.waits >= 0), **self.status).to_bytes(4, "little")


def linked(*args, **status):
    board = Board(TINY, *args, **status)
    return LinkedDevice(Link(Line(board)), TINY), board


def test_cycles_have_64_bits():
    device, board = linked()
    registers = board.memory[RegionId.REGS]
    registers |= {Reg.CYCLES: 0x89ABCDEF, Reg.CYCLES_HIGH: 0x1234567, Reg.CHAINS: 5, Reg.FLAGS_ANY: 7}
    counters = device.counters()
    assert counters["CYCLES"] == 0x123456789ABCDEF
    assert counters["CHAINS"] == 5 and counters["VECTORS"] == 0


def test_a_trap_is_raised_with_its_word():
    device, board = linked(trapped=1)
    board.memory[RegionId.PROGRAM][9] = int(Op.END_LOOP)
    layout = REGISTERS[Reg.TRAP].layout
    board.memory[RegionId.REGS][Reg.TRAP] = layout.pack(code=Trap.LOOP_STACK, reserved=0, pc=9)
    with pytest.raises(TrapError) as caught:
        device.wait()
    assert (caught.value.trap, caught.value.pc, caught.value.word) == (Trap.LOOP_STACK, 9, int(Op.END_LOOP))
    linked(done=1)[0].wait()


def test_a_run_is_over_when_the_device_says_so():
    device, board = linked(5, done=1)
    device.wait()
    assert len(board.patience) == 6 and set(board.patience) == {Line.wait_cycles}
    device, board = linked(1000)
    with pytest.raises(RunTimeout, match="still busy after 0"):
        device.wait(timeout=0)


def test_an_image_is_written_where_it_belongs():
    device, board = linked()
    words = [TINY.wide_word.pack(elem=[k, 0, 0, 0]) for k in range(1, 40)]
    segments = (
        MemorySegment.from_words(RegionId.WIDE, 20, words, TINY),
        MemorySegment.from_words(RegionId.TABLE, 3, [7, 8], TINY),
    )
    image, counted = Image(TINY, (11, 12, 13), segments), []
    device.progress = counted.append
    device.load(image)
    program = len(image.program) * device.regions[RegionId.PROGRAM].nbytes
    assert sum(counted) == program + sum(len(part.data) for part in segments), "of memories, not of registers"
    held = board.memory
    assert held[RegionId.WIDE] == {20 + k: word for k, word in enumerate(words)}
    assert held[RegionId.TABLE] == {3: 7, 4: 8}
    assert held[RegionId.PROGRAM] == {0: 11, 1: 12, 2: 13}
    control = REGISTERS[Reg.CONTROL].layout
    assert held[RegionId.REGS][Reg.CONTROL] == control.pack(
        start=0, clear_flags=1, adds=0, keep_dram=0, reserved=0, pc=0
    )
