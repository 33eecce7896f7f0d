"""Upgrades of Trainmaster: what a version before this one left stays as it is.

`record.py` wrote down what each of them had left of the recorded cases: built, blocked, suspended and completed
TrainJobs, under its own definitions.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from support.original_crds import definitions_of, install
from support.stack import api_server
from support.takeover import written_by_a_new_manager

RECORDED = sorted(Path(__file__).parent.glob("*.journal.gz"))


@pytest.mark.parametrize("definitions", ["theirs", "ours"])
@pytest.mark.parametrize("journal", RECORDED, ids=lambda path: path.name.removesuffix(".journal.gz"))
async def test_nothing_is_written_after_an_upgrade(tmp_path: Path, journal: Path, definitions: str) -> None:
    async with api_server(tmp_path / "new") as stack:
        if stack.cluster is None:
            pytest.skip("the records are in the format of the embedded cluster")
        ours = await definitions_of(stack)
    recorded = tmp_path / "recorded/cluster"
    recorded.mkdir(parents=True, mode=0o700)
    (recorded / "journal").write_bytes(gzip.decompress(journal.read_bytes()))
    async with api_server(tmp_path / "recorded") as stack:
        if definitions == "ours":
            await install(stack, ours)
        assert await written_by_a_new_manager(stack, "upgrade-") == set()


def test_a_version_was_recorded() -> None:
    assert RECORDED
