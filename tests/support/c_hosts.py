"""Hosts in C on this machine: compiled, and connected to a device over a socket."""

import atexit
import mmap
import os
import re
import select
import shutil
import socket
import subprocess
import tempfile
import threading
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.derive.c_host.plan import plan
from concord.derive.c_host.source import LIBRARY, SPEC_HEADER, c_files, column_bytes
from concord.derive.c_host.spec_header import spec_header
from concord.host import connect
from concord.spec.presets import TINY
from support import compiled_nets

HARNESS = Path(__file__).parent / "c_host" / "harness.c"
PICO = Path(__file__).parents[2] / "examples" / "pico" / "main.c"
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="needs gcc or clang")
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-pedantic", "-Werror"]
#: Of executables, which stop at undefined behaviour and at accesses outside of objects.
CHECKED = ["-O0", "-g", "-fsanitize=undefined,address", "-fno-sanitize-recover"]


def write_host(image, package, folder, name="net", **options):
    """The files of a host; returns its plan."""
    made = plan(image, package, **options)
    for file, text in c_files(made, name).items():
        (folder / file).write_text(text)
    if columns := column_bytes(made):
        (folder / "samples.columns").write_bytes(columns)
    return made


def build(folder, options=CHECKED, compiler=None):
    """Compile a host with the harness; returns the executable."""
    return _link(folder, ["-D_GNU_SOURCE", "-I", HARNESS.parent, HARNESS], options, compiler or COMPILERS[0])


def build_pico(folder, options=CHECKED):
    """The example for the Pico with the stand-in for its SDK."""
    sdk = Path(__file__).parent / "c_host" / "pico"
    _compile([COMPILERS[0], *STRICT, *options, "-I", sdk, "-I", folder, "-c", PICO, "-o", folder / "main.o"])
    sources = ["-D_GNU_SOURCE", "-I", sdk, "-I", HARNESS.parent, sdk / "sdk.c", folder / "main.o"]
    return _link(folder, sources, options, COMPILERS[0])


def _link(folder, sources, options, command):
    _compile([command, *STRICT, *options, "-c", folder / "net.c", "-o", folder / "net.o"])
    objects = [folder / "net.o", _library(command, tuple(options))]
    _compile([command, *options, "-I", folder, *sources, *objects, "-o", folder / "host"])
    return folder / "host"


@cache
def _library(command, options):
    """The object of the library, which is the same for all networks."""
    folder = Path(tempfile.mkdtemp(prefix="c-host-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = files("concord.derive.c_host") / "library"
    for name in LIBRARY:
        (folder / name).write_text((library / name).read_text())
    (folder / SPEC_HEADER).write_text(spec_header())
    _compile([command, *STRICT, *options, "-c", folder / "concord_host.c", "-o", folder / "concord_host.o"])
    return folder / "concord_host.o"


def _compile(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Run:
    """What a host has printed and written."""

    def __init__(self, done, data, made):
        self.code, self.text = done
        self.calls = re.findall(r"^(\w+): (\d+) (.*?); flags (\d+)", self.text, re.MULTILINE)
        self.flags = set(re.findall(r"^flag: (.*) (\w+)$", self.text, re.MULTILINE))
        self.repeated = max((int(n) for n in re.findall(r"repeated (\d+)", self.text)), default=0)
        width = sum(int(np.prod(port.shape)) for port in made.outputs)
        values = np.frombuffer(data, np.float32).reshape(-1, width)
        self.outputs, at = {}, 0
        for port in made.outputs:
            size = int(np.prod(port.shape))
            self.outputs[port.name] = values[:, at : at + size].reshape(-1, *port.shape)
            at += size


def run(made, folder, inputs, transport, *, mode="run", damage=None, timeout=1000, patience=120):
    """Run a compiled host on samples, with a device behind a socket.

    ``damage(data, way)`` changes bytes on the line, ``way`` being ``"request"`` or ``"reply"``. ``timeout`` is in
    milliseconds of the line, which pass while the host waits and nothing comes: a slow machine repeats no requests.
    """
    size = len(next(iter(inputs.values())))
    types = [np.float32 if port.book is None else np.uint8 for port in made.inputs]
    columns = [
        inputs[port.name].astype(kind).reshape(size // made.batch, -1)
        for port, kind in zip(made.inputs, types, strict=True)
    ]
    (folder / "samples").write_bytes(
        b"".join(b"".join(c[k].tobytes() for c in columns) for k in range(len(columns[0])))
    )
    words = [folder / "samples", folder / "results", mode, str(timeout)]
    done = connected(lambda line, clock: [folder / "host", line, *words, clock], transport, damage, patience)
    return Run(done, (folder / "results").read_bytes(), made)


class LineClock:
    """Milliseconds of a line, in a file that the host maps; ``c_host/line_clock.h`` says when they pass."""

    def __init__(self, path):
        path.write_bytes(bytes(12))
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), 12)).cast("I")

    @property
    def asked(self):
        """How often the host has looked for bytes and found none; what it sent before is in the socket."""
        return self._words[1]

    def answer(self, asked):
        """Let the host go on that has asked so often, as bytes have come."""
        self._words[2] = asked

    def tick(self):
        """Let a millisecond pass."""
        self._words[0] += 1


def connected(command, transport, damage=None, patience=120):
    """Run ``command(line, clock)`` with a device behind the socket ``line``; returns its code and what it prints."""
    ours, theirs = socket.socketpair()
    line = str(theirs.fileno())
    with tempfile.TemporaryDirectory(prefix="line-") as folder:
        path = Path(folder) / "clock"
        clock = LineClock(path)
        process = subprocess.Popen(
            command(line, path), pass_fds=[theirs.fileno()], env=os.environ | {"LINE": line, "CLOCK": str(path)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        theirs.close()
        pump = threading.Thread(target=_pump, args=(ours, transport, damage or (lambda data, way: data), clock))
        pump.start()
        try:
            text, _ = process.communicate(timeout=patience)
        finally:
            process.kill()
            pump.join()
    return process.returncode, text


def _pump(line, transport, damage, clock):
    """Carry bytes until either end lets go of the line."""
    with line, suppress(BrokenPipeError, ConnectionResetError):
        if hasattr(transport, "xfer2"):
            _exchange(line, transport, clock)
        else:
            _carry(line, transport, damage, clock)


def _exchange(line, bus, clock):
    """Over a bus: as many bytes come back as are sent; the host waits by exchanging."""
    answered = 0
    while True:
        asked = clock.asked
        if select.select([line], [], [], 0.001)[0]:
            data = line.recv(4096)
            if not data:
                return
            line.sendall(bytes(bus.xfer2(list(data))))
            clock.tick()
        elif asked != answered:
            clock.answer(answered := asked)


def _carry(line, transport, damage, clock):
    """Over a line on which both may send: the device runs while there is something for it, or the host waits."""
    answered = 0
    while True:
        asked = clock.asked
        sent = select.select([line], [], [], 0.001)[0]
        if sent:
            data = line.recv(4096)
            if not data:
                return
            transport.write(damage(data, "request"))
        elif asked == answered:
            continue
        reply = transport.read(4096, 0.002)
        if reply:
            line.sendall(damage(reply, "reply"))
        elif not sent:
            clock.tick()
        if not sent:
            clock.answer(answered := asked)


def perceptron(config=TINY, **options):
    return compile_graph(compiled_nets.perceptron(22, 9, 3), config, **options).package


def samples_of(package, count, seed=1):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(count, *shape)).astype(np.float32) for name, shape in package.input_shapes.items()}


def of_driver(package, inputs):
    with connect("emulator", package.config) as device:
        device.load(package.image)
        return package.run(device, inputs)


def same(run, want):
    assert run.code == 0, run.text
    assert set(run.outputs) == set(want)
    for name, values in want.items():
        found = run.outputs[name].reshape(values.shape)
        assert np.array_equal(found.view(np.uint32), values.astype(np.float32).view(np.uint32)), name


def compared(package, folder, transport, count=4, **options):
    """Run a host on samples, and compare with the driver."""
    made = write_host(package.image, package, folder)
    build(folder)
    inputs = samples_of(package, count)
    made_run = run(made, folder, inputs, transport, **options)
    same(made_run, of_driver(package, inputs))
    return made_run
