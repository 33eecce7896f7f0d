"""What the API server found wrong with an object, as tests compare it."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError


async def assert_refused(request: Awaitable[object], code: int, *texts: str) -> None:
    """Assert that a request is refused with this code, and that the message has these texts."""
    with pytest.raises(StatusError) as caught:
        await request
    assert caught.value.code == code
    for text in texts:
        assert text in caught.value.message


async def mistakes_of(request: Awaitable[object]) -> set[tuple[str, str]]:
    """Return the fields and the types (`Required`, ...) of the mistakes for which a request is refused with 422."""
    with pytest.raises(StatusError) as caught:
        await request
    assert caught.value.code == 422
    assert caught.value.details is not None
    causes = caught.value.details["causes"]
    return {(cause["field"], cause["reason"].removeprefix("FieldValue")) for cause in causes}
