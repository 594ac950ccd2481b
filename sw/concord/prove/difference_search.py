"""The first chain that writes other words on one of two devices: chains are executed alone, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from concord.host.device import Device
from concord.image import Image, Memories
from concord.program import Address, Chain, trace
from concord.program.access import REGIONS
from concord.program.assembler import disassemble
from concord.program.chains import MemoryCopy, WeightCopy
from concord.prove.device_state import Sample, clear, lanes_of, run, show
from concord.prove.facts import Difference
from concord.spec import isa
from concord.spec.isa import INITIAL, Mem, Op
from concord.spec.memmap import RegionId
from concord.spec.operations import INTEGER_STATE_OPS

LayerOf = Callable[[int], str]


def chain_text(image: Image, pc: int) -> tuple[str, ...]:
    """The instructions of the chain at an address."""
    end = pc
    while not isa.decode(image.program[end])[1].get("last"):
        end += 1
    return tuple(line.strip() for line in disassemble(image.program[pc : end + 1]).splitlines())


def single_chain_program(chain: Chain) -> list[int]:
    """A program that sets the state of one chain, executes it and ends."""
    state = {
        Op.SET_SHAPE: {"rows": chain.rows, "cols": chain.fresh or chain.cols},
        Op.SET_ITERS: {"inner": chain.inner, "outer": chain.outer},
        Op.SET_WINDOW: vars(chain.window),
        Op.SET_PAD: vars(chain.pad),
        Op.SET_QUANT: {name: int(value) for name, value in vars(chain.quant).items()},
        **({} if chain.scale is None else {Op.SET_SCALE: {"shift": chain.scale.shift}}),
    }
    assert state.keys() | {Op.SET_SCALE, *INTEGER_STATE_OPS} == INITIAL.keys()
    words = [isa.encode(op, **values) for op, values in state.items()]
    words.append(isa.encode(Op.V_RD, mem=int(chain.mem), **_fields(chain.source)))
    if chain.reduce is Op.MV_MUL:
        words.append(isa.encode(Op.MV_MUL, mode=int(chain.mode), matrix=chain.matrix, sliding=int(chain.sliding)))
        if chain.scale is not None:
            words.append(isa.encode(Op.VV_SCALE, **_fields(chain.scale.operand)))
    elif chain.reduce is not None:
        words.append(isa.encode(chain.reduce))
    for mfu_op in chain.mfu_ops:
        fields = {} if mfu_op.operand is None else _fields(mfu_op.operand)
        if mfu_op.table is not None:
            fields["table"] = mfu_op.table
        words.append(isa.encode(mfu_op.op, unit=isa.FORMS[mfu_op.op].stages.index(mfu_op.stage), **fields))
    writes: list[tuple[Op, dict[str, int]]] = [
        (Op.V_WR, {"mem": int(destination.mem), **_fields(destination.address)}) for destination in chain.destinations
    ]
    if chain.into_matrix is not None:
        steps = _fields(chain.into_matrix.rows)
        words.insert(len(state), isa.encode(Op.SET_ADDR, reg=1, value=steps.pop("addr") % (1 << isa.MATRIX_ADDR_BITS)))
        writes.append((Op.M_WR, {"matrix": chain.into_matrix.matrix, "reg": 1, **steps}))
    for number, (op, fields) in enumerate(writes, 1):
        words.append(isa.encode(op, last=int(number == len(writes)), **fields))
    return [*words, isa.encode(Op.HALT)]


def copy_program(copy: MemoryCopy) -> list[int]:
    """A program that executes one copy between memories, and waits for its end."""
    if isinstance(copy, WeightCopy):
        word = isa.encode(Op.COPY, dram=copy.column // isa.COPY_UNIT, matrix=copy.matrix, rows=copy.rows)
    else:
        own = {"mem": int(copy.mem), "addr": copy.address, "count": copy.count, "out": int(copy.out)}
        word = isa.encode(Op.V_COPY, dram=copy.column // isa.VECTOR_UNIT, **own)
    return [word, isa.encode(Op.HALT)]


def _fields(address: Address) -> dict[str, int]:
    return {"addr": address.base, "row": address.row, "inner": address.inner, "outer": address.outer}


@dataclass(frozen=True)
class _Place:
    """A word that differs."""

    mem: Mem
    address: int
    vector: int
    words: tuple[int, int]


class DifferenceSearch:
    """Narrows a difference between two devices of one configuration down.

    Parameters
    ----------
    emulator, device : Device
        Both have the image loaded; they have it again afterwards.
    image : Image
    layer_of : callable
        Name of the layer by address.
    """

    def __init__(self, emulator: Device, device: Device, image: Image, layer_of: LayerOf):
        self.devices, self.image, self.config, self.layer_of = (emulator, device), image, image.config, layer_of
        self.program = Memories.of(image).program.tolist()

    def first(self, sample: Sample, number: int) -> Difference | None:
        """The first word that differs when every chain runs alone; else the first chain after which memories do.

        ``sample`` is that with the ``number``; ``None`` if nothing differs in either way.
        """
        try:
            return self._one_by_one(sample, number) or self._cut_short(sample, number)
        finally:
            for device in self.devices:
                device.write(RegionId.PROGRAM, 0, self.program)

    # Chains alone ------------------------------------------------------------------------------

    def _one_by_one(self, sample: Sample, number: int) -> Difference | None:
        ports = {port.name: port for port in self.image.inputs}
        encoded = {name: port.encode(sample[name], self.config) for name, port in ports.items()}
        for device in self.devices:
            clear(device, self.image)
        execution = 0
        for phase in self.image.schedule():
            for part in phase.inputs:
                words = encoded[part.port][part.first : part.first + part.count]
                for device in self.devices:
                    device.write(ports[part.port].region, part.address, words)
            run = trace(self.program, self.config, phase.pc)
            run.refuse_integers("be searched for the chain that differs")
            for item in run.items:
                if isinstance(item, MemoryCopy):
                    self._execute(copy_program(item))
                if not isinstance(item, Chain):
                    continue
                self._execute(single_chain_program(item))
                place = self._different(item)
                if place is not None:
                    return self._difference(place, item.pc, execution, number)
                execution += 1
        return None

    def _execute(self, program: list[int]) -> None:
        """Run a program on both devices."""
        for device in self.devices:
            device.write(RegionId.PROGRAM, 0, program)
            device.start()
            device.wait()

    def _different(self, chain: Chain) -> _Place | None:
        """The first vector of a chain that is not the same on both devices."""
        for destination in chain.destinations:
            addresses = chain.addresses(destination.address).ravel()
            low, count = int(addresses.min()), int(np.ptp(addresses)) + 1
            emulated, computed = (device.read(REGIONS[destination.mem], low, count) for device in self.devices)
            for vector, address in enumerate(addresses.tolist()):
                if emulated[address - low] != computed[address - low]:
                    return _Place(destination.mem, address, vector, (emulated[address - low], computed[address - low]))
        return None

    def _difference(self, place: _Place, pc: int, execution: int, sample: int, note: str = "") -> Difference:
        (emulated, exponent), (computed, device_exponent) = (
            lanes_of(self.config, place.mem, word) for word in place.words
        )
        lanes = np.flatnonzero(emulated != computed)
        lane = int(lanes[0]) if len(lanes) else 0  # the same numbers, another exponent
        return Difference(
            layer=self.layer_of(pc),
            place=f"{place.mem.name.lower()}[{place.address}]",
            element=(lane,),
            sample=sample,
            emulator=show(emulated[lane], exponent),
            other=show(computed[lane], device_exponent),
            pc=pc,
            instructions=chain_text(self.image, pc),
            execution=execution,
            vector=place.vector,
            note=note,
        )

    # The program cut short ---------------------------------------------------------------------

    def _cut_short(self, sample: Sample, number: int) -> Difference | None:
        """The chain after whose first execution memories differ first: programs that stop there, by halving."""
        executed = [
            chain for phase in self.image.schedule() for chain in trace(self.program, self.config, phase.pc).chains
        ]
        firsts = list(dict.fromkeys(chain.pc for chain in executed))
        low, high, first = 0, len(firsts), None  # cut in front of firsts[low] nothing differs
        while low + 1 < high:
            middle = (low + high) // 2
            place = self._behind_cut(sample, firsts[middle])
            if place is None:
                low = middle
            else:
                high, first = middle, place
        if first is None:
            first = self._behind_cut(sample, None)
            if first is None:
                return None
        pc = firsts[low]
        note = "chains that run alone give the same, so it is how they follow each other"
        execution = next(k for k, chain in enumerate(executed) if chain.pc == pc)
        return self._difference(first, pc, execution, number, note)

    def _behind_cut(self, sample: Sample, pc: int | None) -> _Place | None:
        """A word that differs after a run that stops at an address, or at its end."""
        program = self.program.copy()
        if pc is not None:
            program[pc] = isa.encode(Op.HALT)
        for device in self.devices:
            device.write(RegionId.PROGRAM, 0, program)
        emulated, computed = (run(device, self.image, sample) for device in self.devices)
        for mem in REGIONS:
            for address, words in enumerate(zip(emulated.memories[mem], computed.memories[mem], strict=True)):
                if words[0] != words[1]:
                    return _Place(mem, address, 0, words)
        return None
