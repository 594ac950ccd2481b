# amaranth: UnusedElaboratable=no
import random

import pytest

from concord.host.usb_host import DescriptorType, Pid, Stalled, UsbRequest
from support.usb_echo import EchoBench

#: Bits in which a host waits for an answer at the least.
HOST_PATIENCE = 16
#: Bytes that the port and the echo hold at the most.
HELD = 64 * 4 + 4 * 2 + 2


@pytest.fixture
def bench(request):
    bench = EchoBench(**getattr(request, "param", {}))
    yield bench
    bench.line.close()


def data_of(count, seed=1):
    """Bytes, with long runs of ones among them."""
    rng = random.Random(seed)
    return b"".join(rng.choice([rng.randbytes(3), b"\xff" * 5, bytes(4)]) for _ in range(count))[:count]


@pytest.mark.slow
def test_a_strict_host_finds_a_serial_port(bench):
    assert (bench.device.vendor, bench.device.product) == (0x1209, 0x0001)
    assert bench.device.strings == ("Concord", "Concord NPU")
    bench.host.open_port()
    assert bench.host.receive(bench.device.interrupt) is None
    assert bench.line.slowest < HOST_PATIENCE


def test_what_it_does_not_know_is_refused_and_nothing_else(bench):
    with pytest.raises(Stalled):
        bench.host.descriptor(DescriptorType.QUALIFIER)
    with pytest.raises(Stalled):
        bench.host.control_in(0x40, 1, 0, 0, 8)  # of a vendor
    with pytest.raises(Stalled):
        bench.host.control_in(0x21, UsbRequest.GET_LINE_CODING, 0, 0, 7)
    assert bench.host.control_in(0, UsbRequest.GET_CONFIGURATION, 0, 0, 1) == b"\x01"
    assert bench.exchange(b"still there") == b"still there"


def test_a_device_with_another_address_is_silent(bench):
    bench.host.address += 1
    assert not bench.host._ask(bytes([0x69, 0x06, 0x3A]))  # IN at endpoint 4 of device 6


@pytest.mark.parametrize("bench", [{"ppm": ppm} for ppm in (-2500.0, 0.0, 2500.0)], indirect=True, ids=str)
def test_bytes_come_back_at_the_limits_of_the_clock(bench):
    data = data_of(1500)
    assert bench.exchange(data) == data


@pytest.mark.parametrize("count", [1, 63, 64, 65, 127, 128, 129])
def test_a_transfer_ends_with_a_packet_that_is_not_full(bench, count):
    data = data_of(count)
    assert bench.send(data) == count
    packets = []
    for _ in range(100):
        packets += bench.receive()
    assert b"".join(packets) == data
    assert len(packets[-1]) < 64


@pytest.mark.slow
def test_a_host_that_does_not_read_loses_nothing(bench):
    data = data_of(1000)
    taken = 0
    for _ in range(100):
        taken += bench.send(data[taken:])
    assert 64 <= taken <= HELD
    assert bench.exchange(data[taken:]) == data


def test_bytes_that_wait_come_in_full_packets(bench):
    taken = bench.send(data_of(1000))
    sizes = [len(packet) for _ in range(3) for packet in bench.receive()]
    assert sum(sizes) == taken >= 3 * 64
    assert sum(0 < size < 64 for size in sizes) <= 1


KINDS = {
    "damaged data": {"damaged": dict.fromkeys((Pid.DATA0, Pid.DATA1), 0.15)},
    "lost data": {"lost": dict.fromkeys((Pid.DATA0, Pid.DATA1), 0.15)},
    "damaged tokens": {"damaged": dict.fromkeys((Pid.IN, Pid.OUT), 0.15)},
    "lost handshakes of the device": {"unheard": dict.fromkeys((Pid.ACK, Pid.NAK), 0.15)},
    "lost handshakes of the host": {"lost": {Pid.ACK: 0.2}},
    "unheard data": {"unheard": dict.fromkeys((Pid.DATA0, Pid.DATA1), 0.15)},
    "all": {
        "damaged": dict.fromkeys((Pid.DATA0, Pid.DATA1, Pid.SOF), 0.05),
        "lost": dict.fromkeys((Pid.ACK, Pid.SOF), 0.1),
        "unheard": dict.fromkeys((Pid.ACK, Pid.NAK, Pid.DATA0, Pid.DATA1), 0.05),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("faults", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize("seed", range(2))
def test_what_is_lost_or_damaged_comes_again(faults, seed):
    bench = EchoBench(attempts=20, seed=seed, **faults)
    bench.faulty.active = True
    data = data_of(2000, seed)
    assert bench.exchange(data) == data
    assert bench.faulty.faults > 3
    bench.line.close()


@pytest.mark.slow
def test_a_suspended_bus_keeps_everything(bench):
    data = data_of(400)
    taken = bench.send(data)
    bench.host.suspend(5e-3)
    assert bench.exchange(data[taken:]) == data


@pytest.mark.parametrize("packets", [1, 2], ids=["odd", "even"])
def test_a_reset_of_the_bus_begins_anew(bench, packets):
    for _ in range(packets):  # both toggles have moved
        assert bench.exchange(b"before") == b"before"
    bench.send(data_of(500))
    bench.device = bench.host.enumerate(9)
    bench.exchange(b"")  # what was between the endpoints
    data = data_of(300, 2)
    assert bench.exchange(data) == data


def test_a_configuration_begins_with_data0(bench):
    assert bench.exchange(b"before") == b"before"
    bench.host.control_out(0, UsbRequest.SET_CONFIGURATION, 1, 0)
    bench.host._toggles.clear()
    assert bench.exchange(b"after") == b"after"


def test_clearing_a_halt_begins_with_data0(bench):
    assert bench.exchange(b"before") == b"before"
    for direction in (0, 0x80):
        bench.host.control_out(2, UsbRequest.CLEAR_FEATURE, 0, bench.device.input | direction)
    bench.host._toggles.clear()
    assert bench.exchange(b"after") == b"after"
