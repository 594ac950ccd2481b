"""The transfer tables of a network: P sites share T <= P stored tables [transfer-lut], in one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from concord.functions import ExactFunction
from concord.golden.codes import Codes
from concord.image.container import Arrays, FileKind, digest, read_file, write_file
from concord.transfer.operators import PointwiseOperator
from concord.transfer.records import operator_of, operator_record, target_of, target_record
from concord.transfer.table import Entries, TransferTable, compute
from concord.transfer.targets import TableTarget


class TransferError(ValueError):
    """A file of transfer tables that cannot be used, and why."""


_KIND = FileKind("transfer tables", "a file of transfer tables", 1, TransferError)


@dataclass(frozen=True)
class Site:
    """A place between two layers: what is computed there, and which stored table does it."""

    source: Codes
    operators: tuple[PointwiseOperator, ...]
    target: TableTarget
    table: int

    def record(self) -> dict[str, Any]:
        """The table as data that JSON can hold."""
        return {
            "source": target_record(self.source),
            "operators": [operator_record(operator) for operator in self.operators],
            "target": target_record(self.target),
            "table": self.table,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Site:
        """The site of a record."""
        source, table = target_of(record["source"]), record["table"]
        if not isinstance(source, Codes):
            raise ValueError(f"source must be codes, not {source!r}")
        if not isinstance(table, int):
            raise ValueError(f"table must be a number, not {table!r}")
        return cls(source, tuple(map(operator_of, record["operators"])), target_of(record["target"]), table)


@dataclass(frozen=True)
class Sharing:
    """Effect of sharing: ``tables`` for ``sites``, in ``nbytes`` instead of ``unshared``, and who uses each table."""

    sites: int
    tables: int
    nbytes: int
    unshared: int
    users: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"{self.sites} sites, {self.tables} tables, {self.nbytes} bytes ({self.unshared} without sharing)"


class TransferSet:
    """Tables by site, equal ones stored once.

    Tables are equal if they have the same entries, of the same width, for the same range of codes. Operators and steps
    may differ, and often do: the table of ReLU between equal schemes does not depend on the step.

    Members
    -------
    sites : dict of str to Site
        In the order of addition.
    stored : list of (int, array)
        Least code and entries of every stored table.
    """

    def __init__(self) -> None:
        self.sites: dict[str, Site] = {}
        self.stored: list[tuple[int, Entries]] = []
        self._numbers: dict[tuple[int, str, bytes], int] = {}

    def add(self, name: str, table: TransferTable) -> int:
        """Add a site and return the number of its stored table; ``ValueError`` if there is a site of this name."""
        if name in self.sites:
            raise ValueError(f"name must be new, not that of the site {name!r}")
        number = self._store(table.source.low, table.entries)
        self.sites[name] = Site(table.source, table.operators, table.target, number)
        return number

    def _store(self, low: int, entries: Entries) -> int:
        key = (low, entries.dtype.str, entries.tobytes())
        number = self._numbers.setdefault(key, len(self.stored))
        if number == len(self.stored):
            self.stored.append((low, entries))
        return number

    def table(self, name: str) -> TransferTable:
        """The table of a site."""
        if name not in self.sites:
            raise ValueError(f"name must be one of {list(self.sites)}, not {name!r}")
        site = self.sites[name]
        return TransferTable(site.source, site.operators, site.target, self.stored[site.table][1])

    def apply(self, name: str, codes: ArrayLike) -> Entries:
        """Look codes up at a site."""
        return self.table(name).apply(codes)

    def report(self) -> Sharing:
        """Numbers of sites and tables, bytes of entries, and the sites of each table."""
        users = [tuple(n for n, site in self.sites.items() if site.table == k) for k in range(len(self.stored))]
        sizes = [entries.nbytes for _, entries in self.stored]
        unshared = sum(sizes[site.table] for site in self.sites.values())
        return Sharing(len(self.sites), len(self.stored), sum(sizes), unshared, tuple(users))

    def check(self, functions: Mapping[str, ExactFunction] | None = None, *, always_exact: bool = False) -> None:
        """Compute the table of every site again and compare; :class:`TransferError` names the first that differs.

        Parameters
        ----------
        functions : mapping of str to callable
            The caller's functions of tables that were read from a file, by label.
        always_exact : bool
            As of :func:`transfer_table`.
        """
        known = functions or {}
        for name, site in self.sites.items():
            operators = [replace(op, custom_function=known.get(op.name, op.custom_function)) for op in site.operators]
            want = compute(site.source, operators, site.target, always_exact=always_exact)
            got = self.stored[site.table][1]
            wrong = np.flatnonzero(want != got)
            if wrong.size:
                k = int(wrong[0])
                raise TransferError(
                    f"the entry of site {name!r} for code {site.source.low + k} must be {want[k]}, not {got[k]} "
                    f"({wrong.size} of {want.size} entries differ)"
                )

    def _contents(self) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of a file."""
        header = {
            "low": [low for low, _ in self.stored],
            "sites": [{"name": name, **site.record()} for name, site in self.sites.items()],
        }
        return header, {f"table_{k}": entries for k, (_, entries) in enumerate(self.stored)}

    @property
    def digest(self) -> str:
        """A SHA-256 of sites and tables: what belongs to these tables and no others can keep it."""
        return digest(*self._contents())

    def save(self, path: str | Path) -> None:
        """Write the tables to a file (:mod:`concord.image.container`); the same tables give the same bytes."""
        write_file(path, *self._contents(), _KIND)

    @classmethod
    def load(cls, path: str | Path, data: bytes | None = None) -> TransferSet:
        """Read tables; :class:`TransferError` if the file is damaged, or does not hold together.

        ``data`` are its contents, if they have been read.
        """
        header, arrays = read_file(path, _KIND, data)
        tables = cls()
        try:
            tables._fill(header, arrays)
        except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
            raise TransferError(f"{path} has contents that are not valid here: {error!r}") from error
        return tables

    def _fill(self, header: Mapping[str, Any], arrays: Mapping[str, Entries]) -> None:
        if set(arrays) != {f"table_{k}" for k in range(len(header["low"]))}:
            raise ValueError(f"arrays must be one for each of {len(header['low'])} tables, not {sorted(arrays)}")
        for k, low in enumerate(header["low"]):
            if self._store(low, arrays[f"table_{k}"]) != k:
                raise ValueError(f"table {k} must differ from the tables before it")
        for record in header["sites"]:
            site = Site.of(record)
            low, entries = self.stored[site.table]
            table = TransferTable(site.source, site.operators, site.target, entries)
            if low != site.source.low or table.entries.dtype != entries.dtype:
                raise ValueError(f"table {site.table} must have the codes and the width of site {record['name']!r}")
            if self.add(record["name"], table) != site.table:
                raise ValueError(f"table of site {record['name']!r} must be in 0..{len(self.stored) - 1}")
        unused = set(range(len(self.stored))) - {site.table for site in self.sites.values()}
        if unused:
            raise ValueError(f"tables must have sites: {sorted(unused)} have none")
