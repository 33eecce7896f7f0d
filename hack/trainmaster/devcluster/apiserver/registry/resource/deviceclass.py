"""DeviceClasses. A selector of anything but a driver is answered with 501."""

# ruff: noqa: ARG002 - the arguments are those of every strategy

from __future__ import annotations

import re

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError, too_many
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_MOST_SELECTORS = 32
_BY_DRIVER = re.compile(r"""\s*device\.driver\s*==\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*""")


def selected_driver(selector: JsonObject) -> str | None:
    """Return the driver that a selector of a device class asks for; None if it asks for anything else."""
    match = _BY_DRIVER.fullmatch((selector.get("cel") or {}).get("expression", ""))
    return None if match is None else match[1] or match[2] or ""


class DeviceClassStrategy(Strategy):
    """DeviceClasses select the devices of one driver, or all."""

    has_generation = True

    def default(self, obj: JsonObject) -> None:
        """Give every class a spec."""
        obj.setdefault("spec", {})

    def check_create(self, obj: JsonObject) -> None:
        """Refuse selectors that cannot be evaluated."""
        spec = obj.get("spec") or {}
        if spec.get("extendedResourceName"):
            raise errors.not_implemented("extended resources that are backed by device classes")
        for selector in spec.get("selectors") or ():
            if (selector.get("cel") or {}).get("expression") and selected_driver(selector) is None:
                raise errors.not_implemented('selectors of devices other than device.driver == "<driver>"')

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Refuse selectors that cannot be evaluated."""
        self.check_create(obj)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check that selectors say something."""
        selectors = obj["spec"].get("selectors") or []
        problems = [
            FieldError(f"spec.selectors[{index}].cel", "Required")
            for index, selector in enumerate(selectors)
            if not (selector.get("cel") or {}).get("expression")
        ]
        return problems + (
            [too_many("spec.selectors", errors.OMITTED, _MOST_SELECTORS)] if len(selectors) > _MOST_SELECTORS else []
        )


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "resource.k8s.io",
        "DeviceClass",
        "deviceclasses",
        strategy=DeviceClassStrategy(),
        namespaced=False,
    )
