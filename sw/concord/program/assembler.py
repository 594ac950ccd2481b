"""Assembler and disassembler, driven by the instruction table of :mod:`concord.spec.isa`.

One instruction per line; ``#`` starts a comment; ``name = expression`` defines a constant. Operands are expressions of
integers and names with ``+ - * // << >> ( )``; the first ones may be given without their name::

    weights = 0x40
    set_shape rows=4 cols=16
    loop count=8
      v_rd narrow, 0, reg=1, inner=2
      mv_mul weights, mode=depthwise
      vv_add 12, row=1
      v_tbl sigm                  # or v_sigm; the slot comes from the symbols
      v_wr wide, 20, row=1
      v_wr narrow, 40, row=1
    end_loop
    halt

Positional operands: all fields of a control instruction, in the order of the table; of a chain instruction those that
are not in :data:`concord.program.builder.NAMED_ONLY`. Post-increment names (``v_rd_inc``, ``v_wr_inc``,
``vv_add_inc`` ...) are synonyms of the plain ones, whose strides ``row``, ``inner`` and ``outer`` say what to add.
``last`` is set on the final instruction of a chain, and ``unit`` is the first one whose stage lies after the
previous instruction's, unless it is written out. Fields left out are zero, those of ``set_`` instructions as at the
start of a run. ``.word value`` places a raw word; it is not checked and stands outside chains.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from concord.program.builder import VALUE_NAMES, ProgramBuilder, defaults, positional
from concord.spec import isa
from concord.spec.isa import Instruction, Op


class AssemblyError(ValueError):
    """A program text that cannot be assembled; ``line`` counts from 1."""

    def __init__(self, line: int, message: str):
        super().__init__(f"line {line}: {message}")
        self.line = line


_DEFINITION = re.compile(r"([A-Za-z_]\w*)\s*=\s*(.+)")
_NAMED = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(.+)")
_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def assemble(text: str, symbols: Mapping[str, int] | None = None) -> list[int]:
    """Return the words of a program text.

    Parameters
    ----------
    text : str
        The program.
    symbols : mapping, optional
        Constants the text may use, among them the slots of its tables.

    Raises
    ------
    AssemblyError
        With the number of the offending line.
    """
    builder = ProgramBuilder()
    names = dict(symbols or {})
    number = 0
    for number, full in enumerate(text.splitlines(), 1):
        line = full.partition("#")[0].strip()
        try:
            if definition := _DEFINITION.fullmatch(line):
                names[definition[1]] = _evaluate(definition[2], names)
            elif line:
                _instruction(builder, line, names)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise AssemblyError(number, str(error)) from error
    try:
        return builder.words()
    except ValueError as error:
        raise AssemblyError(number, str(error)) from error


def _instruction(builder: ProgramBuilder, line: str, names: Mapping[str, int]) -> None:
    mnemonic, *rest = line.split(None, 1)
    if mnemonic == ".word":
        builder.raw(_evaluate(rest[0] if rest else "", names))
        return
    form = isa.MNEMONICS.get(mnemonic) or isa.MNEMONICS.get(mnemonic.removesuffix("_inc"))
    table = names.get(mnemonic.removeprefix("v_")) if mnemonic.startswith("v_") else None
    operands = _split(rest[0]) if rest else []
    if mnemonic.endswith("_inc") and form is not None and "row" not in form.fields:
        form = None
    if form is None and table is not None:
        form, operands = isa.FORMS[Op.V_TBL], [str(table), *operands]
    if form is None:
        raise ValueError(f"mnemonic must be one of {sorted(isa.MNEMONICS)}, not {mnemonic!r}")
    fields: dict[str, int] = {}
    free = iter(positional(form))
    for operand in operands:
        named = _NAMED.fullmatch(operand)
        name = named[1] if named else next(free, None)
        if name is None:
            raise ValueError(f"operands of {mnemonic} must be at most {positional(form)}, not also {operand!r}")
        if name in fields:
            raise ValueError(f"{name} must be given once")
        fields[name] = _evaluate(named[2] if named else operand, {**names, **VALUE_NAMES.get((form.op, name), {})})
    builder.emit(form.op, **fields)


def _split(text: str) -> list[str]:
    """Operands, separated by commas, or by blanks in front of ``name=``."""
    return [part.strip() for part in re.split(r",|\s+(?=[A-Za-z_]\w*\s*=)", text) if part.strip()]


def _evaluate(text: str, names: Mapping[str, int]) -> int:
    def walk(node: ast.AST) -> int:
        match node:
            case ast.Constant(value=int(value)):
                return value
            case ast.Name(id=name):
                if name not in names:
                    raise ValueError(f"operand must be a number or a known name, not {name!r}")
                return names[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -walk(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](walk(left), walk(right))
        raise ValueError(f"operand must be an integer expression, not {text!r}")

    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise ValueError(f"operand must be an integer expression, not {text!r}") from None
    return walk(tree.body)


def disassemble(words: Iterable[int]) -> str:
    """Return text that assembles to the same words; what is no proper program comes out as ``.word``."""
    rest = list(words)
    lines: list[str] = []
    while rest:
        count, texts = _leading(rest)
        lines += texts
        del rest[:count]
    return "".join(line + "\n" for line in lines)


def _leading(words: list[int]) -> tuple[int, list[str]]:
    """Number of words and lines of the first control instruction or chain."""
    try:
        texts: list[str] = []
        builder = ProgramBuilder()
        for word in words:
            form, values = isa.decode(word)
            texts.append(_text(builder, form, values))
            if not form.is_chain or values["last"]:
                break
        if builder.words() == words[: len(texts)]:
            return len(texts), texts
    except ValueError:
        pass
    return 1, [f".word {words[0]:#018x}  # {describe(words[0])}"]


def _text(builder: ProgramBuilder, form: Instruction, values: dict[str, Any]) -> str:
    automatic = "unit" not in values or _automatic(builder, form, values)
    builder.emit(form.op, **{name: value for name, value in values.items() if name != "last"})
    return _render(form, values, show_unit=not automatic)


def _automatic(builder: ProgramBuilder, form: Instruction, values: dict[str, Any]) -> bool:
    """True if the assembler would choose this unit by itself."""
    stage = builder.stage
    return stage is not None and next((k for k, s in enumerate(form.stages) if s > stage), None) == values["unit"]


def _render(form: Instruction, values: dict[str, Any], show_unit: bool) -> str:
    first = positional(form)
    shown = {
        name: next((text for text, v in VALUE_NAMES.get((form.op, name), {}).items() if v == value), str(value))
        for name, value in values.items()
        if name != "last" and (name != "unit" or show_unit)
    }
    named = [f"{name}={text}" for name, text in shown.items() if values[name] != defaults(form).get(name, 0)]
    if form.is_chain:
        named = [item for item in named if item.partition("=")[0] not in first]
        operands = ", ".join([shown[name] for name in first] + named)
    else:
        operands = " ".join(named)
    return f"{form.mnemonic} {operands}".rstrip()


def describe(word: int) -> str:
    """One word as text for a message: its fields, or why it is no instruction."""
    try:
        form, values = isa.decode(word)
    except isa.IllegalInstruction as error:
        return str(error)
    return _render(form, values, show_unit=True)
