"""What ``make sim`` replays is there: its cases name tests by file and function."""

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CASES = runpy.run_path(str(ROOT / "sim" / "cases.py"))["CASES"]


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_case_names_a_function_and_its_arguments(case):
    path = Path(*case.module.split(".")).with_suffix(".py")
    (found,) = (file for file in (ROOT / "tests" / path, ROOT / "sim" / path) if file.exists())
    functions = {node.name: node for node in ast.parse(found.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert set(case.arguments) <= {one.arg for one in functions[case.function].args.args}
