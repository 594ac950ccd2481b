"""No function has so many parameters that a reader loses count: values that belong together are a record."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: Parameters of a function, but for the object or class of a method.
MOST = 8


def parameters(function):
    """Names of the parameters of a function; ``*args`` and ``**kwargs`` are one each."""
    of = function.args
    named = [*of.posonlyargs, *of.args, *of.kwonlyargs, *filter(None, (of.vararg, of.kwarg))]
    return [parameter.arg for parameter in named if parameter.arg not in ("self", "cls")]


def longer(source):
    """``(name, parameters)`` of the functions of a source that have too many."""
    functions = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [(function.name, len(names)) for function in functions if len(names := parameters(function)) > MOST]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["sw", "hw"])
def test_functions_have_few_parameters(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files and not {str(path): names for path in files if (names := longer(path.read_text(encoding="utf-8")))}


@pytest.mark.parametrize("parameter", ["i", "*i", "*, i", "**i", "i=0"])
def test_a_ninth_parameter_is_noticed(parameter):
    assert longer(f"def f(a, b, c, d, e, f, g, h, {parameter}): pass") == [("f", 9)]
    assert longer(f"async def f(a, /, b, c, d, e, f, g, h, {parameter}): pass") == [("f", 9)]
    assert not longer(f"class A:\n    def f(self, a, b, c, d, e, f, g, {parameter}): pass")
