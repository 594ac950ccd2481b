"""The living definition of integer chains: vector by vector and element by element, with integers of Python.

:mod:`concord.emulator.integers` is fast and must agree with it in every bit.
"""

from __future__ import annotations

from itertools import product

from concord.emulator.integer_machine import IntegerMachine
from concord.golden.integers import IntegerRangeError, moved
from concord.golden.tensor_registers import TensorRegisters
from concord.image import Memories
from concord.program.access import broken_chain_rules
from concord.program.chains import MATRIX_MASK, VECTOR_MASK, Address
from concord.program.integers import IntegerChain, TensorStep
from concord.spec.integers import DIGIT_BITS, DIGIT_HALF, SUM_BITS, WIDE_BITS, digit_span
from concord.spec.isa import ACCUMULATOR_POINT, Mem
from concord.spec.operations import IntegerSource
from concord.spec.training import TRAIN_EXP_MAX, TRAIN_EXP_MIN
from concord.spec.widths import largest

#: Elements of one vector.
Vector = list[int]
#: Position of a vector: numbers of the outer, the inner and the row loop.
Place = tuple[int, int, int]

_ACCUMULATOR_MAX = (1 << 15) - 1
_WEIGHT_MAX = 127
_COUNT_MASK = (1 << 32) - 1


def _checked(value: int, limit: int) -> int:
    """The integer itself; :class:`IntegerRangeError` if it is beyond a limit."""
    if abs(value) > limit:
        raise IntegerRangeError(f"integers must have magnitudes of at most {limit}, not be {value}")
    return value


def _right(value: int, bits: int) -> int:
    """An integer less so many bits, halves away from zero; negative: more bits."""
    return moved(value, bits) if value >= 0 else -moved(-value, bits)


def _clipped(value: int, limit: int) -> int:
    return max(-limit, min(limit, value))


class ReferenceIntegers(IntegerMachine):
    """Tensor registers and integer chains of one NPU.

    Parameters
    ----------
    memories : Memories
        Of a configuration with integer chains; they are changed.
    """

    def __init__(self, memories: Memories):
        self.memories, self.config = memories, memories.config
        self.grown: list[bool] = []  #: for every update of the run, whether an exponent has grown
        self.start()

    def start(self) -> None:
        """A run begins: nothing is rounded, moved or updated yet."""
        memories = self.memories
        self.grown = []
        self.registers = TensorRegisters(
            memories.tensor_top, memories.tensor_exp, memories.factor_mant, memories.factor_exp
        )

    def step(self, step: TensorStep) -> None:
        """Execute a tensor step; :class:`IntegerRangeError` is the trap."""
        self.registers.step(step.op, **step.fields)

    def chain(self, chain: IntegerChain) -> None:
        """Execute an integer chain; the errors are those of :meth:`concord.emulator.integers.IntegerUnit.chain`."""
        for broken in broken_chain_rules(chain, self.config, self._accumulators(chain)):
            raise ValueError(f"an integer chain at pc {chain.pc} {broken.message}")
        places: list[Place] = list(product(range(chain.outer), range(chain.inner), range(chain.rows)))
        top, results = 0, list[Vector]()
        for place in places:
            vector, greatest = self._vector(chain, place)
            results.append(vector)
            top = max(top, greatest)
        if chain.steps.update:
            results = self._update(chain, places, results)
        for vector in results:
            self._check(chain, vector)
        for place, vector in zip(places, results, strict=True):
            self._write(chain, place, vector)
        if chain.steps.peak:
            self.registers.top[chain.steps.tensor] = max(top, int(self.registers.top[chain.steps.tensor]))

    def _accumulators(self, chain: IntegerChain) -> int:
        return self.registers.update[2] if chain.steps.update else 0

    # One vector --------------------------------------------------------------------------------

    def _vector(self, chain: IntegerChain, place: Place) -> tuple[Vector, int]:
        """A vector in front of its update or destinations, and the greatest magnitude that a peak sees."""
        steps, registers = chain.steps, self.registers
        source = self._source(chain, place)
        operand = self._operand(chain, place) if chain.with_operand else [0] * len(source)
        most, vector, top = largest(SUM_BITS), Vector(), 0
        for n, (value, other) in enumerate(zip(source, operand, strict=True)):
            if steps.scale:
                value = _checked(value * int(registers.mant[steps.factor]), most)
            if steps.round0:
                right, bits = registers.rounding[0]
                value = _clipped(_right(value, right), largest(bits))
            if steps.add:
                first, second = registers.moves
                value = _checked(_checked(_right(value, first), most) + _checked(_right(other, second), most), most)
            top = max(top, abs(value))
            if steps.round1:
                right, bits = registers.rounding[1]
                value = _clipped(_right(value, right), largest(bits))
            if (steps.relu and value < 0) or (steps.mask and other <= 0):
                value = 0
            if steps.valid and place[2] == chain.rows - 1 and n >= steps.valid:
                value = 0
            vector.append(value)
        return vector, top

    @staticmethod
    def _at(address: Address, place: Place) -> int:
        o, i, r = place
        return address.base + r * address.row + i * address.inner + o * address.outer

    def _narrow(self, address: int) -> Vector:
        return [int(value) for value in self.memories.narrow_mant[address & VECTOR_MASK]]

    def _wide(self, address: int) -> Vector:
        """Wide integers of two words, the low half of an element first."""
        first = address & VECTOR_MASK
        halves = [int(half) for word in self.memories.wide[first : first + 2] for half in word]
        elements = [low | high << 16 for low, high in zip(halves[::2], halves[1::2], strict=True)]
        return [element - (element >> WIDE_BITS - 1 << WIDE_BITS) for element in elements]

    def _operand(self, chain: IntegerChain, place: Place) -> Vector:
        address = self._at(chain.operand.address, place)
        return self._narrow(address) if chain.operand.mem is Mem.NARROW else self._wide(address)

    def _source(self, chain: IntegerChain, place: Place) -> Vector:
        address = self._at(chain.source, place)
        if chain.kind is IntegerSource.NARROW:
            return self._narrow(address)
        if chain.kind is IntegerSource.WIDE:
            return self._wide(address)
        return [_checked(value, largest(SUM_BITS)) for value in self._product(chain, place)]

    def _product(self, chain: IntegerChain, place: Place) -> Vector:
        """Sums over digits, taps and columns."""
        taps, window, total = chain.taps, chain.window, [0] * self.config.native
        for p, ky, kx, c in product(range(taps.digits), range(window.kh), range(window.kw), range(chain.cols)):
            if not self._inside(chain, place, ky, kx):
                continue
            vector = self._at(chain.source, place) + ky * window.stride_y + kx * window.stride_x + c * taps.vector
            tile = self._at(chain.tiles, place) + ((ky * window.kw + kx) * chain.cols + c) * taps.matrix
            if taps.of:
                tile += p * taps.matrix_digit
            else:
                vector += p * taps.vector_digit
            elements = self._narrow(vector)
            for n in range(self.config.native):
                row = self._tile_row(chain, tile, n)
                dot = sum(weight * element for weight, element in zip(row, elements, strict=True))
                total[n] += dot << DIGIT_BITS * p
        return total

    def _inside(self, chain: IntegerChain, place: Place, ky: int, kx: int) -> bool:
        pad, window = chain.pad, chain.window
        y = pad.y0 + place[0] * pad.step_y + ky * window.dil_y
        x = pad.x0 + place[1] * pad.step_x + kx * window.dil_x
        return pad.height == 0 or (0 <= y < pad.height and 0 <= x < pad.width)

    def _tile_row(self, chain: IntegerChain, tile: int, n: int) -> Vector:
        """Row n of a tile."""
        row = Vector()
        for h in range(self.config.steps):
            word = (tile + h) & MATRIX_MASK
            exp = int(self.memories.matrix_exp[word, n])
            if exp != self.config.wgt_exp_min:
                raise ValueError(
                    f"an integer chain at pc {chain.pc} must multiply tiles with the exponent "
                    f"{self.config.wgt_exp_min}, not {exp}"
                )
            row += [int(weight) for weight in self.memories.matrix_mant[word, n]]
        return row

    # Updates -----------------------------------------------------------------------------------

    def _update(self, chain: IntegerChain, places: list[Place], changes: list[Vector]) -> list[Vector]:
        """Update the weights of all vectors, which are one block; the new weights."""
        registers, memories = self.registers, self.memories
        z, x, distance, coarser = registers.update
        point = ACCUMULATOR_POINT - coarser
        e_z, e_x = int(registers.exp[z]), int(registers.exp[x])
        addresses = [self._at(chain.operand.address, place) & VECTOR_MASK for place in places]
        at = [(address + distance) & VECTOR_MASK for address in addresses]
        weights, rests, refused, vanished = list[Vector](), list[Vector](), 0, 0
        for address, other, change in zip(addresses, at, changes, strict=True):
            weights.append([])
            rests.append([])
            for weight, half, step in zip(self._narrow(address), memories.wide[other], change, strict=True):
                acc = int(half) - (int(half) >> 15 << 16)
                if abs(weight) > _WEIGHT_MAX or abs(acc) > _ACCUMULATOR_MAX:
                    raise IntegerRangeError(f"weights and accumulators must be in their ranges, not {weight}, {acc}")
                on_grid = _right(step, e_z - point - e_x)
                held = _clipped(acc + on_grid, _ACCUMULATOR_MAX)
                refused += held != acc + on_grid
                vanished += step != 0 and on_grid == 0
                carry = _right(held, point)
                weights[-1].append(weight + carry)
                rests[-1].append(held - (carry << point))
        grown = 0
        totals = [[(w << point) + a for w, a in zip(*pair, strict=True)] for pair in zip(weights, rests, strict=True)]
        while any(abs(weight) > _WEIGHT_MAX for vector in weights for weight in vector):
            grown += 1
            halved = [[_right(t, grown) for t in total] for total in totals]
            weights = [[_right(t, point) for t in total] for total in halved]
            rests = [
                [t - (w << point) for t, w in zip(*pair, strict=True)] for pair in zip(halved, weights, strict=True)
            ]
        for exp in (e_z, e_x, e_z + grown):
            if not TRAIN_EXP_MIN <= exp <= TRAIN_EXP_MAX:
                raise IntegerRangeError(f"exponents must be in {TRAIN_EXP_MIN}..{TRAIN_EXP_MAX}, not {exp}")
        self.grown.append(grown > 0)
        for address, other, vector, rest in zip(addresses, at, weights, rests, strict=True):
            memories.narrow_mant[address] = vector
            memories.narrow_exp[address] = 0
            memories.wide[other] = [value & 0xFFFF for value in rest]
        registers.exp[z] = e_z + grown
        registers.top[z] = max(abs(weight) for vector in weights for weight in vector)
        for k, count in enumerate((refused, vanished, int(grown > 0))):
            memories.updates[k] = int(memories.updates[k]) + count & _COUNT_MASK
        return weights

    # Destinations ------------------------------------------------------------------------------

    def _check(self, chain: IntegerChain, vector: Vector) -> None:
        """:class:`IntegerRangeError` if a destination cannot hold the integers."""
        steps = chain.steps
        wide = steps.to_vector and chain.destination.mem is Mem.WIDE
        digits = steps.to_column or steps.to_row or (steps.to_vector and not wide)
        low, high = digit_span(chain.planes.count)
        for value in vector:
            if wide or digits:
                _checked(value, largest(WIDE_BITS))
            if digits and not low <= value <= high:
                raise IntegerRangeError(f"integers must be in {low}..{high}, not {value}")

    def _digits(self, chain: IntegerChain, vector: Vector) -> list[Vector]:
        """Vectors of digits, the least ones first."""
        if chain.planes.count == 1:
            return [vector]
        planes, left = list[Vector](), vector
        for _ in range(chain.planes.count):
            planes.append([(value + DIGIT_HALF) % (2 * DIGIT_HALF) - DIGIT_HALF for value in left])
            left = [value - digit >> DIGIT_BITS for value, digit in zip(left, planes[-1], strict=True)]
        return planes

    def _put_wide(self, address: int, vector: Vector) -> None:
        """Wide integers to two words, the low half of an element first."""
        halves, native = [value >> shift & 0xFFFF for value in vector for shift in (0, 16)], self.config.native
        for k in range(2):
            self.memories.wide[(address & VECTOR_MASK) + k] = halves[k * native : (k + 1) * native]

    def _write(self, chain: IntegerChain, place: Place, vector: Vector) -> None:
        steps, memories, config, planes = chain.steps, self.memories, self.config, chain.planes
        address = self._at(chain.destination.address, place)
        narrow = steps.to_vector and chain.destination.mem is Mem.NARROW
        if steps.to_vector and not narrow:
            self._put_wide(address, vector)
        if not (steps.to_column or steps.to_row or narrow):
            return
        for p, digits in enumerate(self._digits(chain, vector)):
            if narrow:
                memories.narrow_mant[(address + p * planes.dst) & VECTOR_MASK] = digits
                memories.narrow_exp[(address + p * planes.dst) & VECTOR_MASK] = 0
            if steps.to_column:
                word, lane = divmod(self._at(chain.columns, place) + p * planes.col, config.lanes)
                for n, digit in enumerate(digits):
                    memories.matrix_mant[word, n, lane] = digit
                    stored = int(memories.matrix_exp[word, n]) - config.wgt_exp_min
                    memories.matrix_exp[word, n] = config.wgt_exp_min + (stored & ~(1 << lane))
        if steps.to_row:
            tile, row = divmod(self._at(chain.tile_rows, place), config.native)
            for k, element in enumerate(vector):
                word = tile * config.steps + k // config.lanes
                memories.matrix_mant[word, row, k % config.lanes] = element
                memories.matrix_exp[word, row] = config.wgt_exp_min
