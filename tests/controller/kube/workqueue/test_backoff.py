"""How long a key waits before its next try."""

from __future__ import annotations

import pytest

from trainmaster.controller.kube.workqueue.backoff import KeyedBackoff


@pytest.mark.guarantee("W-10")
def test_backoff_reaches_its_cap_and_never_overflows() -> None:
    backoff = KeyedBackoff(random=lambda: 0.0)
    delays = [backoff.next_delay("a") for _ in range(5000)]
    assert delays[-1] == 1000.0
    assert max(delays) == 1000.0
    assert delays[17] == pytest.approx(0.005 * 2**17)
    assert backoff.next_delay("b") == 0.005


@pytest.mark.guarantee("W-15")
def test_jitter_spreads_and_the_cap_holds() -> None:
    rolls = iter([0.0, 0.5, 0.999] * 20)
    backoff = KeyedBackoff(random=lambda: next(rolls))
    delays = [backoff.next_delay("a") for _ in range(60)]
    assert all(delay <= 1000.0 for delay in delays)
    assert len({round(delay, 3) for delay in delays[-3:]}) == 3
    assert min(delays[-3:]) >= 900.0
