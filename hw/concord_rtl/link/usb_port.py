"""Bytes over USB full speed: a serial port of the class CDC-ACM, built of the units of luna."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from amaranth import *
from amaranth.lib import cdc, wiring
from amaranth.lib.fifo import AsyncFIFO
from luna.gateware.stream import StreamInterface
from luna.gateware.usb.devices.acm import ACMRequestHandlers, USBSerialDevice
from luna.gateware.usb.usb2.device import USBDevice
from luna.gateware.usb.usb2.endpoint import EndpointInterface
from luna.gateware.usb.usb2.endpoints.stream import USBStreamInEndpoint, USBStreamOutEndpoint
from luna.gateware.usb.usb2.request import StallOnlyRequestHandler
from usb_protocol.types import USBRequestType

from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of

#: Frequencies of the domains ``usb`` and ``usb_io`` in hertz, of one PLL.
USB_HZ, USB_IO_HZ = 12_000_000, 48_000_000
#: A number that pid.codes keeps for tests. Whoever sells or gives away a device needs one of their own.
VENDOR, PRODUCT = 0x1209, 0x0001
#: Bytes of a packet at the most.
PACKET_BYTES = 64
#: Bytes from the host that wait for the NPU: a packet that does not fit is refused (NAK), and comes again. A queue of
#: luna has a place more than that.
RECEIVED_BYTES = 2 * PACKET_BYTES - 1
#: Bytes between the clocks, in each direction.
CROSSING_BYTES = 4
#: Cycles of ``usb`` without a byte after which a packet is sent as it is.
PAUSE_CYCLES = 16


class _Restarted(Elaboratable):
    """An endpoint that begins anew at ``restart``: empty, with DATA0."""

    def __init__(self, endpoint: Any, restart: Value):
        self.endpoint, self.restart = endpoint, restart
        self.interface = endpoint.interface

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.endpoint = ResetInserter({"usb": self.restart})(self.endpoint)
        return m


class _ReceivingEndpoint(_Restarted):
    """An endpoint for bytes from the host: luna names submodules by their classes."""


class _SendingEndpoint(_Restarted):
    """An endpoint for bytes to the host."""


class _SilentEndpoint(Elaboratable):
    """An endpoint to the host that never has anything."""

    def __init__(self, number: int):
        self.number = number
        self.interface = EndpointInterface()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        token = self.interface.tokenizer
        asked = token.is_in & token.ready_for_response & (token.endpoint == self.number)
        m.d.comb += self.interface.handshakes_out.nak.eq(asked)
        return m


class _SerialDevice(USBSerialDevice):
    """The device of luna, whose endpoints begin anew with a configuration, as it comes after a reset of the bus, too.

    The standard says so, and the host counts on it: an endpoint that goes on with DATA1 takes the first packet for one
    that it has, and drops it.
    """

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.usb = usb = USBDevice(bus=self._bus)
        control = usb.add_standard_control_endpoint(self.create_descriptors())
        control.add_request_handler(ACMRequestHandlers())
        control.add_request_handler(StallOnlyRequestHandler(self._refused))
        usb.add_endpoint(_SilentEndpoint(self._STATUS_ENDPOINT_NUMBER))

        restart = control.interface.config_changed
        number, size = self._DATA_ENDPOINT_NUMBER, self._max_packet_size
        received = USBStreamOutEndpoint(endpoint_number=number, max_packet_size=size, buffer_size=RECEIVED_BYTES)
        sent = USBStreamInEndpoint(endpoint_number=number, max_packet_size=size)
        usb.add_endpoint(_ReceivingEndpoint(received, restart))
        usb.add_endpoint(_SendingEndpoint(sent, restart))
        m.d.comb += [
            self.rx.stream_eq(received.stream),
            sent.stream.stream_eq(self.tx),
            usb.connect.eq(self.connect),
        ]
        return m

    @staticmethod
    def _refused(setup: Any) -> Value:
        return (setup.type == USBRequestType.VENDOR) | (setup.type == USBRequestType.RESERVED)


class _LastMarker(Elaboratable):
    """Marks the last byte before a pause, so that a packet ends with it.

    A byte is held until there is a next one, or for :data:`PAUSE_CYCLES`. The endpoint sends an empty packet after a
    full one that ends so; without that the host would wait for more.
    """

    def __init__(self) -> None:
        self.i = stream_of(8).flip().create()
        self.o = StreamInterface()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        held, over = Signal(), Signal()
        pause = Signal(range(PAUSE_CYCLES + 1))
        m.d.comb += [
            over.eq(pause == PAUSE_CYCLES),
            self.o.last.eq(over & ~self.i.valid),
            self.o.valid.eq(held & (self.i.valid | over)),
            self.i.ready.eq(~held | (self.o.valid & self.o.ready)),
        ]
        with m.If(~over):
            m.d.usb += pause.eq(pause + 1)
        with m.If(self.i.ready):
            m.d.usb += [held.eq(self.i.valid), self.o.payload.eq(self.i.payload), pause.eq(0)]
        return m


class UsbPort(Component):
    """Serial port over USB full speed.

    The host sees a serial port (``/dev/ttyACM0``); bit rates that it asks for mean nothing. What comes while ``o`` is
    not taken is refused, and the host sends it again; what the host does not fetch waits in ``i``. So nothing is
    dropped in either direction, but by a new configuration, as after a reset of the bus: that empties the endpoints.

    Has three clocks: the streams belong to ``sync``, everything else to ``usb`` (12 MHz) and ``usb_io`` (48 MHz), whose
    edges coincide: both come from one PLL.
    """

    d_p = Input(1, "Pin D+.")
    d_n = Input(1, "Pin D-.")
    d_p_o = Output(1, "What D+ is driven to.")
    d_n_o = Output(1, "What D- is driven to.")
    oe = Output(1, "Both pins are driven.")
    pullup = Output(1, "The resistor at D+ that says that there is a device.")
    i = Input(stream_of(8), "Bytes to send.")
    o = Output(stream_of(8), "Bytes received.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        pins = {name: SimpleNamespace(i=Signal(), o=Signal(), oe=Signal()) for name in ("d_p", "d_n")}
        bus = SimpleNamespace(**pins, pullup=SimpleNamespace(o=self.pullup))
        for name, pin in (("d_p", self.d_p), ("d_n", self.d_n)):  # luna does so for packets, not for the state
            m.submodules[name] = cdc.FFSynchronizer(pin, pins[name].i, o_domain="usb_io")
        m.d.comb += [self.d_p_o.eq(bus.d_p.o), self.d_n_o.eq(bus.d_n.o), self.oe.eq(bus.d_p.oe)]

        m.submodules.device = device = _SerialDevice(
            bus=bus,
            idVendor=VENDOR,
            idProduct=PRODUCT,
            manufacturer_string="Concord",
            product_string="Concord NPU",
            max_packet_size=PACKET_BYTES,
        )
        m.d.comb += device.connect.eq(1)
        m.submodules.received = received = AsyncFIFO(width=8, depth=CROSSING_BYTES, w_domain="usb", r_domain="sync")
        m.submodules.replies = replies = AsyncFIFO(width=8, depth=CROSSING_BYTES, w_domain="sync", r_domain="usb")
        wiring.connect(m, received.r_stream, wiring.flipped(self.o))
        wiring.connect(m, wiring.flipped(self.i), replies.w_stream)
        m.submodules.last = last = _LastMarker()
        wiring.connect(m, replies.r_stream, last.i)
        m.d.comb += [
            device.tx.stream_eq(last.o),
            received.w_data.eq(device.rx.payload),
            received.w_en.eq(device.rx.valid),
            device.rx.ready.eq(received.w_rdy),
        ]
        return m
