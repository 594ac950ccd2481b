"""Reading of chain sources: to the tile engines, or to the queue of vectors that skip them."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig

from ..shapes import shape_of
from .layouts import Reduction, matrix_addr_bits, vector_addr_bits
from .tap_walker import step_layout

#: Cycles from an address at a memory to its data.
MEMORY_LATENCY = 2


def queue_depth(config: NpuConfig) -> int:
    """Vectors that the source queue holds."""
    return min(8, config.inflight)


def source_layout(config: NpuConfig) -> data.StructLayout:
    """A vector that goes to the multifunction units without a product, and its place in the window."""
    return data.StructLayout(
        {
            "first": 1,
            "last": 1,
            "outside": 1,
            "wide_source": 1,
            "narrow": shape_of(config.narrow_word),
            "wide": shape_of(config.wide_word),
        }
    )


class SourceReader(wiring.Component):
    """Issues one source read per cycle when the receiver of its data has room.

    Products need a free job slot behind the tile engines at their first step; other reads need a place in the source
    queue. Data arrive ``MEMORY_LATENCY`` cycles after the read and are never held back.

    Parameters
    ----------
    config : NpuConfig
    slots : int
        Jobs that the tile engines hold.
    request : shape
        Payload of the hazard gate in front.

    Members
    -------
    i : In(stream)
        Reads that may go.
    free : In(1)
        The tile engines have released a job.
    wide_read, narrow_read : Out(1)
        The read port of that memory is used in this cycle.
    vector_addr, matrix_addr : Out
        Addresses of the reads of this cycle.
    narrow_data, wide_data : In
        Data of the read ``MEMORY_LATENCY`` cycles ago.
    step_valid, step : Out
        Control of the tile step whose data arrive in this cycle; ``outside`` is its zero flag.
    queue : Out(stream)
        Vectors that skip the tile engines.
    dense_step, depthwise_step : Out(1)
        Strobes for the counters.
    """

    def __init__(self, config: NpuConfig, *, slots: int, request):
        self.config = config
        self.slots = slots
        super().__init__(
            {
                "i": In(stream.Signature(request)),
                "free": In(1),
                "wide_read": Out(1),
                "narrow_read": Out(1),
                "vector_addr": Out(vector_addr_bits(config)),
                "matrix_addr": Out(matrix_addr_bits(config)),
                "narrow_data": In(shape_of(config.narrow_word)),
                "wide_data": In(shape_of(config.wide_word)),
                "step_valid": Out(1),
                "step": Out(step_layout(config)),
                "queue": Out(stream.Signature(source_layout(config))),
                "dense_step": Out(1),
                "depthwise_step": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request = self.i.p
        product, go = Signal(), Signal()
        job_room, queue_room = self._credits(m, product, go)
        m.d.comb += [
            product.eq(request.payload.reduction == Reduction.PRODUCT),
            self.i.ready.eq(Mux(product, job_room | ~request.payload.first, queue_room)),
            go.eq(self.i.valid & self.i.ready),
            self.vector_addr.eq(request.addr),
            self.matrix_addr.eq(request.payload.matrix),
            self.wide_read.eq(go & request.memory),
            self.narrow_read.eq(go & ~request.memory),
            self.dense_step.eq(go & product & ~request.payload.depthwise),
            self.depthwise_step.eq(go & product & request.payload.depthwise),
        ]
        valid, wide, payload = go, request.memory, request.payload
        for k in range(MEMORY_LATENCY):
            next_valid, next_wide = Signal(name=f"valid_{k}"), Signal(name=f"wide_{k}")
            next_payload = Signal(step_layout(self.config), name=f"payload_{k}")
            m.d.sync += [next_valid.eq(valid), next_wide.eq(wide), next_payload.eq(payload)]
            valid, wide, payload = next_valid, next_wide, next_payload
        arrived_product = payload.reduction == Reduction.PRODUCT
        m.d.comb += [self.step_valid.eq(valid & arrived_product), self.step.eq(payload)]
        self._queue(m, valid & ~arrived_product, wide, payload)
        return m

    def _credits(self, m, product, go):
        """Job slots and queue places that are left."""
        jobs = Signal(range(self.slots + 1))
        depth = queue_depth(self.config)
        taken = Signal(range(depth + 1))
        add_job = go & product & self.i.p.payload.first
        add_place = go & ~product
        m.d.sync += [
            jobs.eq(jobs + add_job - self.free),
            taken.eq(taken + add_place - (self.queue.valid & self.queue.ready)),
        ]
        return jobs != self.slots, taken != depth

    def _queue(self, m, push, wide, payload):
        layout = source_layout(self.config)
        m.submodules.queue = queue = SyncFIFO(width=layout.size, depth=queue_depth(self.config))
        entry = Signal(layout)
        m.d.comb += [
            entry.first.eq(payload.first),
            entry.last.eq(payload.last),
            entry.outside.eq(payload.outside),
            entry.wide_source.eq(wide),
            entry.narrow.eq(self.narrow_data),
            entry.wide.eq(self.wide_data),
            queue.w_data.eq(entry),
            queue.w_en.eq(push),
            self.queue.valid.eq(queue.r_rdy),
            self.queue.p.eq(queue.r_data),
            queue.r_en.eq(self.queue.ready),
        ]
