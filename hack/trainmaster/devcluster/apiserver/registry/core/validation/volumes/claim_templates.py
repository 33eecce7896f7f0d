"""Rules of claims that are made for a pod: of the template in an ephemeral volume."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.claims import validate_claim_spec
from trainmaster.devcluster.apiserver.registry.core.validation.fields import forbidden, required
from trainmaster.devcluster.apiserver.registry.labels import label_key, labels
from trainmaster.runtime.jsontree import JsonObject

_OF_TEMPLATES = ("annotations", "labels")


def validate_ephemeral(path: str, source: JsonObject) -> Iterator[FieldError]:
    """Check an ephemeral volume."""
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield required(f"{path}.volumeClaimTemplate")
        return
    here = f"{path}.volumeClaimTemplate"
    metadata = template.get("metadata") or {}
    for key in metadata.get("annotations") or ():
        yield from label_key(f"{here}.metadata.annotations", key.lower())
    yield from labels(f"{here}.metadata.labels", metadata.get("labels"))
    for field, value in metadata.items():
        if field not in _OF_TEMPLATES and value:
            yield forbidden(f"{here}.metadata.{field}", "cannot be set")
    yield from validate_claim_spec(template.get("spec") or {}, f"{here}.spec")
