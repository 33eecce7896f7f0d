"""Which mode of networking is chosen."""

import sys

import pytest
from support.machine import needs_namespaces

from trainmaster.devcluster.kubelet.network.mode import NamespacesUnavailable, choose_networking

pytestmark = [pytest.mark.nightly, needs_namespaces]


async def test_the_trial_finds_that_it_works_here() -> None:
    chosen = await choose_networking("auto")
    assert (chosen.mode, chosen.reason) == ("namespaces", "")
    assert (await choose_networking("rewriting")).mode == "rewriting"


async def test_where_it_does_not_work_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [sys.executable, "-c", 'print(\'{"error": "cannot create a user namespace: Not here"}\')']
    monkeypatch.setattr(
        "trainmaster.devcluster.kubelet.runtime.supervisor.probe_command_line", lambda directory: broken
    )
    chosen = await choose_networking("auto")
    assert chosen.mode == "rewriting"
    assert "(no namespaces here: cannot create a user namespace: Not here)" in str(chosen)
    with pytest.raises(NamespacesUnavailable, match="Not here; use `--networking rewriting`"):
        await choose_networking("namespaces")
    broken[2] = "raise SystemExit('no such luck')"
    assert "the trial failed: no such luck" in str(await choose_networking("auto"))
