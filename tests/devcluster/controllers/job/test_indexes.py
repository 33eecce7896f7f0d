from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.devcluster.controllers.job.indexes import format_indexes, parse_indexes, parse_ranges


@pytest.mark.parametrize(
    ("indexes", "text"),
    [(set(), ""), ({0}, "0"), ({0, 1}, "0,1"), ({0, 1, 2}, "0-2"), ({0, 2, 3, 4, 7, 8}, "0,2-4,7,8")],
)
def test_the_compressed_form(indexes: set[int], text: str) -> None:
    assert format_indexes(indexes) == text


@given(st.sets(st.integers(min_value=0, max_value=60)))
def test_reading_is_the_inverse_of_writing(indexes: set[int]) -> None:
    assert parse_indexes(format_indexes(indexes)) == indexes


def test_huge_ranges_are_not_expanded() -> None:
    assert parse_ranges("0-2147483646") == [range(2147483647)]


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1-b"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_indexes(text)
