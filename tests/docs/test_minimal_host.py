"""A host that is written from the pages alone: memmap.md, link.md, feeder.md and isa.md say all that it needs.

It imports nothing of the driver. Numbers of regions, requests, statuses, registers and words of scripts are read from
the tables of the pages, so a page that lacks one of them, or has another one, fails here.
"""

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from concord.host.rtl import RtlTransport, find_library
from concord.program.assembler import assemble
from support.fed_model import FedModel
from support.link_model import ModelTransport
from support.rtl_configs import FED

DOCS = Path(__file__).parents[2] / "docs"
#: Elements of a native vector of the configuration.
NATIVE = 4

#: Relu of two wide vectors.
PROGRAM = """
set_shape 2, 1
set_iters 1, 1
v_rd wide, 0, row=1
  v_relu
  v_wr wide, 4, row=1
halt
"""


def table(page, name):
    """Rows of a generated table as dicts of cells, without the marks of code."""
    text = (DOCS / page).read_text(encoding="utf-8")
    block = re.search(rf"<!-- table: {re.escape(name)} -->\n(.*?)<!-- end -->", text, re.DOTALL)[1]
    head, _, *rows = [line.strip("| ").split(" | ") for line in block.strip().splitlines()]
    return [dict(zip(head, (cell.strip("` ") for cell in row), strict=False)) for row in rows]


REGION = {row["name"]: int(row["region"]) for row in table("memmap.md", "regions")}
KIND = {row["name"]: int(row["code"]) for row in table("memmap.md", "requests")}
STATUS = {row["name"]: int(row["code"]) for row in table("memmap.md", "statuses")}
REGISTER = {row["register"]: int(row["address"]) for row in table("memmap.md", "registers")}
WORD = {row["name"]: int(row["code"]) for row in table("feeder.md", "script-operations")}
PLACE = {(row["word"], row["field"]): int(row["bits"].split(":")[-1]) for row in table("feeder.md", "script-fields")}
WIDTH = {
    (row["word"], row["field"]): 1 + int(row["bits"].split(":")[0]) - int(row["bits"].split(":")[-1])
    for row in table("feeder.md", "script-fields")
}


class Host:
    """Frames as link.md has them, one request at a time."""

    def __init__(self, transport):
        self.transport, self.seq = transport, 0
        self.request("PING", b"")

    def request(self, kind, payload):
        body = struct.pack("<BBH", self.seq, KIND[kind], len(payload)) + payload
        body += struct.pack("<I", zlib.crc32(body))
        escaped = b"".join(bytes([0x7D, byte ^ 0x20]) if byte in (0x7E, 0x7D) else bytes([byte]) for byte in body)
        self.transport.write(b"\x7e" + escaped + b"\x7e")
        seq, status, data = self.reply()
        assert seq == self.seq
        if status == STATUS["OK"]:
            self.seq = (self.seq + 1) % 256
        return status, data

    def reply(self):
        line = b""
        while line.count(b"\x7e") < 2 or not line.strip(b"\x7e"):
            line += self.transport.read(1, 1.0)
        raw, body = line.strip(b"\x7e"), bytearray()
        while raw:
            body.append(raw[1] ^ 0x20 if raw[0] == 0x7D else raw[0])
            raw = raw[2:] if raw[0] == 0x7D else raw[1:]
        *whole, crc = bytes(body[:-4]), struct.unpack("<I", body[-4:])[0]
        assert crc == zlib.crc32(whole[0])
        seq, status, length = struct.unpack("<BBH", whole[0][:4])
        assert length == len(whole[0]) - 4
        return seq, status, whole[0][4:]

    @staticmethod
    def target(region, address):
        return bytes([REGION[region]]) + address.to_bytes(3, "little")

    def write(self, region, address, data):
        status, _ = self.request("WRITE", self.target(region, address) + data)
        return status

    def read(self, region, address, count):
        return self.request("READ", self.target(region, address) + struct.pack("<H", count))


def script_word(op, **values):
    """Five bytes: the operation in bits 3:0, and values where the page says."""
    word = WORD[op]
    for name, value in values.items():
        word |= (value & (1 << WIDTH[op, name]) - 1) << PLACE[op, name]
    return word.to_bytes(5, "little")


def words_of_the_example():
    """The rows of the page's last table."""
    text = (DOCS / "feeder.md").read_text(encoding="utf-8").split("## An example")[1]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) ?\|$", text, re.MULTILINE)
    return b"".join(
        script_word(op, **{n: int(v) for n, v in re.findall(r"`(\w+)` (-?\d+)", cells)}) for op, cells in rows
    )


def outbox_address(at):
    """Of the byte ``at``, in front of which nothing must stay: positions are modulo twice a quarter of the inbox."""
    place = at % (FED.inbox // 2)
    return place << 12 | place


def rtl():
    return RtlTransport(find_library(FED))


@pytest.fixture(params=["model", pytest.param("rtl", marks=pytest.mark.slow)])
def host(request):
    transport = ModelTransport(FedModel(FED)) if request.param == "model" else rtl()
    host = Host(transport)
    yield host
    transport.close()


def load(host):
    program = b"".join(struct.pack("<Q", word) for word in assemble(PROGRAM))
    assert host.write("PROGRAM", 0, program) == STATUS["OK"]


def test_a_run_without_the_feeder(host):
    load(host)
    x = np.random.default_rng(1).normal(size=(2, NATIVE)).astype("<f2")
    assert host.write("WIDE", 0, x.tobytes()) == STATUS["OK"]
    assert host.write("REGS", REGISTER["CONTROL"], struct.pack("<I", 1)) == STATUS["OK"]
    status, data = host.request("WAIT", struct.pack("<I", 10000))
    assert status == STATUS["OK"] and struct.unpack("<I", data)[0] & 7 == 2, "done, not busy, not trapped"
    status, data = host.read("WIDE", 4, 2)
    assert status == STATUS["OK"]
    assert np.array_equal(np.frombuffer(data, "<f2").reshape(2, NATIVE), np.maximum(x, 0))


def test_a_batch_through_the_feeder(host):
    """The script of the page's example, and every byte in its place."""
    load(host)
    assert host.write("SCRIPT", 0, words_of_the_example()) == STATUS["OK"]
    x = np.random.default_rng(2).normal(size=(20, 2, NATIVE)).astype("<f2")
    at, found = 0, b""
    for sample in x:
        while (status := host.write("INBOX", 0, sample.tobytes())) != STATUS["OK"]:
            assert status == STATUS["BUSY"]
        if len(found) < 12 * 10:  # the first results while others come
            status, data = host.read("OUTBOX", outbox_address(at), 12)
            assert status == STATUS["OK"]
            found, at = found + data, at + len(data)
    for _ in range(10_000):
        if len(found) == 12 * len(x):
            break
        status, data = host.read("OUTBOX", outbox_address(at), 12)
        assert status == STATUS["OK"]
        found, at = found + data, at + len(data)
    assert host.read("OUTBOX", outbox_address(at), 0)[0] == STATUS["OK"]
    assert np.array_equal(np.frombuffer(found, "<f2").reshape(20, 2, 3), np.maximum(x, 0)[..., :3])


def test_what_the_pages_say_is_refused(host):
    assert host.read("SLOTS", 0, 1)[0] == STATUS["BAD_REGION"]
    assert host.read("INBOX", 0, 1)[0] == STATUS["BAD_REGION"]
    assert host.write("OUTBOX", 0, b"x") == STATUS["BAD_REGION"]
    assert host.write("PROGRAM", 1 << 23, bytes(8)) == STATUS["BAD_ADDR"]
    assert host.write("PROGRAM", 0, bytes(7)) == STATUS["BAD_LENGTH"]
