from pathlib import Path

import mlmodelscope
from mlmodelscope.core.variables import RECORDED_VARIABLES

RECORDS_PAGE = Path(mlmodelscope.__file__).parents[2] / "docs" / "concepts" / "records.md"


def test_the_variables_that_are_kept_are_documented():
    text = RECORDS_PAGE.read_text(encoding="utf-8")
    assert [name for name in RECORDED_VARIABLES if f"`{name}`" not in text] == []
