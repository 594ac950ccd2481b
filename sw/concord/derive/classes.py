"""Executions that are one operation: all windows of an image in several chains, all iterations of a recurrence.

Instances that do the same with other vectors form a class: the same layer, operations, weights and sizes. A class whose
members do not depend on each other, not even through others, is one operation with one more axis. Classes that depend
on each other in a circle are a recurrence if all of them have one member per iteration, and read nothing but what the
same iteration or the one before has made, always in the same place; then they become a loop. That is found from the
flow of data alone: it does not matter whether the program has its iterations in a hardware loop, written out, or the
first and the last one apart. Where there is no such structure, members are taken apart, by address first, then one by
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from concord.derive.flow import OUTSIDE, Flow, Instance, SourceKind, constant
from concord.derive.ir import LOWEST, ZERO
from concord.derive.lanes import LaneAnalysis, LaneFacts, common, regular
from concord.utils.arrays import Ids


@dataclass(eq=False)
class Class:
    """Instances that are one operation.

    Parameters
    ----------
    members : list of Instance
        In the order of execution.
    level : int
        Number of times that it was taken apart.
    wide, narrow : LaneFacts
        What holds for the lanes of all members; only lanes at the end of a vector are left out.
    lanes : LaneFacts
        The same of the value with all lanes that could be left out.
    """

    members: list[Instance]
    level: int
    wide: LaneFacts
    narrow: LaneFacts | None
    lanes: LaneFacts

    @property
    def representative(self) -> Instance:
        """A member, for what all have in common."""
        return self.members[0]

    @property
    def outside(self) -> int:
        """The pattern of what lies outside of an image."""
        return LOWEST if self.representative.kind in (SourceKind.MAXIMUM, SourceKind.REDUCE) else ZERO

    def operands(self) -> list[list[Ids]]:
        """Vectors of all members by operand, the source first, the matrix last."""
        return [list(vectors) for vectors in zip(*(member.reads() for member in self.members), strict=True)]


@dataclass(eq=False)
class Group:
    """Classes in a circle, or one class."""

    classes: list[Class]
    recurrent: bool = False


@dataclass(eq=False)
class Grouping:
    """All classes of a flow, in an order in which they can be computed.

    Parameters
    ----------
    groups : list of Group
    elements : Ids
        As in the flow, elements replaced by those that they are equal to.
    owner : dict
        The class of an instance by its number, and which member it is.
    """

    groups: list[Group]
    elements: Ids
    owner: dict[int, tuple[Class, int]] = field(default_factory=dict)


def group(flow: Flow, analysis: LaneAnalysis, constants: bool) -> Grouping:
    """Find classes and recurrences; ``constants`` as for :func:`concord.derive.lanes.regular`."""
    return _Grouper(flow, analysis, constants).go()


class _Grouper:
    """Takes classes apart until every circle is a recurrence."""

    def __init__(self, flow: Flow, analysis: LaneAnalysis, constants: bool):
        self.flow, self.analysis, self.constants = flow, analysis, constants
        self.maker = np.full(len(flow.elements), -1, dtype=np.int64)
        for instance in flow.instances:
            if instance.computes:
                self.maker[instance.wide.ravel()] = instance.number
            if instance.narrow is not None:
                self.maker[instance.narrow.ravel()] = instance.number
        self.sources = [self._sources(instance) for instance in flow.instances]

    def _sources(self, instance: Instance) -> list[int]:
        read = np.unique(np.concatenate([vectors.ravel() for vectors in instance.reads()]))
        return [int(n) for n in np.unique(self.maker[read[read != OUTSIDE]]) if n >= 0]

    def go(self) -> Grouping:
        classes = self._split(self.flow.instances, 0)
        while True:
            owner = {m.number: (c, k) for c in classes for k, m in enumerate(c.members)}
            elements = self._elements(classes)
            groups = self._circles(classes, owner)
            failed = [
                g for g in groups if g.recurrent and not _uniform(g.classes, owner, self.maker, elements, self.flow)
            ]
            if not failed:
                return Grouping(groups, elements, owner)
            apart = {c for g in failed for c in g.classes}
            classes = [c for c in classes if c not in apart]
            for chain_class in sorted(apart, key=lambda c: c.representative.number):
                classes += self._split(chain_class.members, chain_class.level + 1)

    def _split(self, members: Iterable[Instance], level: int) -> list[Class]:
        by_signature: dict[tuple[object, ...], list[Instance]] = {}
        for member in members:
            by_signature.setdefault(_signature(member, level), []).append(member)
        return [self._make(some, level) for some in by_signature.values()]

    def _make(self, members: list[Instance], level: int) -> Class:
        native, constants = self.flow.config.native, self.constants or members[0].pc < 0
        lanes = common([self.analysis.wide[m.number] for m in members])
        narrow = [block for m in members if (block := self.analysis.narrow[m.number]) is not None]
        wide = regular(lanes, native, constants)
        return Class(members, level, wide, regular(common(narrow), native, constants) if narrow else None, lanes)

    def _elements(self, classes: list[Class]) -> Ids:
        elements, native = self.flow.elements.copy(), self.flow.config.native
        for chain_class in classes:
            for member in chain_class.members:
                if member.computes:
                    elements[member.wide.ravel()] = chain_class.wide.eids(member.wide, native)
                if member.narrow is not None and chain_class.narrow is not None:
                    elements[member.narrow.ravel()] = chain_class.narrow.eids(member.narrow, native)
        return elements

    def _circles(self, classes: list[Class], owner: dict[int, tuple[Class, int]]) -> list[Group]:
        """Strongly connected components, each after those it depends on."""
        before = {
            chain_class: list(
                dict.fromkeys(owner[n][0] for member in chain_class.members for n in self.sources[member.number])
            )
            for chain_class in classes
        }
        order = sorted(classes, key=lambda c: c.representative.number)
        return [
            Group(
                sorted(component, key=lambda c: c.representative.number),
                len(component) > 1 or component[0] in before[component[0]],
            )
            for component in components(order, before)
        ]


def _signature(instance: Instance, level: int) -> tuple[object, ...]:
    """Key that members of a class have in common."""
    mfu_ops = tuple((mfu_op.op, mfu_op.table, mfu_op.operand is None) for mfu_op in instance.mfu_ops)
    key: tuple[object, ...] = (
        instance.layer,
        instance.where,
        instance.mem,
        instance.kind,
        instance.shape[1:],
        instance.taps,
        instance.weight_key,
        mfu_ops,
        instance.narrow is None,
        instance.quant,
        instance.form,
    )
    key += (instance.computes, instance.noise is None)
    if level >= 1:
        key += (instance.pc, instance.shape)
    return (*key, instance.number) if level >= 2 else key


def components(nodes: Sequence[Class], before: dict[Class, list[Class]]) -> list[list[Class]]:
    """Strongly connected components in topological order (Tarjan, SIAM J. Comput. 1972), without recursion."""
    index: dict[Class, int] = {}
    low: dict[Class, int] = {}
    stack: list[Class] = []
    waiting: set[Class] = set()
    cycles: list[list[Class]] = []
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(before[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        waiting.add(root)
        while work:
            node, rest = work[-1]
            child = next(rest, None)
            if child is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    cycles.append(stack[at:])
                    waiting.difference_update(stack[at:])
                    del stack[at:]
            elif child not in index:
                index[child] = low[child] = len(index)
                stack.append(child)
                waiting.add(child)
                work.append((child, iter(before[child])))
            elif child in waiting:
                low[node] = min(low[node], index[child])
    return cycles


# Recurrences ---------------------------------------------------------------------------------------


def _uniform(classes: list[Class], owner: dict[int, tuple[Class, int]], maker: Ids, elements: Ids, flow: Flow) -> bool:
    """True if every iteration treats its own results, and those of the iteration before, as all others do."""
    iterations = len(classes[0].members)
    if iterations < 2 or any(
        len(chain_class.members) != iterations or len({m.shape for m in chain_class.members}) > 1
        for chain_class in classes
    ):
        return False
    if any(member.noise is not None for chain_class in classes for member in chain_class.members):
        return False
    places = LoopPlaces(classes, elements, flow)
    for chain_class in classes:
        for vectors in chain_class.operands():
            eids = [elements_of(vectors[iteration], elements, chain_class.outside) for iteration in range(iterations)]
            if not _regular([places.codes(some, iteration) for iteration, some in enumerate(eids)], eids[0]):
                return False
    return True


def _regular(codes: list[Ids], initial: Ids) -> bool:
    """True if iterations read equal places, and the first one reads something from outside for those of the one before.

    ``initial`` are the elements that the first iteration reads. What the second iteration reads in one place must be
    one element.
    """
    first, second, *others = codes
    if (second == FAR).any() or any((code != second).any() for code in others):
        return False
    same, before = (second >= 0) & (second & 1 == 0), (second >= 0) & (second & 1 == 1)
    if (first[same] != second[same]).any() or (first[~same] != ALIEN).any():
        return False
    _, place = np.unique(second[before], return_inverse=True)
    element = np.zeros(place.size, np.int64)
    element[place.reshape(-1)] = initial[before]
    return bool((element[place.reshape(-1)] == initial[before]).all())


def elements_of(vectors: Ids, elements: Ids, outside: int = ZERO) -> Ids:
    """Elements ``[..., N]`` of vectors; what lies outside of an image is a constant."""
    there = vectors != OUTSIDE
    beyond = constant(np.array([outside], np.uint16))
    return np.asarray(np.where(there[..., None], elements[np.where(there, vectors, 0)], beyond))


#: Codes of elements that no iteration of a loop has made, and of those that one far away has made.
ALIEN, FAR = -1, -2


class LoopPlaces:
    """Places of elements within a loop: even codes for the same iteration, odd ones for the iteration before.

    ``code >> 1`` is a place: the class, whether it is of the value or of its conversion, position and lane.
    """

    def __init__(self, classes: list[Class], elements: Ids, flow: Flow):
        self.native = flow.config.native
        self.iteration = np.full(len(elements), -1, dtype=np.int64)
        self.place = np.full(len(elements), -1, dtype=np.int64)
        self.bases: list[tuple[int, Class, bool]] = []
        base = 0
        for chain_class in classes:
            for narrow in (False, True):
                if (narrow and chain_class.narrow is None) or (not narrow and not chain_class.representative.computes):
                    continue
                self.bases.append((base, chain_class, narrow))
                for iteration, member in enumerate(chain_class.members):
                    vectors = member.narrow if narrow else member.wide
                    assert vectors is not None
                    self.iteration[vectors.ravel()] = iteration
                    self.place[vectors.ravel()] = base + np.arange(vectors.size)
                base += chain_class.representative.positions * chain_class.representative.shape[2]

    def codes(self, eids: Ids, iteration: int) -> Ids:
        """Codes of elements that an iteration reads."""
        vector, lane = np.divmod(np.maximum(eids, 0), self.native)
        back = iteration - self.iteration[vector]
        code = 2 * (self.place[vector] * self.native + lane) + back
        code = np.where((back == 0) | (back == 1), code, FAR)
        return np.asarray(np.where((eids < 0) | (self.iteration[vector] < 0), ALIEN, code))

    def find(self, code: Ids) -> tuple[Class, bool, Ids]:
        """Class, conversion or not, and local element ``(position * rows + row) * N + lane`` of codes of one class."""
        place, lane = np.divmod(code >> 1, self.native)
        base, chain_class, narrow = max((b for b in self.bases if b[0] <= place.min()), key=lambda b: b[0])
        return chain_class, narrow, (place - base) * self.native + lane
