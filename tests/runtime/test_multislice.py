"""Dealing hosts out to slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.runtime.multislice import SlicesInvalid, hosts_per_slice


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_hosts_come_out_even_or_not_at_all(hosts: int, slices: int) -> None:
    if hosts % slices == 0:
        assert hosts_per_slice(hosts, slices, name="node") * slices == hosts
        return
    with pytest.raises(SlicesInvalid, match=rf"^{hosts} nodes .* {slices} slices"):
        hosts_per_slice(hosts, slices, name="node")
