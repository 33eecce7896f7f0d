"""The garbage collector of a process that holds a cluster: what a long pass finds alive is left out of later ones."""

import gc
from collections.abc import Iterator

import pytest

from trainmaster.devcluster.garbage_collection import PassLimit


@pytest.fixture
def thawed() -> Iterator[None]:
    frozen = gc.get_freeze_count()
    yield
    if frozen == 0:
        gc.unfreeze()


def collect(limit: PassLimit, generation: int) -> int:
    """Have a pass made and return how many objects are frozen more than before."""
    before = gc.get_freeze_count()
    gc.callbacks.append(limit)
    try:
        gc.collect(generation)
    finally:
        gc.callbacks.remove(limit)
    return gc.get_freeze_count() - before


@pytest.mark.nightly
@pytest.mark.usefixtures("thawed")
def test_what_a_long_pass_found_alive_is_frozen_and_still_freed() -> None:
    trees = [{"metadata": {"name": str(number)}} for number in range(1000)]  # the collector leaves maps of texts out
    assert collect(PassLimit(longest=0.0), 2) >= len(trees)
    frozen = gc.get_freeze_count()
    trees.clear()
    assert gc.get_freeze_count() <= frozen - 1000


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize(("longest", "generation"), [(3600.0, 2), (0.0, 1)], ids=["short", "young"])
def test_other_passes_freeze_nothing(longest: float, generation: int) -> None:
    assert collect(PassLimit(longest=longest), generation) <= 0
