"""Cells and clock of units in the bench."""

import json

from concord_bench import WITHOUT_RTL, Results
from concord_bench.unit_areas import code_scaling_cells, integer_cells


def test_cells_that_were_counted(monkeypatch, tmp_path):
    results = Results("")
    monkeypatch.chdir(tmp_path)
    WITHOUT_RTL["code_scaling"](None, results, print)
    assert "python -m concord_rtl.build code-scaling --board" in results.skipped["Cells of code_scaling"]
    (tmp_path / "one").mkdir()
    rows = [
        {"what": "a lane", "cells": {"LUT4": 383}, "mhz": 133.4},
        {"what": "whole design", "cells": {"LUT4": 27050}},
    ]
    (tmp_path / "one" / "code_scaling.json").write_text(json.dumps({"of": "code_scaling of one", "rows": rows}))
    code_scaling_cells(results, tmp_path)
    assert results.rows["Cells of code_scaling of one"] == {
        "a lane": {"LUT4": "383", "MHz": "133.40"},
        "whole design": {"LUT4": "27,050", "MHz": ""},
    }
    assert "| whole design | 27,050 |  |" in results.markdown()


def test_cells_of_the_integer_engine(monkeypatch, tmp_path):
    results = Results("")
    monkeypatch.chdir(tmp_path)
    WITHOUT_RTL["integers"](None, results, print)
    assert "python -m concord_rtl.build integers --board" in results.skipped["Cells of integers"]
    (tmp_path / "one").mkdir()
    rows = [{"what": "writer", "cells": {"LUT4": 383}}, {"what": "reader", "cells": {"LUT4": 27050}}]
    (tmp_path / "one" / "integers.json").write_text(json.dumps({"of": "the integer engine of one", "rows": rows}))
    integer_cells(results, tmp_path)
    assert results.rows["Cells of the integer engine of one"] == {
        "writer": {"LUT4": "383"},
        "reader": {"LUT4": "27,050"},
    }
