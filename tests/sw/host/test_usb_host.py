"""The host of the simulated USB line, at a line that answers what a test says."""

import pytest

from concord.host.errors import LinkError
from concord.host.usb_host import (
    BIT_HZ,
    FRAME,
    DescriptorType,
    Pid,
    Stalled,
    UsbHost,
    crc5,
    crc16,
    data_packet,
    packet,
    token,
)


class ScriptedLine:
    """Gives answers in turn, then none; packets take their time."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.packets = []
        self.time = 0.0
        self.holds = []

    def send(self, packet):
        self.packets.append((self.time, packet))
        self.time += (8 * len(packet) + 14) / BIT_HZ

    def listen(self, bits):
        self.time += bits / BIT_HZ
        return self.answers.pop(0) if self.answers else b""

    def hold(self, state, seconds):
        self.holds.append((state, seconds))
        self.time += seconds

    def sent(self, pid):
        return [packet for _, packet in self.packets if packet[0] & 15 == pid]


ACK, NAK, STALL = packet(Pid.ACK), packet(Pid.NAK), packet(Pid.STALL)
BAD = data_packet(0, b"abc")[:-1] + b"\x00"


def test_checksums_are_those_of_the_standard():
    """Examples of the USB-IF's paper on cyclic redundancy checks, and a frame."""
    assert token(Pid.SETUP, 0x15 | 0xE << 7).hex() == "2d15ef"
    assert token(Pid.OUT, 0x3A | 0xA << 7).hex() == "e13a3d"
    assert token(Pid.IN, 0x70 | 0x4 << 7).hex() == "697072"
    assert crc5(0x001) == 0x1D
    assert crc16(b"") == 0 and crc16(bytes([0, 1, 2, 3])) == 0x7AEF
    assert data_packet(0, b"").hex() == "c30000" and ACK.hex() == "d2" and NAK.hex() == "5a" and STALL.hex() == "1e"


def test_damaged_data_is_asked_for_again_and_not_acknowledged():
    line = ScriptedLine(BAD, b"", data_packet(0, b"abc"))
    assert UsbHost(line).receive(4) == b"abc"
    assert len(line.sent(Pid.IN)) == 3 and len(line.sent(Pid.ACK)) == 1


def test_data_that_comes_twice_is_acknowledged_and_dropped():
    line = ScriptedLine(data_packet(0, b"abc"), data_packet(0, b"abc"), data_packet(1, b"de"), NAK)
    host = UsbHost(line)
    assert [host.receive(4), host.receive(4), host.receive(4)] == [b"abc", b"de", None]
    assert len(line.sent(Pid.ACK)) == 3


def test_what_is_not_answered_goes_again_with_the_same_toggle():
    line = ScriptedLine(b"", ACK, NAK, ACK)
    host = UsbHost(line)
    assert [host.transmit(4, b"abc"), host.transmit(4, b"de"), host.transmit(4, b"de")] == [True, False, True]
    assert line.sent(Pid.DATA0) == [data_packet(0, b"abc")] * 2 and line.sent(Pid.DATA1) == [data_packet(1, b"de")] * 2


@pytest.mark.parametrize("answers", [[], [b"", BAD]], ids=["none", "damaged"])
def test_a_silent_endpoint_is_an_error(answers):
    with pytest.raises(LinkError, match="endpoint 4 must answer IN, and has not in 3 attempts"):
        UsbHost(ScriptedLine(*answers)).receive(4)
    with pytest.raises(LinkError, match="endpoint 4 must answer OUT, and has not in 2 attempts"):
        UsbHost(ScriptedLine(), attempts=2).transmit(4, b"x")


@pytest.mark.parametrize("answer", [ACK, data_packet(0, bytes(65))], ids=["handshake", "long"])
def test_a_wrong_answer_is_an_error(answer):
    with pytest.raises(LinkError, match="answer to IN must be a packet of data"):
        UsbHost(ScriptedLine(answer)).receive(4)
    with pytest.raises(LinkError, match="answer to OUT must be a handshake, not c3"):
        UsbHost(ScriptedLine(data_packet(0, b""))).transmit(4, b"x")


def test_a_halted_endpoint_says_so():
    with pytest.raises(Stalled):
        UsbHost(ScriptedLine(STALL)).receive(4)
    with pytest.raises(Stalled):
        UsbHost(ScriptedLine(STALL)).transmit(4, b"x")


@pytest.mark.parametrize(
    "answer",
    [bytes([18, 2, *range(16)]), bytes([17, 1, *range(16)]), bytes([18, 1])],
    ids=["another kind", "another length", "cut"],
)
def test_a_descriptor_must_be_what_was_asked_for(answer):
    line = ScriptedLine(ACK, data_packet(1, answer), ACK)
    with pytest.raises(LinkError, match="descriptor must be of kind 1 and have its length"):
        UsbHost(line).descriptor(DescriptorType.DEVICE)


def test_frames_begin_in_time_and_no_transaction_reaches_into_the_next():
    line = ScriptedLine(*[NAK] * 500)
    host = UsbHost(line)
    while line.answers:
        host.receive(4)
    frames = [(time, packet) for time, packet in line.packets if packet[0] & 15 == Pid.SOF]
    assert len(frames) == 3
    for number, (time, sof) in enumerate(frames):
        assert abs(time - number * FRAME) < 2 / BIT_HZ
        assert sof == token(Pid.SOF, number)


def interface(number, kind):
    return bytes([9, 4, number, 0, 1, kind, 0, 0, 0])


def endpoint(address, kind, size=64):
    return bytes([7, 5, address, kind, size, 0, 1])


def configuration(*parts):
    return bytes([9, 2, 9 + sum(map(len, parts)), 0, 2, 1, 0, 0x80, 50]) + b"".join(parts)


CONTROL, DATA = interface(0, 2), interface(1, 10)
PORT = (CONTROL, endpoint(0x83, 3), DATA, endpoint(0x84, 2), endpoint(0x04, 2))


def enumerated(*parts):
    """A host at a device with a configuration, and what its answers make of it."""
    device = bytes([18, 1, 0, 2, 0, 0, 0, 64, 0x09, 0x12, 1, 0, 0, 0, 1, 1, 0, 1])
    strings = [bytes([4, 3, 9, 4]), bytes([4, 3, ord("x"), 0])] * 2
    config = configuration(*parts)
    reads = [device[:8], None, device, config[:9], config, *strings, None, config[5:6]]
    answers = []
    for data in reads:  # a packet in the data stage, or none; then the status stage
        answers += [ACK, data_packet(1, b"")] if data is None else [ACK, data_packet(1, data), ACK]
    return UsbHost(ScriptedLine(*answers)).enumerate()


def test_a_serial_port_is_recognised():
    device = enumerated(*PORT)
    assert (device.vendor, device.product, device.strings) == (0x1209, 1, ("x", "x"))
    assert (device.interrupt, device.input, device.output) == (3, 4, 4)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([CONTROL, CONTROL], "interfaces must be those of a serial port"),
        ([CONTROL], "interfaces must be those of a serial port"),
        ([*PORT[:-1]], "endpoints must be those of a serial port"),
        ([*PORT, endpoint(0x05, 2)], "endpoint must have packets of at most 64 bytes"),
        ([*PORT[:-1], endpoint(0x04, 2, 65)], "endpoint must have packets of at most 64 bytes"),
        ([*PORT, bytes([9, 5, 1])], "descriptors must fill a configuration"),
    ],
)
def test_other_devices_are_refused(parts, message):
    with pytest.raises(LinkError, match=message):
        enumerated(*parts)
