"""The heap: frozen, tidied, given back."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest
from support.commands import eventually

from trainmaster.controller.manager import heap
from trainmaster.controller.manager.tasks import background_task

LEFT_AFTER_TROUBLE = """
import re
from pathlib import Path
from trainmaster.controller.manager import heap

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

if {give_back}:
    heap.unmap_freed_blocks()
del (block := bytearray(256 * 1024))[:]
before, kept = resident(), []
del block
blocks = []
for _ in range(200):
    blocks.append(bytearray(256 * 1024))
    kept.append(bytes(1000))
blocks.clear()
print(resident() - before)
"""
"""Prints how many MiB stay behind when 50 MiB of buffers are freed between which small things live on."""


@pytest.fixture
def thawed() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_p22_a_settled_heap_is_out_of_the_collectors_sight(thawed: None) -> None:
    heap.freeze()
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < 1000
    assert gc.get_threshold() == (10_000, 5, 5)


async def test_garbage_is_collected_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr(heap, "COLLECT_EVERY", 0.01)
    gc.disable()
    try:
        left = weakref.ref(Cycle())
        assert left() is not None
        async with background_task(heap.collect_periodically()):
            await eventually(lambda: left() is None)
    finally:
        gc.enable()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others give back what is freed by themselves")
@pytest.mark.parametrize(("give_back", "at_least", "at_most"), [(True, -5, 5), (False, 40, 60)])
def test_freed_buffers_go_back_to_the_operating_system(give_back: bool, at_least: int, at_most: int) -> None:
    program = LEFT_AFTER_TROUBLE.format(give_back=give_back)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert at_least <= int(done.stdout) <= at_most
