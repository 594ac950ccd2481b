"""No damaged frame changes state: checksum, length, kind and number of a request are right before anything happens."""

from __future__ import annotations

from functools import reduce
from operator import xor
from unittest.mock import patch

from amaranth import *
from amaranth.lib import data

from concord.spec.link import COUNT, CRC_BYTES, HEADER, TARGET, WAIT_CYCLES, Kind, Status
from concord.spec.memmap import Reg, RegionId, regions
from concord.spec.presets import TINY
from concord_rtl.link import receiver as receiving
from concord_rtl.link.checker import PING_WORDS, RequestChecker
from concord_rtl.link.crc import Crc32
from concord_rtl.link.message_processor import MessageProcessor
from concord_rtl.link.receiver import Part, Receiver, frame_layout

from .bench import Bench, state
from .mutant import Change
from .proof import Sequential
from .streams import offer, stays

#: As few bytes of payload as a configuration may have: the buffer is an array of registers here.
SMALL = TINY.replace(max_payload=16)
#: The polynomial of IEEE 802.3 without its highest power, x**0 in the highest bit.
_POLYNOMIAL = 0xEDB88320
#: What the register holds after the bytes of a checksum that is right, whatever was before.
_RESIDUE = 0xDEBB20E3
#: Bits of a count of bytes: more than any length and what comes with it; it stops at its end.
_COUNT_BITS = 18


def _crc_after(register: Value, byte: Value) -> Value:
    """The register of the checksum after a byte, a bit at a time."""
    bits = [register[n] for n in range(32)]
    for k in range(8):
        out = bits[0] ^ byte[k]
        shifted = [*bits[1:], Const(0, 1)]
        bits = [reduce(xor, (bit, out)) if _POLYNOMIAL >> n & 1 else bit for n, bit in enumerate(shifted)]
    return Cat(bits)


def checksum() -> Bench:
    """The unit against a register that shifts bit by bit."""
    bench = Bench()
    m = bench.m
    dut = Crc32()
    inside = bench.unit(dut, "dut")
    valid, clear, byte = bench.free(1, "valid"), bench.free(1, "clear"), bench.free(8, "byte")
    m.d.comb += [dut.valid.eq(valid), dut.clear.eq(clear), dut.data.eq(byte)]
    register = Signal(32, init=-1)
    with m.If(clear):
        m.d.sync += register.eq(-1)
    with m.Elif(valid):
        m.d.sync += register.eq(_crc_after(register, byte))
    bench.must(dut.crc == ~register)
    bench.must(dut.match == (register == _RESIDUE))
    bench.must(inside["state"] == register)
    bench.reach(bench.past(valid, "taken") & (dut.crc[:8] == 0))
    return bench


def receiver() -> Bench:
    """Frames of any bytes, of any length."""
    bench = Bench()
    m = bench.m
    dut = Receiver(SMALL)
    inside = bench.unit(dut, "dut")
    offer(bench, dut.i, "i")
    m.d.comb += [dut.frame.ready.eq(bench.free(1, "frame_ready")), dut.body.ready.eq(bench.free(1, "body_ready"))]
    frame = dut.frame.p
    taken = dut.i.valid & dut.i.ready
    byte, end = taken & ~dut.i.p.end, taken & dut.i.p.end
    count, header = Signal(_COUNT_BITS), Signal(HEADER.width)
    verdict = Signal()  # of the frame that has ended
    length = Signal(HEADER["length"].width)
    m.d.comb += length.eq(header[-len(length) :])
    with m.If(byte):
        m.d.sync += count.eq(Mux(count.all(), count, count + 1))
        with m.If(count < HEADER.nbytes):
            m.d.sync += header.word_select(count[:2], 8).eq(dut.i.p.data)
    with m.If(end):
        whole = count == HEADER.nbytes + length + CRC_BYTES
        m.d.sync += [count.eq(0), verdict.eq(whole & (count >= HEADER.nbytes) & inside["crc.match"] & ~dut.i.p.damaged)]
    bench.must(frame.good == verdict, given=dut.frame.valid)
    bench.must(frame.header.as_value() == header, given=dut.frame.valid & verdict)
    bench.must(~dut.i.ready, given=dut.frame.valid)
    stays(bench, dut.frame, "frame")
    bench.must(dut.frame.valid, given=bench.past(end, "ended"))
    # The checksum is over all bytes of the frame and no others.
    bench.must(inside["valid"] == byte)
    bench.must(inside["crc.state"].all(), given=(count == 0) & ~dut.frame.valid)
    _receiver_inside(bench, dut, inside, count, header, length)
    bench.reach(dut.frame.valid & frame.good & (frame.header.length == 1))
    bench.reach(dut.frame.valid & ~frame.good & (frame.header.length == 0) & (frame.header.kind == Kind.READ))
    return bench


def _receiver_inside(bench: Bench, dut: Receiver, inside, count, header, length) -> None:
    """For the induction: the part of the frame, and bytes until the next, as the count says."""
    part, left = inside["part"], inside["left"]
    bounds = (HEADER.nbytes, HEADER.nbytes + length, HEADER.nbytes + length + CRC_BYTES)
    known = count >= HEADER.nbytes
    bench.must((part == Part.HEADER) == ~known)
    bench.must((part == Part.PAYLOAD) == (known & (count < bounds[1])))
    bench.must((part == Part.CHECKSUM) == (known & (count >= bounds[1]) & (count < bounds[2])))
    bench.must((part == Part.DONE) == (known & (count == bounds[2])))
    for which, bound in zip((Part.HEADER, Part.PAYLOAD, Part.CHECKSUM), bounds, strict=True):
        bench.must(left == (bound - count)[:16], given=part == which)
    held = dut.frame.p.header.as_value()
    for k in range(1, HEADER.nbytes + 1):
        given = (count == k) if k < HEADER.nbytes else known
        bench.must((held >> (HEADER.width - 8 * k))[: 8 * k] == header[: 8 * k], given=given & ~dut.frame.valid)
    bench.must(count == 0, given=dut.frame.valid)


def checker() -> Bench:
    """The status of a request, against a table that is read like the specification."""
    bench = Bench()
    m = bench.m
    dut = RequestChecker(SMALL)
    inside = bench.unit(dut, "dut")
    frame = bench.free(frame_layout(SMALL), "frame")
    expected, busy = bench.free(8, "expected"), bench.free(1, "busy")
    idle = inside["fsm_state"] == state(inside["fsm_state"], "IDLE")
    start = bench.free(1, "start")
    m.d.comb += [dut.start.eq(start), dut.frame.eq(frame), dut.expected.eq(expected), dut.busy.eq(busy)]
    held = bench.past(start | ~idle, "held") & ~idle
    for name, value in (("frame", frame), ("expected", expected), ("busy", busy)):
        bench.assume(Value.cast(value) == bench.past(value, name), given=held)
    bench.assume(idle, given=start)
    status = _status(bench, frame, expected, busy)
    bench.must(dut.status == status, given=dut.done)
    args, kind = frame.args.as_value(), frame.header.kind
    count = Mux(kind == Kind.READ, args[TARGET.width :], frame.words)
    good = dut.done & (dut.status == Status.OK)
    targeted = good & ((kind == Kind.READ) | (kind == Kind.WRITE))
    bench.must(dut.target.as_value() == args[: TARGET.width], given=targeted)
    bench.must(dut.words == count, given=targeted)
    bench.must(dut.words == PING_WORDS, given=good & (kind == Kind.PING))
    bench.must((dut.target.region == RegionId.REGS) & (dut.target.addr == Reg.MAGIC), given=good & (kind == Kind.PING))
    for region in regions(SMALL).values():
        here = targeted & (dut.target.region == region.id)
        bench.must(dut.size == region.nbytes, given=here)
        bench.must(dut.length == (dut.words * region.nbytes), given=here & (kind == Kind.READ))
    for want in Status:
        bench.reach(dut.done & (status == want))
    return bench


def _status(bench: Bench, frame, expected, busy) -> Signal:
    """The first reason to refuse, as :class:`concord.spec.link.Status` has them."""
    header, args = frame.header, frame.args.as_value()
    kind, length = header.kind, header.length
    region, addr, count = args[:8], args[8 : TARGET.width], args[TARGET.width :]
    read, write = kind == Kind.READ, kind == Kind.WRITE
    words = Mux(read, count, frame.words)
    lengths = {Kind.PING: 0, Kind.READ: TARGET.nbytes + COUNT.nbytes, Kind.WAIT: WAIT_CYCLES.nbytes}
    misfit = Cat((kind == which) & (length != n) for which, n in lengths.items()).any()
    misfit = misfit | (write & (length < TARGET.nbytes))
    refused, excess, beyond, live = (Signal(name=name) for name in ("refused", "excess", "beyond", "live"))
    bench.m.d.comb += refused.eq(1)
    with bench.m.Switch(region):
        for each in regions(SMALL).values():
            with bench.m.Case(each.id):
                allowed = Mux(write, each.writable, each.readable)
                if each.id == RegionId.REGS:
                    allowed = allowed | ((addr == Reg.CONTROL) & (words <= 1))
                bench.m.d.comb += [
                    refused.eq(~allowed[0]), excess.eq(words * each.nbytes > SMALL.max_payload),
                    beyond.eq(addr + words > each.depth), live.eq(each.live),
                ]  # fmt: skip
    reasons = (
        (Status.BAD_CRC, ~frame.good),
        (Status.TOO_LONG, length > SMALL.max_payload),
        (Status.BAD_SEQ, (kind != Kind.PING) & (header.seq != expected)),
        (Status.BAD_KIND, kind > max(Kind)),
        (Status.BAD_LENGTH, misfit),
        (Status.BAD_REGION, (read | write) & refused),
        (Status.BAD_LENGTH, (write & frame.partial) | (read & excess)),
        (Status.BAD_ADDR, (read | write) & beyond),
        (Status.BUSY, (read | write) & ~live & busy),
    )
    status = Signal(8, name="right_status", init=Status.OK)
    for which, reason in reversed(reasons):
        with bench.m.If(reason):
            bench.m.d.comb += status.eq(which)
    return status


def _any_checksum(match: Value) -> type[Crc32]:
    """Stands for the checksum of received frames: right or wrong as an input says."""

    class AnyChecksum(Crc32):
        def elaborate(self, platform):
            m = Module()
            m.d.comb += self.match.eq(match)
            return m

    return AnyChecksum


def message_processor() -> Bench:
    """Any bytes from the host, any answers of the bus, and any outcome of the checksum."""
    bench = Bench()
    m = bench.m
    dut = MessageProcessor(SMALL)
    with patch.object(receiving, "Crc32", _any_checksum(bench.free(1, "match"))):
        inside = bench.unit(dut, "dut")
    offer(bench, dut.rx, "rx")
    offer(bench, dut.bus.rsp, "rsp")
    m.d.comb += [dut.tx.ready.eq(bench.free(1, "tx_ready")), dut.bus.req.ready.eq(bench.free(1, "req_ready"))]
    m.d.comb += [dut.busy.eq(bench.free(1, "busy")), dut.status.eq(bench.free(32, "status"))]
    frame = data.View(frame_layout(SMALL), inside["receiver.frame__payload"])
    held, ends = inside["receiver.frame__valid"], inside["frame__ready"]
    kind, expected = frame.header.kind, inside["expected"]
    accepted = Signal()  # the frame that is held was found good
    number = Signal(8)  # the number that was expected of it
    decided = inside["checker.done"]
    good = decided & (inside["checker.status"] == Status.OK)
    with m.If(held & ends):
        m.d.sync += accepted.eq(0)
    with m.If(decided):
        m.d.sync += [accepted.eq(good), number.eq(expected)]
    right = Signal()
    m.d.comb += right.eq(frame.good & (frame.header.length <= SMALL.max_payload) & _fits(kind, frame.header.length))
    numbered = (kind == Kind.PING) | (frame.header.seq == number)
    req = dut.bus.req
    bench.must(held & accepted & right & numbered, given=req.valid)
    bench.must((kind == Kind.WRITE) | ((kind != Kind.WAIT) & ~req.p.write), given=req.valid)
    bench.must(req.p.write == (kind == Kind.WRITE), given=req.valid)
    was_good = bench.past(good, "good")
    bench.must(expected == bench.past(expected, "expected"), given=~was_good)
    bench.must(right & accepted & (expected == (frame.header.seq + 1)[:8]), given=was_good)
    bench.must(dut.errors == (bench.past(dut.errors, "errors") + bench.past(decided & ~good, "refused"))[:32])
    _processor_inside(bench, inside, frame, accepted, number, right, numbered)
    bench.reach(decided & ~good)
    bench.reach(decided & good & (kind == Kind.PING))
    return bench


def _fits(kind, length) -> Value:
    """The length of the payload is one that a request of this kind can have."""
    return Mux(
        kind == Kind.WRITE,
        length >= TARGET.nbytes,
        ((kind == Kind.PING) & (length == 0))
        | ((kind == Kind.READ) & (length == TARGET.nbytes + COUNT.nbytes))
        | ((kind == Kind.WAIT) & (length == WAIT_CYCLES.nbytes)),
    )


def _processor_inside(bench: Bench, inside, frame, accepted, number, right, numbered) -> None:
    """For the induction: how the states of the processor and of the checker go together."""
    now, check = inside["fsm_state"], inside["checker.fsm_state"]
    held, kind, expected = inside["receiver.frame__valid"], frame.header.kind, inside["expected"]
    at = {name: now == state(now, name) for name in ("IDLE", "CHECK", "READ", "WRITE", "WAIT", "REPLY")}
    checks = {name: check == state(check, name) for name in ("IDLE", "CLAMP", "DECIDE")}
    bench.must(sum(at.values(), Const(0, 3)) == 1)
    bench.must(held, given=~at["IDLE"])
    bench.must(checks["IDLE"] == ~at["CHECK"])
    bench.must(inside["checker.done"] == checks["DECIDE"])
    bench.must(accepted, given=at["READ"] | at["WRITE"] | at["WAIT"])
    bench.must(accepted & ((kind == Kind.READ) | (kind == Kind.PING)), given=inside["reading"] & ~at["IDLE"])
    bench.must((kind == Kind.READ) | (kind == Kind.PING), given=at["READ"])
    bench.must(kind == Kind.WRITE, given=at["WRITE"])
    bench.must(~accepted, given=at["IDLE"] | at["CHECK"])
    bench.must(~inside["reading"], given=~(at["IDLE"] | at["REPLY"]))
    bench.must(right & numbered, given=accepted)
    # What is wrong whatever the region is: known a cycle after the frame is held, and judged a cycle later.
    wrong = ~right | ((kind != Kind.PING) & (frame.header.seq != expected))
    found = Cat(inside[f"checker.reason_{k}_1"] for k in range(5))
    bench.must(found.any() == wrong, given=~checks["IDLE"])
    bench.must(inside["checker.status"] != Status.OK, given=~checks["IDLE"] & ~checks["CLAMP"] & wrong)


_RECEIVER, _CHECKER = "concord_rtl.link.receiver", "concord_rtl.link.checker"
_PROCESSOR, _CRC = "concord_rtl.link.message_processor", "concord_rtl.link.crc"

PROOFS = (
    Sequential(
        "checksum", "CRC-32 of all bytes, as a register that shifts bit by bit; match: the residue of CRC-32",
        checksum, depth=4, steps=1,
        changes=(
            Change(_CRC, "[*state[1:], set()]", "[*state[1:], {31}]"),
            Change(_CRC, "self.crc == PARAMETERS.residue()", "self.crc == PARAMETERS.residue() ^ 1"),
        ),
    ),
    Sequential(
        "receiver", "a frame is good if and only if length, checksum and end agree with the bytes that came",
        receiver, depth=4, steps=1, fast=True, reach=12,
        changes=(
            Change(_RECEIVER, "& crc.match ", ""),
            Change(_RECEIVER, " & ~self.i.p.damaged", ""),
            Change(_RECEIVER, "(part == Part.DONE) & crc", "crc"),
            Change(_RECEIVER, "crc.clear.eq(self.frame.valid)", "crc.clear.eq(ended)"),
        ),
    ),
    Sequential(
        "request checker", "the status is the first reason to refuse; region, address, words and bytes of the rest",
        checker, depth=14,
        changes=(
            Change(_CHECKER, "far | (after > depth)", "after > depth"),
            Change(_CHECKER, "header.length > self.config.max_payload", "header.length > self.config.max_payload + 1"),
        ),
    ),
    Sequential(
        "message processor",
        "no bus request and no step of the number without a good frame of right length, kind and number",
        message_processor, depth=4, steps=1, fast=True,
        reach=24,
        changes=(
            Change(_PROCESSOR, "m.d.comb += [access.run.eq(reading), ", "m.d.comb += [access.run.eq(1), "),
            Change(_PROCESSOR, "with m.If(checker.done & (checker.status != Status.OK)):",
                   "with m.If(checker.done & (checker.status == Status.BAD_SEQ)):"),
            Change(_CHECKER, "(Status.BAD_CRC, ~self.frame.good)", "(Status.BAD_CRC, ~self.frame.good & ping)"),
        ),
    ),
)  # fmt: skip
