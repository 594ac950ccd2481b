"""Cells and clock of the lazy update in the bench."""

import json

from concord_bench import Results
from concord_bench.lazy import lazy_by_lanes


def test_lanes_that_were_counted(tmp_path):
    results = Results("")
    lazy_by_lanes(results, tmp_path)
    assert "python -m concord_rtl.build lazy --clock" in results.skipped["Lazy update"]
    (tmp_path / "one").mkdir()
    lanes = [{"lanes": 1, "cells": {"LUT4": 1234}}, {"lanes": 16, "cells": {"LUT4": 9999}, "mhz": 80.5}]
    (tmp_path / "one" / "lazy.json").write_text(json.dumps({"of": "Lazy update on a board", "lanes": lanes}))
    lazy_by_lanes(results, tmp_path)
    rows = results.rows["Lazy update on a board"]
    assert rows["1 lanes"] == {"LUT4": "1,234"}
    assert rows["16 lanes"] == {"LUT4": "9,999", "MHz": "80.50", "elements/s": "1,288 M"}
