"""What tests of plugins make: objects, and listers of them."""

from __future__ import annotations

import pytest

from trainmaster.runtime.sdk import NoSuchIndex
from trainmaster.runtime.testing import KnownObjects


def test_known_objects_say_how_they_are_made() -> None:
    with pytest.raises(TypeError, match=r"KnownObjects\(a, b\), not a list"):
        KnownObjects([{}])  # type: ignore[arg-type]  # the fault
    with pytest.raises(NoSuchIndex) as raised:
        KnownObjects().by_index("v1", "ConfigMap", "acme-team", "robotics")
    assert raised.value.__notes__ == [
        "In a test: KnownObjects(..., watches=plugin.watch_extension()) has those of a plugin."
    ]
