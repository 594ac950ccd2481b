"""The sums of a machine in Python integers, step by step, on the reference machine."""

from itertools import accumulate

import numpy as np

from concord.emulator import ReferenceMachine
from concord.image import Memories
from concord.spec.memmap import RegionId
from concord.sums.histogram import Histogram, SumStage


class CountingMachine(ReferenceMachine):
    """Lists every value that a product makes; ``order`` may change the order of the steps."""

    def __init__(self, memories, order=None):
        super().__init__(memories)
        self.values = {stage: [] for stage in SumStage}
        self._order = order or (lambda steps: steps)

    def _dense(self, index, inside, matrix, row):
        config = self.config
        mant, exp = self._blocks(index, inside)
        group, engine = divmod(row, config.engines)
        for n in range(config.native):
            steps = []
            for tap in range(mant.shape[0]):
                for col in range(mant.shape[1]):
                    for part in range(config.steps):
                        word, line = int(matrix[group, tap, col, part]), engine * config.native + n
                        lanes = range(config.lanes)
                        x = [int(mant[tap, col, part * config.lanes + k]) for k in lanes]
                        w = [int(self.memories.matrix_mant[word, line, k]) for k in lanes]
                        shift = int(exp[tap, col]) + int(self.memories.matrix_exp[word, line]) + config.acc_frac
                        steps.append(([a * b for a, b in zip(x, w, strict=True)], shift))
            self._sum(steps)
        return super()._dense(index, inside, matrix, row)

    def _depthwise(self, index, inside, words, word_of, lane_of):
        config = self.config
        mant, exp = self._blocks(index, inside)
        for n in range(config.native):
            steps = []
            for tap in range(mant.shape[0]):
                word, lane = int(words[word_of[tap]]), lane_of[tap]
                weight = int(self.memories.matrix_mant[word, n, lane])
                shift = int(exp[tap, 0]) + int(self.memories.matrix_exp[word, n]) + config.acc_frac
                steps.append(([int(mant[tap, 0, n]) * weight], shift))
            self._sum(steps)
        return super()._depthwise(index, inside, words, word_of, lane_of)

    def _sum(self, steps):
        total = 0
        for products, shift in self._order(steps):
            self.values[SumStage.PRODUCT] += products
            sums = self._lanes(products)
            self.values[SumStage.LANE_SUM] += sums
            term = (sums or products)[-1] << shift
            total += term
            self.values[SumStage.TERM].append(term)
            self.values[SumStage.SUM].append(total)
        self.values[SumStage.OUTPUT].append(total)

    def _lanes(self, products):
        """Sums over the lanes, the last one over all: a tree, or one after the other."""
        if self.config.serial:
            return list(accumulate(products))[1:]
        found, level = [], products
        while len(level) > 1:
            level = [level[k] + level[k + 1] for k in range(0, len(level), 2)]
            found += level
        return found


def counted(package, inputs, order=None):
    """Histograms of all stages together, for some samples."""
    image, found = package.image, {stage: Histogram() for stage in SumStage}
    ports = package.arrangement.pack(inputs)
    for run in range(len(next(iter(ports.values())))):
        memories = Memories(image.config)
        memories.write(RegionId.PROGRAM, 0, image.program)
        for segment in image.segments:
            memories.write(segment.region, segment.start, segment.words())
        words = {port.name: port.encode(ports[port.name][run], image.config) for port in image.inputs}
        machine = CountingMachine(memories, order)
        for phase in image.schedule():
            for part in phase.inputs:
                region = image.port(part.port).region
                memories.write(region, part.address, words[part.port][part.first : part.first + part.count])
            machine.run(phase.pc)
        for stage, values in machine.values.items():
            found[stage].count(as_objects(values))
    return found


def as_objects(values):
    """Python integers as an array."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
