"""A Cortex-M4 that runs a program: the emulator Unicorn, and files for it by Arm's semihosting.

It has the memories that the segments of an ELF file need. Flash memory cannot be written, RAM cannot be executed, and
whatever is elsewhere is an error.
"""

import struct
import sys
from pathlib import Path

from unicorn import UC_ARCH_ARM, UC_HOOK_INTR, UC_MODE_MCLASS, UC_MODE_THUMB, Uc, UcError
from unicorn.arm_const import UC_ARM_REG_PC, UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_SP, UC_CPU_ARM_CORTEX_M4

PAGE = 4096
LOADED, WRITABLE = 1, 2
#: Exception of a breakpoint, and the breakpoint that asks for something.
BREAKPOINT, ASK = 7, b"\xab\xbe"
TO_WRITE = 5
WORD = 0xFFFFFFFF


def segments(image):
    """Address, bytes, size in memory and whether it is written, of what is loaded of an ELF file of 32 bits."""
    table, size, count = *struct.unpack_from("<I", image, 28), *struct.unpack_from("<HH", image, 42)
    for k in range(count):
        kind, offset, address, _, length, whole, flags = struct.unpack_from("<7I", image, table + k * size)
        if kind == LOADED:
            yield address, image[offset : offset + length], whole, bool(flags & WRITABLE)


class Machine:
    """A processor with a program in its memories.

    Parameters
    ----------
    image : bytes
        An ELF file.
    words : list of str
        Of the command line.
    """

    def __init__(self, image, words):
        self.line = " ".join(words).encode() + b"\0"
        self.files, self.result, self.fault = [], None, ""
        self.core = Uc(UC_ARCH_ARM, UC_MODE_THUMB | UC_MODE_MCLASS)
        self.core.ctl_set_cpu_model(UC_CPU_ARM_CORTEX_M4)
        self.core.hook_add(UC_HOOK_INTR, self._exception)
        first, *rest = segments(image)
        for address, data, whole, writable in (first, *rest):
            self.core.mem_map(address, -(-whole // PAGE) * PAGE, 3 if writable else 5)
            self.core.mem_write(address, data)
        self.stack, self.entry = struct.unpack_from("<II", first[1])
        self.calls = {
            0x01: self._open,
            0x02: self._close,
            0x04: self._write_text,
            0x05: self._write,
            0x06: self._read,
            0x15: self._command_line,
            0x20: self._exit,
        }

    def run(self):
        """What ``main`` returns; ``UcError`` or ``ValueError`` where the program does what ends in an exception."""
        self.core.reg_write(UC_ARM_REG_SP, self.stack)
        self.core.emu_start(self.entry, 0)
        if self.result is None:
            raise ValueError(self.fault or "the program must end by itself")
        return self.result

    def _exception(self, core, number, _):
        at = core.reg_read(UC_ARM_REG_PC)
        if number != BREAKPOINT or core.mem_read(at, 2) != ASK:
            self.fault = f"exceptions must be breakpoints that ask for something, not number {number}"
            core.emu_stop()
            return
        call = self.calls[core.reg_read(UC_ARM_REG_R0)]
        core.reg_write(UC_ARM_REG_R0, call(core.reg_read(UC_ARM_REG_R1)) & WORD)
        core.reg_write(UC_ARM_REG_PC, at + len(ASK) | 1)

    def _arguments(self, at, count):
        return struct.unpack(f"<{count}I", self.core.mem_read(at, 4 * count))

    def _open(self, at):
        name, mode, length = self._arguments(at, 3)
        path = Path(self.core.mem_read(name, length).decode())
        self.files.append(path.open("wb" if mode == TO_WRITE else "rb"))
        return len(self.files)

    def _close(self, at):
        self.files[self._arguments(at, 1)[0] - 1].close()
        return 0

    def _write_text(self, at):
        while byte := self.core.mem_read(at, 1)[0]:
            sys.stderr.write(chr(byte))
            at += 1
        return 0

    def _write(self, at):
        file, source, size = self._arguments(at, 3)
        self.files[file - 1].write(self.core.mem_read(source, size))
        return 0

    def _read(self, at):
        file, target, size = self._arguments(at, 3)
        data = self.files[file - 1].read(size)
        self.core.mem_write(target, data)
        return size - len(data)

    def _command_line(self, at):
        target, size = self._arguments(at, 2)
        self.core.mem_write(target, self.line[:size])
        return 0

    def _exit(self, at):
        self.result = self._arguments(at, 2)[1]
        self.core.emu_stop()
        return 0


def main(words):
    """The exit code of a program: the path of its image, what it was called like, and its arguments."""
    image = Path(words[0])
    try:
        return Machine(image.read_bytes(), words[1:]).run()
    except (UcError, ValueError) as error:
        print(f"{image.name}: {error}", file=sys.stderr)
        return 255


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
