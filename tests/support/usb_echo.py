"""A USB port that sends back what it gets, compiled, and a line to it that loses and damages packets."""

import random
from functools import cache

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.host.usb_host import Pid, UsbHost
from concord.host.usb_rtl import RtlLine
from concord.spec.links import LinkKind
from concord_rtl.flow.verilate import WRAPPERS, build
from concord_rtl.link.usb_port import UsbPort

CLOCK_HZ = 80e6
LINE = ("d_p_o", "d_n_o", "oe", "pullup")


class Echo(wiring.Component):
    """What comes goes back."""

    def __init__(self):
        super().__init__({"d_p": In(1), "d_n": In(1)} | dict.fromkeys(LINE, Out(1)))

    def elaborate(self, platform):
        m = Module()
        m.submodules.port = port = UsbPort()
        wiring.connect(m, port.o, port.i)
        m.d.comb += [port.d_p.eq(self.d_p), port.d_n.eq(self.d_n)]
        m.d.comb += [getattr(self, name).eq(getattr(port, name)) for name in LINE]
        return m


@cache
def echo_library():
    return build(Echo(), "echo", wrapper=WRAPPERS[LinkKind.USB])


class FaultyLine:
    """A line whose packets get lost or damaged, each kind with a probability of its own.

    Parameters
    ----------
    line : RtlLine
        The line.
    seed : int
        Of the faults.
    damaged, lost, unheard : mapping of Pid to float
        Packets of the host that arrive damaged or not at all; packets of the device that do not arrive.
    """

    def __init__(self, line, seed, *, damaged=None, lost=None, unheard=None):
        self.line = line
        self.damaged, self.lost, self.unheard = damaged or {}, lost or {}, unheard or {}
        self.active = False
        self.faults = 0
        self._rng = random.Random(seed)

    def __getattr__(self, name):
        return getattr(self.line, name)

    def hold(self, state, seconds):
        self.line.hold(state, seconds)

    def _happens(self, table, packet):
        happens = self.active and self._rng.random() < table.get(Pid(packet[0] & 15), 0)
        self.faults += happens
        return happens

    def send(self, packet):
        if self._happens(self.lost, packet):
            return
        if self._happens(self.damaged, packet):
            place = self._rng.randrange(8, 8 * len(packet))
            packet = (int.from_bytes(packet, "little") ^ 1 << place).to_bytes(len(packet), "little")
        self.line.send(packet)

    def listen(self, bits):
        packet = self.line.listen(bits)
        return b"" if packet and self._happens(self.unheard, packet) else packet

    def close(self):
        self.line.close()


class EchoBench:
    """An enumerated echo and its host."""

    def __init__(self, *, ppm=0.0, attempts=3, seed=0, **faults):
        self.line = RtlLine(echo_library(), CLOCK_HZ, ppm=ppm)
        self.faulty = FaultyLine(self.line, seed, **faults)
        self.host = UsbHost(self.faulty, attempts=attempts)
        self.device = self.host.enumerate()

    def send(self, data):
        """Send packets until the device takes no more; the bytes that it has taken."""
        taken = 0
        while taken < len(data) and self.host.transmit(self.device.output, data[taken : taken + 64]):
            taken += len(data[taken : taken + 64])
        return taken

    def receive(self):
        """Packets until there is none."""
        packets = []
        while (packet := self.host.receive(self.device.input)) is not None:
            packets.append(packet)
        return packets

    def exchange(self, data, pauses=20):
        """Send all of ``data`` and return what comes back, until there is nothing for some time."""
        back, silent = b"", 0
        while data or silent < pauses:
            data = data[self.send(data) :]
            packets = self.receive()
            silent = 0 if data or packets else silent + 1
            back += b"".join(packets)
        return back
