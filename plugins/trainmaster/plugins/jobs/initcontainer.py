"""The init container of the workers of a PyTorchJob: it waits until the name of the master can be resolved.

A worker that starts before cannot find the master, and torch.distributed gives up sooner than images are pulled. Ours
waits without end (V1-B22): how long a job may take is for its `activeDeadlineSeconds` to say.

It needs no privilege and runs as the training container does, so that the Pod Security Standard `restricted` admits it
in the pods of each job that complies itself.

A template replaces it: YAML, a list of containers, in which `{{.MasterAddr}}`, `{{.InitContainerImage}}` and
`{{.MaxTries}}` stand for what they say, as in the Training Operator V1.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic import field_validator

from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.jobs.interface import JobKindOptions
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import YamlError, load_yaml

_PLACEHOLDER: Final = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")
_MASTER: Final = "master-address.invalid"  # stands for the address in a template that is read; nobody has this name
_TEMPLATES_TRIES: Final = 100  # the original's default: a template counts on a number

_RESOLVES: Final = f"getent hosts {_MASTER} 2>/dev/null || nslookup {_MASTER}"
"""getent asks as the programs of the image will; minimal images lack it, and have nslookup."""

_WAIT: Final = f"until {_RESOLVES}; do echo waiting for master; sleep 2; done"

_USER: Final = ("runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile")
"""What `restricted` demands of a pod or else of each container: ours has it from the container that trains."""


class InitContainerOptions(JobKindOptions):
    """How workers wait for the master."""

    init_container_image: str = "alpine:3"

    init_container_template: str | None = None
    """The text of a template for the init containers; None: ours."""

    init_container_max_tries: int | None = None
    """How often to look the master up, every two seconds, before the container fails; None: without end."""

    @field_validator("init_container_template")
    @classmethod
    def _check_template(cls, template: str | None) -> str | None:
        if template is not None:
            _read(template, image="image", tries=1)
        return template

    @field_validator("init_container_max_tries")
    @classmethod
    def _check_tries(cls, tries: int | None) -> int | None:
        if tries is not None and tries < 1:
            raise ValueError(f"must be 1 or more, got {tries}; leave it out for no limit")
        return tries


class InitContainers:
    """The init containers of workers, but for the address of the master."""

    def __init__(self, options: InitContainerOptions) -> None:
        image, tries = options.init_container_image, options.init_container_max_tries
        template = options.init_container_template
        self._is_default = template is None
        if template is None:
            self._containers = [_default(image, tries)]
        else:
            self._containers = _read(template, image, _TEMPLATES_TRIES if tries is None else tries)

    def build(self, master: str, training: JsonObject) -> list[JsonObject]:
        """Return them for a job, whose master has the given address.

        Args:
            master: The address.
            training: The container that trains.
        """
        containers = [_replace(each, master) for each in self._containers]
        if self._is_default:
            users = training.get("securityContext") or {}
            containers[0]["securityContext"] |= {field: users[field] for field in _USER if field in users}
        return containers


def _default(image: str, tries: int | None) -> JsonObject:
    command = _WAIT
    if tries is not None:
        attempt = f"if {_RESOLVES}; then exit 0; fi; echo waiting for master; sleep 2"
        command = f"for i in $(seq {tries}); do {attempt}; done; exit 1"
    return {
        "name": "init-pytorch",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "limits": {"cpu": "100m", "memory": "20Mi"},
            "requests": {"cpu": "50m", "memory": "10Mi"},
        },
        "command": ["sh", "-c", command],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _read(template: str, image: str, tries: int) -> list[JsonObject]:
    values = {".MasterAddr": _MASTER, ".InitContainerImage": image, ".MaxTries": str(tries)}

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise ValueError(f"{found[0]} stands for nothing {did_you_mean(found[1], values)}")
        return values[found[1]]

    try:
        containers = load_yaml(_PLACEHOLDER.sub(value, template))
    except YamlError as error:
        raise ValueError(f"is no YAML: {error}") from error
    if not isinstance(containers, list) or not all(isinstance(each, dict) and each.get("name") for each in containers):
        raise ValueError("must be a list of containers, of which each has a name")
    return containers


def _replace(node: Any, master: str) -> Any:
    match node:
        case str():
            return node.replace(_MASTER, master)
        case dict():
            return {key: _replace(value, master) for key, value in node.items()}
        case list():
            return [_replace(value, master) for value in node]
    return node
