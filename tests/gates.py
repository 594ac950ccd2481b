"""Netlists of bitstreams against the reference machine, and a network on one of them.

``docs/gates.md`` says what is covered. Usage: ``python tests/gates.py --help``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from concord.emulator import ReferenceMachine
from concord.host import connect
from concord.host.rtl import find_netlist
from concord.image import Memories
from concord.spec.memmap import RegionId
from concord.spec.presets import preset
from support.device_runs import COUNTED, LOADED, after, load
from support.program_gen import random_program

#: Memories that a bitstream fills for the preset tiny; smaller ones are part of the netlist.
FILLED = (RegionId.PROGRAM, RegionId.TABLE, RegionId.MATRIX)
CHAINS = 8
#: Boards, each with a preset that is small there.
BOARDS = {"ulx3s-25f": "tiny"}
STAGES = ("synthesis", "routed")
#: A network, and the board for whose own preset it is compiled.
NETWORK, NETWORK_BOARD = "digits_mlp", "ulx3s-25f"


def contents_of(memories: Memories, folder: Path) -> Path:
    """A folder of hex files with what the block RAMs start with; other memories are zeros."""
    for region in (*LOADED, RegionId.SLOTS):
        words = memories.read(region, 0, memories.region(region).depth) if region in FILLED else []
        (folder / f"{region.name.lower()}.hex").write_text("".join(f"{word:x}\n" for word in words))
    (folder / "config.json").write_text(json.dumps(memories.config.to_dict()))
    return folder


def difference(device, memories: Memories) -> str:
    """Run the program in ``memories``, which the device holds, on both; what differs first, or nothing."""
    want = memories.copy()
    run = ReferenceMachine(want).run()
    device.start()
    device.wait()
    wrong = want.differences(after(device, memories))
    if wrong:
        return str(wrong[0])
    counters = device.counters()
    for name in COUNTED:
        if counters[name] != getattr(run, name.lower()):
            return f"{name}: {getattr(run, name.lower())}, not {counters[name]}"
    return ""


def not_as_filled(device, memories: Memories) -> str:
    """The first word of the block RAMs that is not as the image says, read over the link; or nothing."""
    for region in FILLED:
        want = memories.read(region, 0, memories.region(region).depth)
        have = device.read(region, 0, len(want))
        for addr, (one, other) in enumerate(zip(want, have, strict=True)):
            if one != other:
                return f"{region.name} word {addr}: {one:x} in the image, {other:x} in the netlist"
    return ""


def check(board: str, name: str, stage: str, programs: int, seed: int, build: Path, say=print) -> bool:
    """Run random programs on a netlist; the first one is in its block RAMs from the start, the others are loaded."""
    config = preset(name)
    drawn = [random_program(config, random.Random(seed + k), CHAINS)[1] for k in range(programs)]
    with TemporaryDirectory() as folder:
        image = contents_of(drawn[0], Path(folder))
        library = find_netlist(config, board, stage, image=image, build=build)
    begun = time.monotonic()
    with connect("rtl", config, library=library) as device:
        for k, memories in enumerate(drawn):
            wrong = not_as_filled(device, memories) if k == 0 else ""
            load(device, memories, [region for region in LOADED if k or region not in FILLED])
            wrong = wrong or difference(device, memories)
            if wrong:
                say(f"{board} {name} {stage}, program {seed + k}: FAIL, {wrong}")
                return False
        cycles, seconds = device.link.transport.cycles, time.monotonic() - begun
    rate = f"{cycles:,} cycles in {seconds:.0f} s"
    say(f"{board} {name} {stage}: {programs} programs as the reference machine has them, {rate}")
    return True


def check_network(board: str, stage: str, samples: int, build: Path, say=print) -> bool:
    """Compile a network with real inputs for a board, and compare emulator and netlist with ``concord gates``."""
    root = os.environ.get("CONCORD_DATA", "")
    model = Path(root) / "models" / f"{NETWORK}.onnx"
    if not model.exists():
        say(f"{board} {NETWORK} {stage}: not run, the network must be in CONCORD_DATA, which is {root!r}")
        return True
    folder = build / "gates" / f"{NETWORK}-{board}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    data = np.load(Path(root) / "data" / "digits.npz")
    inputs = folder.with_suffix(".npz")
    np.savez(inputs, input=((data["x"][:samples].astype(np.float32) - data["zero_point"]) * data["scale"]))
    command = [sys.executable, "-m", "concord"]
    compiling = [*command, "compile", model, "--board", board, "--input-range", "0,1", "-o", folder]
    subprocess.run(compiling, check=True, stdout=subprocess.DEVNULL)
    options = ["-i", inputs, "--board", board, "--stage", stage, "--build", build]
    done = subprocess.run([*command, "gates", folder, *options], stdout=subprocess.PIPE, text=True, check=False)
    say(f"{board} {NETWORK} {stage}, {samples} samples: {', '.join(done.stdout.split(chr(10))).strip(', ')}")
    return done.returncode == 0


def main() -> int:
    """Check what the command line asks for; 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", choices=list(BOARDS), action="append", help="default: all")
    parser.add_argument("--stage", choices=STAGES, action="append", help="default: both")
    parser.add_argument("--programs", type=int, default=4, help="random programs; 0 for none")
    parser.add_argument("--samples", type=int, default=20, help="samples of the network; 0 for none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", type=Path, default=Path("build"))
    given = parser.parse_args()
    good = []
    for board, stage in product(given.board or BOARDS, given.stage or STAGES):
        if given.programs:
            good.append(check(board, BOARDS[board], stage, given.programs, given.seed, given.build))
        if given.samples and board == NETWORK_BOARD:
            good.append(check_network(board, stage, given.samples, given.build))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
