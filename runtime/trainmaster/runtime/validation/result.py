"""Verdicts of admission, and their texts: those of the API server's own libraries, word for word."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trainmaster.runtime.extension import FieldError

_LONGEST_VALUE: Final = 4096  # characters of a wrong value that a message shows
_LONGEST_TEXT: Final = 32_768
_FINDINGS_SHOWN: Final = 100

_REASONS: Final = {"Forbidden": "Forbidden", "InternalError": "Internal error"}

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
class Verdict:
    """What admission says about an object: it is admitted if there are no errors."""

    errors: Sequence[FieldError] = ()
    warnings: Sequence[str] = field(default=())
    refusal: str = ""
    """Why the object cannot even be looked at, instead of errors."""

    @property
    def admitted(self) -> bool:
        """Whether the object may be stored."""
        return not (self.errors or self.refusal)

    @property
    def message(self) -> str:
        """Why it may not be: all errors in one line."""
        return self.refusal or aggregated(self.errors)


def aggregated(findings: Iterable[FieldError]) -> str:
    """Write several findings into one line; what is said twice is written once."""
    texts = list(dict.fromkeys(map(described, findings)))
    if len(texts) == 1:
        return _cut(texts[0], _LONGEST_TEXT)
    if len(texts) > _FINDINGS_SHOWN:
        texts[_FINDINGS_SHOWN:] = [f"and {len(texts) - _FINDINGS_SHOWN} more"]
    return _cut(f"[{', '.join(texts)}]", _LONGEST_TEXT) if texts else ""


def described(finding: FieldError) -> str:
    """Write one finding: the path, what kind of error, the value if that matters, and the message."""
    if finding.reason in _REASONS:
        return f"{finding.path}: {_REASONS[finding.reason]}: {finding.message}"
    return f"{finding.path}: Invalid value: {shown(finding.value)}: {finding.message}"


def shown(value: Any) -> str:
    """Write a value as a message shows it: as JSON, with the fields in the order of the Go structure."""
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
