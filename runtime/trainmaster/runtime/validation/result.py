"""The result of a validation: what an admission webhook answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.runtime.field_errors import FieldError, aggregate


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Whether an object may be stored, and what its author is told."""

    errors: Sequence[FieldError] = ()
    warnings: Sequence[str] = ()
    """Shown to whoever writes the object, whether or not it is stored: one line each, most of them after a path."""

    refusal: str = ""
    """Why the object cannot even be looked at, instead of errors."""

    @property
    def allowed(self) -> bool:
        """Whether the object may be stored."""
        return not (self.errors or self.refusal)

    @property
    def message(self) -> str:
        """Why it may not be: all errors in one line."""
        return self.refusal or aggregate(self.errors)
