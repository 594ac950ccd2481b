"""Reference tables, written into the pages under ``docs/`` between markers.

``python -m concord.spec.docs`` rewrites them, ``--check`` only says which pages are out of date. A table stands between
``<!-- table: name -->`` and ``<!-- end -->``; everything else on a page is written by hand.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from enum import IntEnum
from itertools import takewhile
from pathlib import Path

from concord.spec import feeder, isa, link
from concord.spec.builds import BUILDS, STALE
from concord.spec.compile_options import DEFAULTS, OPTIONS
from concord.spec.config import NpuConfig
from concord.spec.fields import Field, Layout
from concord.spec.formats import BLOCK_ROUNDINGS, ExponentMode, Flag
from concord.spec.memmap import REGISTERS, regions
from concord.spec.presets import ECP5_85F, PRESETS
from concord.spec.rules import ProgramRule

#: Pages with generated tables.
PAGES = ("boards.md", "compiler.md", "feeder.md", "isa.md", "memmap.md")
ROOT = Path(__file__).parents[3] / "docs"

_BLOCK = re.compile(r"(<!-- table: ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def comments(enum: type[IntEnum]) -> dict[str, str]:
    """The ``#:`` comments after the members of an enumeration, by name."""
    texts = re.findall(r"^\s*(\w+) = [^#\n]+#: (.+)$", inspect.getsource(enum), re.MULTILINE)
    return dict(texts)


def _enumeration(enum: type[IntEnum]) -> str:
    texts = comments(enum)
    return _table(("code", "name", "meaning"), [(int(m), f"`{m.name}`", texts.get(m.name, "")) for m in enum])


def _bits(at: int, field: Field) -> str:
    high = at + field.span - 1
    return str(at) if high == at else f"{high}:{at}"


def _range(field: Field, low: int | None = None, high: int | None = None) -> str:
    low, high = field.low if low is None else low, field.high if high is None else high
    text = f"{low} .. {high}"
    return text if field.count is None else f"{field.count} x {text}"


# Instructions ------------------------------------------------------------------------------------


def instructions() -> str:
    """Codes, stages and effect of all instructions."""
    rows = []
    for form in isa.INSTRUCTIONS:
        stages = ", ".join(f"`{stage.name}`" for stage in form.stages) or "control"
        rows.append((f"`{form.mnemonic}`", f"{int(form.op):#04x}", stages, form.doc))
    return _table(("instruction", "code", "stage", "effect"), rows)


def instruction_fields() -> str:
    """Bit positions of all fields."""
    rows = []
    for form in isa.INSTRUCTIONS:
        least, most = dict(form.least), dict(form.most)
        initial = isa.INITIAL.get(form.op, {})
        for at, field in form.layout.placed():
            if field.name in ("op", "reserved"):
                continue
            limits = _range(field, least.get(field.name), most.get(field.name))
            start = initial.get(field.name, "")
            rows.append((f"`{form.mnemonic}`", f"`{field.name}`", _bits(at, field), limits, start, field.doc))
    return _table(("instruction", "field", "bits", "values", "at the start of a run", "meaning"), rows)


def stages() -> str:
    """Stages of the chain pipe, in order."""
    rows = []
    for stage in isa.PipelineStage:
        names = [f"`{form.mnemonic}`" for form in isa.INSTRUCTIONS if stage in form.stages]
        units = {form.stages.index(stage) for form in isa.INSTRUCTIONS if stage in form.stages and len(form.stages) > 1}
        rows.append((int(stage), f"`{stage.name}`", ", ".join(map(str, units)), ", ".join(names)))
    return _table(("order", "stage", "`unit`", "instructions"), rows)


def encodings() -> str:
    """Names of field values."""
    uses: list[tuple[str, Iterable[IntEnum]]] = [
        ("`mem` of `v_rd`, `v_wr`, `i_opd`, `i_dst`", isa.Mem),
        ("`kind` of `i_src`", isa.IntegerSource),
        ("`mode` of `mv_mul`", isa.MvMode),
        ("`mode` of `set_quant`", ExponentMode),
        ("`rounding` of `set_quant`", BLOCK_ROUNDINGS),
    ]
    rows = [(use, ", ".join(f"{int(m)} = {m.name.lower()}" for m in enum)) for use, enum in uses]
    return _table(("field", "values"), rows)


def program_rules() -> str:
    """Rules of programs, those about the same kind of chains in a list."""
    lists: dict[str, list[str]] = {}
    for rule in ProgramRule:
        lists.setdefault(rule.of, []).append(f"* {rule.text}\n")
    return "\n".join(f"For {of}:\n\n{''.join(items)}" for of, items in lists.items())


# Memory map --------------------------------------------------------------------------------------


def _layout(layout: Layout) -> str:
    """Fields of a word in one cell."""
    cells = []
    for at, field in layout.placed():
        if field.name == "reserved":
            continue
        items = "" if field.count is None else f"[{field.count}]"
        kind = f"{'s' if field.signed else 'u'}{field.width}"
        cells.append(f"`{field.name}{items}` {kind} at {_bits(at, field)}")
    return ", ".join(cells)


def region_list() -> str:
    """Regions, those of the feeder and of integer chains among them: what they are."""
    kinds = {(True, True): "read, write", (True, False): "read", (False, True): "write"}
    rows = [
        (int(r.id), f"`{r.id.name}`", kinds[r.readable, r.writable], "yes" if r.live else "no", r.doc)
        for r in regions(ECP5_85F).values()
    ]
    return _table(("region", "name", "access", "while running", "content"), rows)


def region_words(config: NpuConfig) -> str:
    """Depths and words of one configuration."""
    rows = [(f"`{r.id.name}`", r.depth, r.word.width, r.nbytes, _layout(r.word)) for r in regions(config).values()]
    return _table(("region", "words", "bits", "bytes on the link", "word"), rows)


def script_fields() -> str:
    """Words of the feeder's script: where values stand in them."""
    rows = [
        (f"`{op.name}`", f"`{field.name}`", _bits(at, field), _range(field), field.doc)
        for op, layout in feeder.FEED_LAYOUTS.items()
        for at, field in layout.placed()
        if field.name not in ("op", "reserved")
    ]
    return _table(("word", "field", "bits", "values", "meaning"), rows)


def layout_loops() -> str:
    """The loops in the docstring of :mod:`concord.spec.feeder`, as a block of code."""
    lines = (feeder.__doc__ or "").partition("::\n\n")[2].splitlines()
    code = list(takewhile(lambda line: not line or line.startswith("    "), lines))
    return "```\n" + textwrap.dedent("\n".join(code)).strip() + "\n```\n"


def registers() -> str:
    """The register region."""
    rows = []
    for register in REGISTERS:
        access = "read, write" if register.writable else "read"
        rows.append((int(register.reg), f"`{register.reg.name}`", access, _layout(register.layout), register.doc))
    return _table(("address", "register", "access", "fields", "meaning"), rows)


def register_fields() -> str:
    """Meaning of the fields of registers that have several."""
    rows = []
    for register in REGISTERS:
        for at, field in register.layout.placed():
            if field.doc:
                rows.append((f"`{register.reg.name}`", f"`{field.name}`", _bits(at, field), field.doc))
    return _table(("register", "field", "bits", "meaning"), rows)


def parameters() -> str:
    """The presets side by side."""
    names = [field.name for field in fields(NpuConfig) if field.name != "name"]
    rows: list[list[object]] = [[f"`{name}`", *(getattr(c, name) for c in PRESETS.values())] for name in names]
    rows.append(["fingerprint", *(f"`{c.fingerprint:016x}`" for c in PRESETS.values())])
    rows.append(["multiply-accumulates per cycle", *(c.macs for c in PRESETS.values())])
    rows.append(["accumulator register, bits", *(c.register_bits for c in PRESETS.values())])
    rows.append(["accumulator grid, F", *(c.acc_frac for c in PRESETS.values())])
    return _table(("parameter", *PRESETS), rows)


def builds() -> str:
    """Records of routed bitstreams: what each reached, if it is of the design of today, and in the package."""
    rows = []
    for build in BUILDS:
        names = (f"`{build.board}`", f"`{build.preset}`", build.link)
        clocks = (f"{build.mhz:.2f}", f"{build.reached_mhz:.2f}", f"{build.target_mhz:g}")
        counts = (build.cells, build.ffs, build.rams, build.multipliers, build.minutes)
        figures = (f"{count:,}" if count else "" for count in counts)
        date = f"{build.date}{f', {STALE}' if build.stale else ''}"
        rows.append((*names, *clocks, build.seed, *figures, date, "yes" if build.bitstream else ""))
    head = (
        "board, preset, link, MHz, paths allow, target, seed, logic cells, FF, block RAMs, multipliers, minutes, date, "
        "in the package"
    ).split(", ")
    return _table(head, rows)


# Options ----------------------------------------------------------------------------------------


def compile_options() -> str:
    """Options of compiling: on the command line, in Python, what they do."""
    rows = []
    for name, known in OPTIONS.items():
        default = DEFAULTS[name]
        shown = f"`{default}`" if default else ""
        text = re.sub(r"(?<![\w`-])--[a-z-]+(?: auto)?", r"`\g<0>`", known.help)
        page, _, heading = known.page.partition("#")
        where = f" ([{page or 'below'}]({known.page}))" if page or heading else ""
        text = f"{text.removesuffix('.')}{where}."
        rows.append((f"`{known.spelling}`" if known.spelling else "", f"`{name}`", shown, text))
    return _table(("option", "in Python", "default", "what it does"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "instructions": instructions,
    "fields": instruction_fields,
    "stages": stages,
    "encodings": encodings,
    "rules": program_rules,
    "traps": lambda: _enumeration(isa.Trap),
    "flags": lambda: _enumeration(Flag),
    "regions": region_list,
    "registers": registers,
    "register-fields": register_fields,
    "parameters": parameters,
    "builds": builds,
    "compile-options": compile_options,
    "script-operations": lambda: _enumeration(feeder.FeedOp),
    "script-fields": script_fields,
    "layout-loops": layout_loops,
    "requests": lambda: _enumeration(link.Kind),
    "statuses": lambda: _enumeration(link.Status),
    **{f"words-{name}": (lambda config=config: region_words(config)) for name, config in PRESETS.items()},  # type: ignore[misc]
}


def render(text: str) -> str:
    """A page with its tables filled in; ``ValueError`` if it asks for one that does not exist."""

    def fill(match: re.Match[str]) -> str:
        if match[2] not in TABLES:
            raise ValueError(f"table must be one of {sorted(TABLES)}, not {match[2]!r}")
        return f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}"

    return _BLOCK.sub(fill, text)


def stale(root: Path = ROOT) -> list[Path]:
    """Pages whose tables do not say what the definitions say."""
    return [root / page for page in PAGES if (text := (root / page).read_text(encoding="utf-8")) != render(text)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(description="Rewrite the generated tables of the reference pages.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the pages")
    options = parser.parse_args(arguments)
    old = stale(options.root)
    for page in old:
        print(f"{page}: {'out of date' if options.check else 'rewritten'}")
        if not options.check:
            page.write_text(render(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if options.check and old else 0


if __name__ == "__main__":
    sys.exit(main())
