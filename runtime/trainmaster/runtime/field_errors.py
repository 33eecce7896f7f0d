"""What is wrong with the fields of an object: errors as those of `field.Error` of apimachinery, and warnings.

A `ValidationResult` has all of one object: what an admission webhook answers.

Guarantee: texts are those of the API server's own libraries, word for word.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

ErrorType: TypeAlias = Literal[
    "NotFound",
    "Required",
    "Duplicate",
    "Invalid",
    "NotSupported",
    "Forbidden",
    "TooLong",
    "TooMany",
    "TypeInvalid",
    "InternalError",
]
"""What kind of error it is, by the name that apimachinery gives it."""

ERROR_TEXTS: Final[dict[ErrorType, str]] = {
    "NotFound": "Not found",
    "Required": "Required value",
    "Duplicate": "Duplicate value",
    "Invalid": "Invalid value",
    "NotSupported": "Unsupported value",
    "Forbidden": "Forbidden",
    "TooLong": "Too long",
    "TooMany": "Too many",
    "TypeInvalid": "Invalid value",
    "InternalError": "Internal error",
}
"""How the text of an error of each type begins."""

TYPES_WITHOUT_VALUE: Final = frozenset({"Required", "Forbidden", "TooLong", "InternalError"})
"""Types whose text leaves out the value."""

_LONGEST_VALUE: Final = 4096  # characters of a wrong value that a text shows
_LONGEST_TEXT: Final = 32_768
_ERRORS_LISTED: Final = 100
_NAMES_LISTED: Final = 10
_NAMES_COMPARED: Final = 100
"""How many known names an unknown one is compared with; that takes some ten microseconds each."""

# The order of fields in the Go structures that are shown; what is not named here follows in alphabetical order.
_RANKS: Final = {
    name: rank
    for rank, name in enumerate(
        [
            *("name", "apiGroup", "kind"),  # RuntimeRef
            *("manager", "time", "trainingRuntimeSpec"),  # RuntimePatch
            *("jobName", "containerNames"),  # TrainingEnvInjectionTarget
            *("image", "command", "args", "workingDir", "ports", "envFrom", "env", "resources", "resizePolicy"),
            *("restartPolicy", "volumeMounts", "volumeDevices", "livenessProbe", "readinessProbe", "startupProbe"),
            *("lifecycle", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "securityContext"),
            *("stdin", "stdinOnce", "tty"),  # Container
            *("value", "valueFrom"),  # EnvVar
            *("limits", "requests", "claims"),  # ResourceRequirements
        ]
    )
}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field is wrong, so the object is refused."""

    path: str
    """For instance `spec.trainer.env[0].name`."""

    detail: str
    """What is wrong, as the end of the sentence that the path begins: `must be greater than or equal to 1`."""

    type: ErrorType = "Invalid"
    """What kind of error it is."""

    value: object = None
    """The wrong value, as JSON. Required, Forbidden, TooLong and InternalError do not show it."""

    @property
    def body(self) -> str:
        """The text without the path."""
        text = ERROR_TEXTS[self.type]
        if self.type not in TYPES_WITHOUT_VALUE:
            text = f"{text}: {_printed(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"


@dataclass(frozen=True, slots=True)
class FieldWarning:
    """One field will not do what its author expects; the object is admitted, and the warning is shown to its author."""

    path: str
    """For instance `spec.trainer.env[0].name`."""

    detail: str
    """What its author has to know, as the end of the sentence that the path begins."""

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"


def aggregate(errors: Iterable[FieldError]) -> str:
    """Write several errors into one line; what is said twice is written once."""
    texts = list(dict.fromkeys(map(str, errors)))
    if len(texts) == 1:
        return _cut(texts[0], _LONGEST_TEXT)
    if len(texts) > _ERRORS_LISTED:
        texts[_ERRORS_LISTED:] = [f"and {len(texts) - _ERRORS_LISTED} more"]
    return _cut(f"[{', '.join(texts)}]", _LONGEST_TEXT) if texts else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Complete a text about an unknown name, in parentheses: with the nearest known one, else with all of them."""
    names: Sequence[str] = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, names[:_NAMES_COMPARED], n=1)
    if near:
        return f'(did you mean "{near[0]}"?)'
    if not names:
        return "(there are none)"
    listed = ", ".join(names[:_NAMES_LISTED]) + (", ..." if len(names) > _NAMES_LISTED else "")
    return f"(there are: {listed})"


def _printed(value: Any) -> str:
    """Write a value as JSON, with the fields in the order of the Go structure."""
    text = json.dumps(_ordered(value), separators=(",", ":"), ensure_ascii=False)
    if not isinstance(value, str):
        # Go's JSON is fit for HTML; the text of a plain string is quoted by other means.
        text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return _cut(text, _LONGEST_VALUE)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (_RANKS.get(key, len(_RANKS)), key))
        return {key: _ordered(value[key]) for key in keys}
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    return value


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Whether an object may be stored, and what its author is told."""

    errors: Sequence[FieldError] = ()
    warnings: Sequence[str] = ()
    """Shown to whoever writes the object, whether or not it is stored: one line each, most of them after a path."""

    refusal: str = ""
    """Why the object cannot even be validated, instead of errors."""

    @property
    def allowed(self) -> bool:
        """Whether the object may be stored."""
        return not (self.errors or self.refusal)

    @property
    def message(self) -> str:
        """Why it may not be: all errors in one line."""
        return self.refusal or aggregate(self.errors)
