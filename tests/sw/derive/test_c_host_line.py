"""Hosts in C on lines that are slow, damaged, full, of another device, or end."""

import random

import pytest

from concord.compiler.model import compile_graph
from concord.host.rtl import RtlTransport, find_library
from concord.host.spi_rtl import RtlSpi
from concord.spec.link import Kind, Status
from concord.spec.links import LinkKind
from concord.spec.memmap import REGISTERS, Reg, RegionId
from concord.spec.presets import TINY
from support import c_hosts, fed_nets, noisy_line
from support.c_hosts import needs_compiler, of_driver, perceptron, same, samples_of
from support.fed_model import FedModel
from support.link_model import DeviceModel, ModelTransport, Refused
from support.rtl_configs import FED_AHEAD
from support.spi_bus import ModelBus

pytestmark = needs_compiler


class Buffered(ModelTransport):
    """Takes what it has been sent once the host only waits; ``most`` is how much that was."""

    def __init__(self, model):
        super().__init__(model)
        self.waiting, self.looks, self.most = b"", 0, 0

    def write(self, data):
        self.waiting, self.looks = self.waiting + data, 0
        self.most = max(self.most, len(self.waiting))

    def read(self, count, timeout):
        self.looks += 1
        if self.looks > 5:  # a host that has more to send looks for a reply once in between
            super().write(self.waiting)
            self.waiting = b""
        return super().read(count, timeout)


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 256, 1024])
def test_no_more_bytes_than_there_is_room_for(room, tmp_path):
    config = TINY.replace(request_buffer=room)
    transport = Buffered(FedModel(config))
    package = perceptron(config)
    made = c_hosts.write_host(package.image, package, tmp_path)
    c_hosts.build(tmp_path)
    inputs = samples_of(package, 2)
    same(c_hosts.run(made, tmp_path, inputs, transport, timeout=5000), of_driver(package, inputs))
    frame = config.max_payload + 20
    assert transport.most <= max(room, frame) and (transport.most > frame) == (room > frame)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", ["laid out", "fed"])
def test_a_line_that_damages_loses_and_doubles(what, seed, tmp_path):
    """Results are the same, and every write takes place once, in order."""
    config = FED_AHEAD if what == "fed" else TINY.replace(request_buffer=256)
    package = perceptron(config)
    made = c_hosts.write_host(package.image, package, tmp_path)
    c_hosts.build(tmp_path)
    inputs, runs = samples_of(package, 12), []
    for damage in (None, noisy_line.damage_of(random.Random(seed))):
        model = FedModel(config)
        change = None if damage is None else lambda data, way, damage=damage: damage(data)
        mode, timeout = "stream" if what == "fed" else "run", 2000 if damage is None else 50
        run = c_hosts.run(made, tmp_path, inputs, ModelTransport(model), mode=mode, damage=change, timeout=timeout)
        same(run, of_driver(package, inputs))
        runs.append((run, model.writes))
    assert runs[1][1] == runs[0][1]
    assert runs[1][0].repeated > 3 and runs[0][0].repeated == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [TINY, pytest.param(FED_AHEAD, marks=pytest.mark.deep)], ids=lambda config: config.name
)
def test_a_bad_line_to_the_rtl(config, tmp_path):
    package = perceptron(config)
    made = c_hosts.write_host(package.image, package, tmp_path)
    c_hosts.build(tmp_path)
    inputs, damage = samples_of(package, 20), noisy_line.damage_of(random.Random(5))
    run = c_hosts.run(
        made, tmp_path, inputs, RtlTransport(find_library(config)), mode="stream" if config.inbox else "run",
        damage=lambda data, way: damage(data), timeout=500,
    )  # fmt: skip
    same(run, of_driver(package, inputs))
    assert run.repeated > 3


def over_a_bus(config, folder, bus):
    """Run a host that has the clock of its line."""
    package = perceptron(config)
    made = c_hosts.write_host(package.image, package, folder)
    c_hosts.build(folder, [*c_hosts.CHECKED, "-DCLOCKED"])
    inputs = samples_of(package, 6)
    mode = "stream" if config.inbox else "run"
    run = c_hosts.run(made, folder, inputs, bus, mode=mode, timeout=5000)
    same(run, of_driver(package, inputs))
    assert run.repeated == 0


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, FED_AHEAD], ids=lambda config: config.name)
def test_a_line_with_the_clock_of_the_host(config, tmp_path):
    """A device on a bus that pauses within frames."""
    over_a_bus(config, tmp_path, ModelBus(FedModel(config), 3))


@pytest.mark.slow
def test_a_bus_to_the_rtl(tmp_path):
    bus = RtlSpi(find_library(TINY, link=LinkKind.SPI))
    bus.pace(2)
    over_a_bus(TINY, tmp_path, bus)


class Crowded(FedModel):
    """Refuses some writes to the inbox; ``status`` is what WAIT says in the meantime."""

    def __init__(self, config, refusals, **status):
        super().__init__(config)
        self.refusals, self.asked = refusals, 0
        self.status = {field.name: 0 for field in REGISTERS[Reg.STATUS].layout.fields} | status

    def _execute(self, frame):
        payload = super()._execute(frame)
        if frame.kind != Kind.WAIT or not self.asked:
            return payload
        return REGISTERS[Reg.STATUS].layout.pack(**self.status).to_bytes(4, "little")

    def _feed(self, kind, region, addr, count, rest):
        if region.id is RegionId.INBOX and self.refusals:
            self.refusals -= 1
            self.asked += 1
            raise Refused(Status.BUSY)
        return super()._feed(kind, region, addr, count, rest)


def crowded(folder, model, **options):
    package = compile_graph(fed_nets.NETWORKS["row tiles"](), FED_AHEAD).package
    made = c_hosts.write_host(package.image, package, folder)
    c_hosts.build(folder)
    inputs = samples_of(package, 3)
    return c_hosts.run(made, folder, inputs, ModelTransport(model), mode="stream", **options), of_driver(
        package, inputs
    )


@pytest.mark.slow
@pytest.mark.parametrize("refusals", [1, 2, 5])
def test_an_inbox_without_room_gets_bytes_again(refusals, tmp_path):
    """Several requests are on the way when the first of them is refused; the program has not ended yet."""
    model = Crowded(FED_AHEAD, refusals, busy=1)
    run, want = crowded(tmp_path, model)
    same(run, want)
    assert model.refusals == 0 and model.asked == refusals


@pytest.mark.slow
def test_a_trap_is_told_though_the_inbox_refuses(tmp_path):
    run, _ = crowded(tmp_path, Crowded(FED_AHEAD, 1000, trapped=1))
    assert run.code == 1 and run.calls[-1][1:3] == ("3", "the program has trapped")


@pytest.mark.slow
def test_an_inbox_that_never_has_room_ends_the_run(tmp_path):
    run, _ = crowded(tmp_path, Crowded(FED_AHEAD, 10**9, busy=1), timeout=30)
    assert run.code == 1 and run.calls[-1][2] == "a run has not ended in time"


def answers(folder, transport, **options):
    """What a host says that cannot run; the last call."""
    package = perceptron()
    made = c_hosts.write_host(package.image, package, folder)
    c_hosts.build(folder)
    run = c_hosts.run(made, folder, samples_of(package, 2), transport, **options)
    assert run.code == 1 and run.outputs["fc1.out"].shape[0] == 0, run.text
    call, _, text, _ = run.calls[-1]
    return call, text


@pytest.mark.slow
def test_other_devices_are_refused(tmp_path):
    model = FedModel(TINY.replace(engines=2))
    assert answers(tmp_path, ModelTransport(model)) == ("connect", "the device has another configuration")
    for register, text in (
        (Reg.VERSION, "the device has another version of the specification"),
        (Reg.MAGIC, "no NPU answers"),
    ):
        model = DeviceModel(TINY)
        model.memory[RegionId.REGS][register] = 77
        assert answers(tmp_path, ModelTransport(model)) == ("connect", text)


@pytest.mark.slow
def test_nobody_answers(tmp_path):
    call, text = answers(tmp_path, ModelTransport(FedModel(TINY)), damage=lambda data, way: b"", timeout=20)
    assert (call, text) == ("connect", "no reply")


@pytest.mark.slow
def test_a_line_that_ends_is_noticed(tmp_path):
    def gone(data, way):
        raise ConnectionResetError

    assert answers(tmp_path, ModelTransport(FedModel(TINY)), damage=gone) == ("connect", "the line has failed")


@pytest.mark.slow
def test_a_device_that_was_reset_is_noticed(tmp_path):
    """Between two requests it begins to count anew."""
    model = FedModel(TINY)

    class Resetting(ModelTransport):
        def write(self, data):
            super().write(data)
            if self.model.expected % 256 != 0 and len(self.model.writes) > 20:
                self.model.expected = (self.model.expected + 77) % 256

    assert answers(tmp_path, Resetting(model), timeout=100) == (
        "load",
        "the device expects another number: it was reset, or has another host",
    )
