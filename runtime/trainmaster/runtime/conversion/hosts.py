"""Host names: each pod of a V1 job was a Service `<job>-<type>-<index>`; a pod of a JobSet is a host of its subdomain.

A pod is the host `<job>-<replicated job>-<job index>-<pod index>.<job>`. What users wrote into commands, arguments and
variables of the old names is rewritten where it is certain that a name is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.conversion.notes import Notes
from trainmaster.runtime.jsontree import JsonObject

JOBSET_NAME: Final = "JOBSET_NAME"
"""The variable that holds the name of a job whose name is generated."""

JOBSET_NAME_FIELD_PATH: Final = f"metadata.labels['{JOBSET_LABEL}']"

_REWRITTEN: Final = "names of the job's pods are rewritten: the pods of TrainJobs have other host names"


class HostNames:
    """The pods of a job.

    Args:
        job: The name of the job; nothing if it is generated, when nobody can have written names of its pods.
        namespace: Its namespace; nothing if the manifest does not say.
        new: The new host name of each pod, by its old name.
    """

    def __init__(self, job: str, namespace: str, new: Mapping[str, str]) -> None:
        self._prefix = f"{job}-" if job else ""
        self._new = new
        tail = r"\.svc(?:\.[a-z0-9-]+)*"
        domain = rf"\.{re.escape(namespace)}(?:{tail})?" if namespace else rf"\.[a-z0-9-]+{tail}"
        # Not within a longer name or a path of files; a name may end a sentence.
        self._pattern = re.compile(
            rf"(?:(?<=//)|(?<![\w./-]))(?P<name>{re.escape(job)}-[a-z]+(?:-\d+)?)(?P<domain>{domain})?(?![\w/-]|\.\w)"
        )

    def __getitem__(self, old: str) -> str:
        return self._new[old]

    def values(self) -> Iterable[str]:
        """Return all new names."""
        return self._new.values()

    def rewritten(self, text: str) -> str:
        """Return a text with new names in place of old ones."""
        if not self._prefix or self._prefix not in text:
            return text
        return self._pattern.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        new = self._new.get(match["name"])
        return match[0] if new is None else new + (match["domain"] or "")

    def rewrite_container(self, container: JsonObject, path: str, notes: Notes) -> None:
        """Rewrite old names in what a container runs, and tell where."""
        for field in ("command", "args"):
            for place, text in enumerate(container.get(field) or []):
                container[field][place] = self._told(text, f"{path}.{field}[{place}]", notes)
        for place, variable in enumerate(container.get("env") or []):
            if "value" in variable:
                variable["value"] = self._told(variable["value"], f"{path}.env[{place}].value", notes)

    def _told(self, text: Any, path: str, notes: Notes) -> Any:
        new = self.rewritten(text) if isinstance(text, str) else text
        if new != text:
            notes.tell(path, _REWRITTEN)
        return new
