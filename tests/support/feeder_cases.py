"""Scripts for the feeder, and what they lay out as the page of the feeder says it: all bytes at hand, no rings."""

from __future__ import annotations

from dataclasses import dataclass

from concord.golden.blocks import quantize
from concord.spec.config import NpuConfig
from concord.spec.feeder import FeedOp, feed_word
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY

CONFIG = TINY.replace(inbox=128, code_pages=4, narrow_depth=256, wide_depth=256)
#: Where vectors and results are, and the bits that a run adds to every wide result.
TARGET, WIDE_RESULT, NARROW_RESULT, ADDED = 20, 200, 250, 0x0001_0002_0003_0005


@dataclass(frozen=True)
class Filled:
    """A ``FILL``; lines and positions follow one another without a gap.

    Parameters
    ----------
    image, windows : tuple of int
        Height, width and elements of a position; lines of windows, and windows of a line.
    kernel, stride, dilation, origin : tuple of int
        As in the words of a script.
    kind : str
        ``"halves"``, ``"codes"`` or ``"blocks"``.
    wide : bool
        Vectors go to wide memory.
    border : int
        What elements outside the image are.
    page : int
        Page of codes.
    paged : bool
        Whether every element of a position has a page of its own.
    held : int
        Last lines of windows during which nothing is let go.
    """

    image: tuple[int, int, int]
    windows: tuple[int, int]
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    origin: tuple[int, int] = (0, 0)
    kind: str = "halves"
    wide: bool = True
    border: int = 0
    page: int = 0
    paged: bool = False
    held: int = 0

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 2 if self.kind == "halves" else 1

    def pixel(self, native: int) -> int:
        """Bytes of a position."""
        return self.image[2] * self.size + (-(-self.image[2] // native) if self.kind == "blocks" else 0)

    def nbytes(self, native: int) -> int:
        """Bytes of a sample."""
        return self.image[0] * self.image[1] * self.pixel(native)

    def words(self, config: NpuConfig) -> list[int]:
        """Words of a script."""
        pixel, ring = self.pixel(config.native), 2 * config.inbox
        line = self.image[1] * pixel
        dil_y, dil_x = self.dilation
        start = self.origin[0] * line + self.origin[1] * pixel
        flags = {"wide": self.wide, "double": self.size == 2, "coded": self.kind == "codes"}
        flags |= {"page": self.page, "paged": self.paged}
        return [
            feed_word(FeedOp.WINDOW, kh=self.kernel[0], kw=self.kernel[1], dil_y=dil_y, dil_x=dil_x),
            feed_word(FeedOp.SLIDE, step_y=self.stride[0], step_x=self.stride[1], y0=self.origin[0], x0=self.origin[1]),
            feed_word(FeedOp.IMAGE, height=self.image[0], width=self.image[1]),
            feed_word(FeedOp.SIZE, rows=self.windows[0], cols=self.windows[1], channels=self.image[2]),
            feed_word(FeedOp.TAPS, tap_y=dil_y * line % ring, tap_x=dil_x * pixel % ring),
            feed_word(FeedOp.MOVES, move_y=self.stride[0] * line % ring, move_x=self.stride[1] * pixel % ring),
            feed_word(FeedOp.START, start=start % ring, border=self.border),
            feed_word(FeedOp.TARGET, target=TARGET, blocks=self.kind == "blocks", **flags),
            feed_word(FeedOp.FILL, advance=self.nbytes(config.native) % ring, held=self.held),
        ]

    def vectors(self, sample: bytes, codes: list[int], config: NpuConfig) -> list[tuple[int, int]]:
        """Words of all vectors, and how many bytes of the sample each of them needs."""
        found, native, (height, width, channels) = [], config.native, self.image
        for oy in range(self.windows[0]):
            for ox in range(self.windows[1]):
                lanes: list[int] = []
                exps: list[int] = []
                needed = []
                for ky in range(self.kernel[0]):
                    for kx in range(self.kernel[1]):
                        y = self.origin[0] + oy * self.stride[0] + ky * self.dilation[0]
                        x = self.origin[1] + ox * self.stride[1] + kx * self.dilation[1]
                        inside = 0 <= y < height and 0 <= x < width
                        at = (y * width + x) * self.pixel(native)
                        for c in range(channels):
                            if self.kind == "blocks" and c % native == 0:
                                exps.append(sample[at])
                                at += 1
                            element = int.from_bytes(sample[at : at + self.size], "little") if inside else self.border
                            if inside and self.kind == "codes":
                                page = (self.page + c * self.paged) % config.code_pages
                                element = codes[256 * page + element]
                            lanes.append(element)
                            at += self.size
                            needed.append(at if inside else 0)
                lanes += lanes[-1:] * (-len(lanes) % native)
                for k in range(0, len(lanes), native):
                    before = found[-1][1] if found else 0
                    word = self._word(lanes[k : k + native], exps[k // native] if exps else 0, config)
                    found.append((word, max([before, *needed[: k + native]])))
        return found

    def _word(self, lanes: list[int], exp: int, config: NpuConfig) -> int:
        if self.wide:
            return config.wide_word.pack(elem=lanes)
        if self.kind == "blocks":
            signed = [lane - 256 if lane > 127 else lane for lane in lanes]
            return config.narrow_word.pack(mant=signed, exp=exp - 256 if exp > 127 else exp)
        block = quantize([lanes], config.act)
        return config.narrow_word.pack(mant=block.mant[0], exp=int(block.exp[0]))


def script(filled: Filled, lanes: int, config: NpuConfig = CONFIG) -> list[int]:
    """A script with some wide results of so many lanes, and a narrow one."""
    return [
        *filled.words(config),
        feed_word(FeedOp.RUN, pc=7, adds=0),
        feed_word(FeedOp.SEND, source=WIDE_RESULT, vectors=2, lanes=lanes, narrow=0),
        feed_word(FeedOp.SEND, source=NARROW_RESULT, vectors=1, lanes=lanes, narrow=1),
        feed_word(FeedOp.END),
    ]


class Core:
    """Vector memories, and a program that changes the results."""

    def __init__(self):
        self.memory = {RegionId.NARROW: {NARROW_RESULT: 0x7F_80_01_FF_7F}}
        self.memory[RegionId.WIDE] = {WIDE_RESULT + k: 7919 * (k + 1) << 11 * k for k in range(2)}
        self.writes: list[tuple[RegionId, int, int]] = []
        self.starts: list[int] = []

    def read(self, region: RegionId, addr: int) -> int:
        """A word."""
        return self.memory[region].get(addr, 0)

    def write(self, region: RegionId, addr: int, word: int) -> None:
        """A word of the feeder."""
        self.memory[region][addr] = word
        self.writes.append((region, addr, word))

    def start(self, pc: int, adds: bool) -> bool:
        """A run."""
        self.starts.append(pc)
        for k in range(2):
            self.memory[RegionId.WIDE][WIDE_RESULT + k] += ADDED
        self.memory[RegionId.NARROW][NARROW_RESULT] = self.memory[RegionId.NARROW][NARROW_RESULT] * 5 % (1 << 40)
        return True

    def results(self, lanes: int) -> bytes:
        """What a script sends behind a run."""
        found = b"".join(
            self.memory[RegionId.WIDE][WIDE_RESULT + k].to_bytes(8, "little")[: 2 * lanes] for k in range(2)
        )
        narrow = self.memory[RegionId.NARROW][NARROW_RESULT].to_bytes(5, "little")
        return found + narrow[4:] + narrow[:lanes]


#: By name: a FILL and lanes of the results.
CASES = {
    "halves": (Filled((3, 2, 5), (3, 2)), 3),
    "halves that are held": (Filled((3, 2, 5), (3, 2), held=2), 3),
    "halves to blocks": (Filled((2, 3, 4), (2, 3), wide=False), 4),
    "codes": (Filled((2, 2, 6), (2, 2), kind="codes"), 1),
    "blocks": (Filled((2, 2, 6), (2, 2), kind="blocks", wide=False), 2),
    "blocks in windows": (Filled((3, 2, 4), (2, 2), (2, 1), kind="blocks", wide=False), 3),
    "windows": (Filled((4, 3, 2), (4, 3), (3, 3), origin=(-1, -1), border=0xB800), 4),
    "dilated windows": (Filled((3, 4, 2), (3, 4), (2, 2), dilation=(2, 2), origin=(-1, -1), border=0x4000), 1),
    "windows with steps": (Filled((6, 6, 1), (2, 3), (2, 2), (2, 2), (2, 1), (0, -1), "codes", False, 0x3C00), 2),
    "codes of a page": (Filled((2, 2, 6), (2, 2), kind="codes", page=2), 1),
    "codes of pages": (Filled((2, 3, 3), (2, 3), kind="codes", page=3, paged=True), 2),
    "colours in windows": (
        Filled((4, 3, 3), (4, 3), (3, 3), origin=(-1, -1), kind="codes", border=0xB800, page=1, paged=True),
        3,
    ),
    "more elements than pages": (Filled((1, 2, 7), (1, 2), kind="codes", wide=False, paged=True), 4),
}
