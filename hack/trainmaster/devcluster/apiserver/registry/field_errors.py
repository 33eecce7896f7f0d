"""Field errors that the rules of several kinds give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.runtime.quantity import Quantity

_NOT_NEGATIVE = "must be greater than or equal to 0"


def immutable(path: str, value: Any) -> FieldError:
    """Return the error of a field that may not change."""
    return FieldError(path, "Invalid", value, "field is immutable")


def unsupported(path: str, value: Any, supported: Sequence[str]) -> FieldError:
    """Return the error of a value that is not one of a few."""
    listed = ", ".join(f'"{each}"' for each in sorted(supported))
    return FieldError(path, "NotSupported", value, f"supported values: {listed}")


def too_many(path: str, value: Any, limit: int) -> FieldError:
    """Return the error of a list with more than `limit` items; `value` is what the server shows of it."""
    return FieldError(path, "TooMany", value, f"must have at most {limit} items")


def negative(path: str, value: int) -> FieldError:
    """Return the error of a number below zero."""
    return FieldError(path, "Invalid", value, _NOT_NEGATIVE)


def validate_nonnegative_quantity(value: str | float, path: str) -> Iterator[FieldError]:
    """Check that a quantity is zero or more."""
    amount = Quantity.parse(value)
    if amount < Quantity.parse(0):
        yield FieldError(path, "Invalid", str(amount), _NOT_NEGATIVE)
