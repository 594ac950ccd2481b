"""The page of operators against ONNX's own list: each is taken, or named with a reason."""

import re
from pathlib import Path

import pytest
from onnx import defs

from concord.frontend.importer import handler_of, host_handler_of
from concord.frontend.unfolding import RULES

PAGE = (Path(__file__).parents[3] / "docs" / "operators.md").read_text()
OPSETS = range(13, 24)


def table(heading):
    """Rows of the tables with this heading, each a pair of texts."""
    parts = [part.split("\n\n")[0] for part in PAGE.split(f"| {heading} |\n")[1:]]
    return [row.strip("|").split(" | ") for part in parts for row in part.splitlines()[1:]]


TAKEN = {word for _, names in table("kind | operators of ONNX") for word in re.findall(r"\w+", names)}
REFUSED = {word: reason for names, reason in table("operators | why not") for word in re.findall(r"\w+", names)}


def schemas():
    """Every version of an operator with floats that a model of these opsets can have."""
    versions = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(schema.name, []).append(schema)
    current = {
        name: {max((s for s in of_name if s.since_version <= opset), key=lambda s: s.since_version, default=None)
               for opset in OPSETS} - {None}
        for name, of_name in versions.items()
    }  # fmt: skip
    return {name: found for name, found in current.items() if found and any(map(of_floats, found))}


def of_floats(schema):
    return not schema.deprecated and any(
        "float" in kind for item in (*schema.inputs, *schema.outputs) for kind in item.types
    )


NAMES = sorted(schemas())


def implemented(name):
    return handler_of(name) is not None or name in RULES or host_handler_of(name) is not None


def test_there_are_many():
    assert len(NAMES) > 150


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_is_taken_or_named_with_a_reason(name):
    assert (name in TAKEN) != (name in REFUSED)
    if implemented(name):
        assert name in TAKEN
    if name in REFUSED:
        assert len(REFUSED[name]) > 10


def test_the_page_refuses_what_onnx_has():
    assert {*REFUSED} <= {*NAMES} and not any(map(implemented, REFUSED))
