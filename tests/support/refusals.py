"""What the API server found wrong with an object, as tests compare it."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import StatusError


def mistakes_of(error: StatusError) -> set[tuple[str, str]]:
    """Return the fields and the types (`Required`, ...) of the mistakes for which an object was refused with 422."""
    assert error.code == 422
    assert error.details is not None
    return {(cause["field"], cause["reason"].removeprefix("FieldValue")) for cause in error.details["causes"]}
