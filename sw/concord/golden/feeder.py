"""The feeder, byte by byte: the definition of what a script does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from concord.golden.blocks import quantize
from concord.spec.config import NpuConfig
from concord.spec.feeder import CODE_PAGE, FEED_LAYOUTS, OUTBOX_ADDRESS, SCRIPT_DEPTH, SCRIPT_WORD, FeedOp
from concord.spec.memmap import RegionId

#: Region and address -> word; region, address and word; address of the program, and whether its counters go on from the
#: run before -> whether it did not trap.
Read = Callable[[RegionId, int], int]
Write = Callable[[RegionId, int, int], None]
Start = Callable[[int, bool], bool]


class Feeder:
    """Model of the feeder: its memories, and the steps that it takes when bytes come.

    Parameters
    ----------
    config : NpuConfig
        With an inbox.
    read, write, start : callable
        Access to the core: words of its vector memories, and its program.
    """

    def __init__(self, config: NpuConfig, read: Read, write: Write, start: Start):
        self.config, self._read, self._write, self._start = config, read, write, start
        self.codes, self.script = [0] * (config.code_pages * CODE_PAGE), [0] * SCRIPT_DEPTH
        self._restart()

    def _restart(self) -> None:
        self.inbox: list[int] = []  # every byte since the script was written
        self.released = self.kept = 0
        self.outbox: list[int] = []
        self._going: Iterator[None] | None = self._run()

    @property
    def room(self) -> int:
        """Bytes that the inbox can take."""
        return self.config.inbox - 1 - (len(self.inbox) - self.released)

    def write(self, region: RegionId, addr: int, word: int) -> None:
        """A word of code book or script, or a byte for the inbox."""
        if region is RegionId.CODES:
            self.codes[addr] = word
        elif region is RegionId.SCRIPT:
            self.script[addr] = word
            self._restart()
        else:
            self.inbox.append(word)
            self.go_on()

    def read(self, addr: int, count: int) -> list[int]:
        """Bytes of the outbox, as many as are there, ``count`` at the most; those in front of ``kept`` are let go."""
        address = OUTBOX_ADDRESS.unpack(addr)
        size = self.config.outbox_depth
        self.kept = address["kept"]
        there = (len(self.outbox) - address["first"]) % (2 * size)
        first = len(self.outbox) - there
        data = self.outbox[first : first + count] if there <= size else []
        self.go_on()
        return data

    def go_on(self) -> None:
        """Do what can be done with the bytes that there are."""
        if self._going is not None and next(self._going, self) is self:
            self._going = None  # trapped

    def _run(self) -> Iterator[None]:
        """Waits at every ``yield`` for the host; ends with a trap."""
        fields: dict[str, int] = {}
        base, pc = 0, 0
        while not self.inbox:
            yield
        while True:
            op = FeedOp(SCRIPT_WORD.unpack(self.script[pc])["op"])
            word = FEED_LAYOUTS[op].unpack(self.script[pc])
            pc += 1
            fields |= word
            if op is FeedOp.END:
                if pc == 1:
                    yield
                while len(self.inbox) == base:
                    yield
                pc = 0
            elif op is FeedOp.FILL:
                yield from self._fill(base, fields)
                base = self._near(self.released, base + word["advance"], 2 * self.config.inbox)
                while len(self.inbox) < base:
                    yield
                self.released = base
            elif op is FeedOp.RUN:
                if not self._start(word["pc"], bool(word["adds"])):
                    return
            elif op is FeedOp.SEND:
                yield from self._send(word)

    def _bytes(self, at: int, count: int) -> Iterator[None]:
        while len(self.inbox) < at + count:
            yield

    def _fill(self, base: int, f: dict[str, int]) -> Iterator[None]:
        native, size, ring = self.config.native, 1 + f["double"], 2 * self.config.inbox
        single = f["kh"] == f["kw"] == 1
        target = f["target"]
        for oy in range(f["rows"]):
            for ox in range(f["cols"]):
                origin = f["start"] + oy * f["move_y"] + ox * f["move_x"]
                taps = [(ky, kx) for ky in range(f["kh"]) for kx in range(f["kw"])]
                lanes: list[int] = []
                count = len(taps) * f["channels"]
                at = exp = 0
                for k in range(-(-count // native) * native):
                    if f["blocks"] and k < count and k % f["channels"] == 0:
                        ky, kx = taps[k // f["channels"]]
                        offset = origin + ky * f["tap_y"] + kx * f["tap_x"]
                        at = self._near(self.released, base + offset, ring)
                    if f["blocks"] and k % native == 0:
                        yield from self._bytes(at, 1)
                        exp = self.inbox[at]
                        at += 1
                    if k >= count:
                        lanes.append(lanes[-1])
                    else:
                        (ky, kx), c = taps[k // f["channels"]], k % f["channels"]
                        y = f["y0"] + oy * f["step_y"] + ky * f["dil_y"]
                        x = f["x0"] + ox * f["step_x"] + kx * f["dil_x"]
                        if not f["blocks"]:
                            offset = origin + ky * f["tap_y"] + kx * f["tap_x"] + c * size
                            at = self._near(self.released, base + offset, ring)
                        if 0 <= y < f["height"] and 0 <= x < f["width"]:
                            if single and f["rows"] - oy > f["held"]:
                                self.released = at
                            yield from self._bytes(at, size)
                            number = int.from_bytes(bytes(self.inbox[at : at + size]), "little")
                            lanes.append(self._code(f, c, number) if f["coded"] else number)
                        else:
                            lanes.append(f["border"])
                        at += size
                    if k % native == native - 1:
                        self._store(target, lanes[-native:], exp, f)
                        target = (target + 1) % (1 << 14)
            y = f["y0"] + (oy + 1) * f["step_y"]
            if not single and y > 0 and f["rows"] - oy - 1 > f["held"]:
                self.released = self._near(self.released, base + f["start"] + (oy + 1) * f["move_y"], ring)

    def _code(self, f: dict[str, int], channel: int, byte: int) -> int:
        page = f["page"] + (channel if f["paged"] else 0)
        return self.codes[page % self.config.code_pages * CODE_PAGE + byte]

    @staticmethod
    def _near(reference: int, address: int, ring: int) -> int:
        """The byte with this address modulo ``ring`` that is nearest to a reference."""
        return reference + (address - reference + ring // 2) % ring - ring // 2

    def _store(self, target: int, lanes: list[int], exp: int, f: dict[str, int]) -> None:
        config = self.config
        if f["wide"]:
            self._write(RegionId.WIDE, target, config.wide_word.pack(elem=lanes))
        elif f["blocks"]:
            signs = 1 << config.act_mant - 1
            mant = [((lane & 2 * signs - 1) ^ signs) - signs for lane in lanes]
            self._write(RegionId.NARROW, target, config.narrow_word.pack(mant=mant, exp=(exp ^ 128) - 128))
        else:
            block = quantize([lanes], config.act)
            self._write(RegionId.NARROW, target, config.narrow_word.pack(mant=block.mant[0], exp=int(block.exp[0])))

    def _send(self, f: dict[str, int]) -> Iterator[None]:
        size = self.config.outbox_depth
        for vector in range(f["source"], f["source"] + f["vectors"]):
            for byte in self._vector(vector, f["lanes"], f["narrow"]):
                while (len(self.outbox) - self.kept) % (2 * size) >= size:
                    yield
                self.outbox.append(byte)

    def _vector(self, address: int, lanes: int, narrow: int) -> bytes:
        """Bytes of a vector as they are sent."""
        config = self.config
        if not narrow:
            elements = config.wide_word.unpack(self._read(RegionId.WIDE, address))["elem"]
            return b"".join(int(element).to_bytes(2, "little") for element in elements[:lanes])
        word, size = config.narrow_word.unpack(self._read(RegionId.NARROW, address)), config.mantissa_bytes
        mantissas = (int(mant).to_bytes(size, "little", signed=True) for mant in word["mant"][:lanes])
        return int(word["exp"]).to_bytes(1, "little", signed=True) + b"".join(mantissas)
