"""Reading of chain sources: to the tile engines, or to the queue of vectors that skip them."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec import timing
from concord.spec.config import NpuConfig
from concord_rtl.arith.block_float import activations
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import shape_of, stream_of
from concord_rtl.parts.stages import delay, register
from concord_rtl.pipe.counters import Credits
from concord_rtl.pipe.layouts import Reduction, matrix_addr_bits, vector_addr_bits
from concord_rtl.pipe.tap_walker import step_layout
from concord_rtl.pipe.wide_queue import WideQueue


def source_layout(config: NpuConfig) -> data.StructLayout:
    """A vector that goes to the multifunction units without a product, and its place in the window."""
    return data.StructLayout(
        {
            "first": 1,
            "last": 1,
            "outside": 1,
            "wide_source": 1,
            "narrow": activations(config).word,
            "wide": shape_of(config.wide_word),
        }
    )


class SourceReader(Component):
    """Issues one source read per cycle when the receiver of its data has room.

    Products need a free job slot behind the tile engines at their first step; other reads need a place in the source
    queue. Those of sliding products need a place in the queue of the window unit, too, at every step, and the first
    step of a chain waits until that unit has made all of its steps. The read takes place a cycle after its request has
    been taken; data arrive ``VECTOR_READ`` cycles later and are never held back.

    Parameters
    ----------
    config : NpuConfig
    slots : int
        Number of jobs that the tile engines hold.
    places : int
        Number of vectors that the window unit holds; only with ``window_taps``.
    request : shape
        Payload of the hazard gate in front.
    """

    i = Input(lambda self: stream_of(self.request), "Reads that may go.")
    free = Input(1, "The tile engines have released a job.")
    wide_read = Output(1, "The read port of the wide memory is used in this cycle.")
    narrow_read = Output(1, "The read port of the narrow memory is used in this cycle.")
    vector_addr = Output(
        lambda self: vector_addr_bits(self.config),
        "Address of the vector that is read in this cycle.",
    )
    matrix_addr = Output(lambda self: matrix_addr_bits(self.config), "Address of the tile that is read in this cycle.")
    narrow_data = Input(lambda self: activations(self.config).word, "Data of the read ``VECTOR_READ`` cycles ago.")
    wide_data = Input(lambda self: shape_of(self.config.wide_word), "Data of the read ``VECTOR_READ`` cycles ago.")
    coming_valid = Output(1, "A tile step has its data in the next cycle.")
    coming = Output(lambda self: step_layout(self.config), "Control of that step; ``outside`` is its zero flag.")
    step = Output(lambda self: step_layout(self.config), "Control of the data that arrive in this cycle.")
    push = Output(
        1,
        "The data that arrive in this cycle are for the window unit, with ``step``. Only with ``window_taps``.",
        when=lambda self: self.config.window_taps,
    )
    taken = Input(
        1,
        "A vector has left the queue of the window unit. Only with ``window_taps``.",
        when=lambda self: self.config.window_taps,
    )
    done = Input(
        1,
        "The window unit has made the last step of a window. Only with ``window_taps``.",
        when=lambda self: self.config.window_taps,
    )
    queue = Output(lambda self: stream_of(source_layout(self.config)), "Vectors that skip the tile engines.")
    soon = Input(1, "``queue.ready`` of the next cycle.")
    dense_step = Output(1, "Strobe of a dense step, for a counter.")
    depthwise_step = Output(1, "Strobe of a depthwise step, for a counter.")

    def __init__(self, config: NpuConfig, *, slots: int, request, places: int = 0):
        self.config = config
        self.slots = slots
        self.places = places
        self.request = request
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        request = self.i.p
        product, go = Signal(), Signal()
        job_room, queue_room = self._credits(m, product, go)
        engines_room = job_room | ~request.payload.first
        if self.config.window_taps:
            engines_room = engines_room & self._window_room(m, product, go)
        m.d.comb += [
            product.eq(request.payload.reduction == Reduction.PRODUCT),
            self.i.ready.eq(Mux(product, engines_room, queue_room)),
            go.eq(self.i.valid & self.i.ready),
            self.dense_step.eq(go & product & ~request.payload.depthwise),
            self.depthwise_step.eq(go & product & request.payload.depthwise),
        ]
        matrix = request.payload.matrix
        if self.config.window_taps:  # the word of a sliding product stays until its last step
            matrix = Mux(go & product, matrix, self.matrix_addr)
        m.d.sync += [
            self.vector_addr.eq(request.addr),
            self.matrix_addr.eq(matrix),
            self.wide_read.eq(go & request.memory),
            self.narrow_read.eq(go & ~request.memory),
        ]
        wide = delay(m, request.memory, 1 + timing.VECTOR_READ, "from_wide")
        coming = data.View(step_layout(self.config), delay(m, request.payload, timing.VECTOR_READ, "payload"))
        payload = data.View(step_layout(self.config), register(m, coming, "payload_now"))
        to_queue = delay(m, go & ~product, timing.VECTOR_READ, "to_queue", reset_less=False)
        to_engines = delay(m, go & product, timing.VECTOR_READ, "to_engines", reset_less=False)
        m.d.comb += [self.coming_valid.eq(to_engines), self.coming.eq(coming), self.step.eq(payload)]
        if self.config.window_taps:
            m.d.comb += self.coming_valid.eq(to_engines & ~coming.sliding)
            m.d.sync += self.push.eq(to_engines & coming.sliding)
        self._queue(m, to_queue, wide, payload)
        return m

    def _credits(self, m, product, go):
        """Bits for job slots and for queue places that are left."""
        m.submodules.jobs = jobs = Credits(self.slots)
        m.submodules.places = places = Credits(timing.source_places(self.config))
        m.d.comb += [
            jobs.take.eq(go & product & self.i.p.payload.first),
            jobs.give.eq(self.free),
            places.take.eq(go & ~product),
            places.give.eq(self.queue.valid & self.queue.ready),
        ]
        return jobs.room, places.room

    def _window_room(self, m, product, go):
        """Bit that is set if the window unit has a place, and is empty where it must be."""
        payload = self.i.p.payload
        m.submodules.window_places = places = Credits(self.places)
        sliding = go & product & payload.sliding
        m.d.comb += [places.take.eq(sliding), places.give.eq(self.taken)]
        windows, empty = Signal(range(self.slots + 1)), Signal(init=1)
        begun = sliding & payload.first
        with m.If(begun & ~self.done):
            m.d.sync += [windows.eq(windows + 1), empty.eq(0)]
        with m.Elif(self.done & ~begun):
            m.d.sync += [windows.eq(windows - 1), empty.eq(windows == 1)]
        return (places.room | ~payload.sliding) & (empty | ~(payload.starts & payload.first))

    def _queue(self, m, coming, wide, payload):
        layout = source_layout(self.config)
        m.submodules.queue = queue = WideQueue(layout.size, timing.source_places(self.config))
        entry: Any = Signal(layout)
        m.d.comb += [
            entry.first.eq(payload.first),
            entry.last.eq(payload.last),
            entry.outside.eq(payload.outside),
            entry.wide_source.eq(wide),
            entry.narrow.eq(self.narrow_data),
            entry.wide.eq(self.wide_data),
            queue.word.eq(entry),
            queue.coming.eq(coming),
            queue.soon.eq(self.soon),
            self.queue.valid.eq(queue.valid),
            self.queue.p.eq(queue.o),
        ]
