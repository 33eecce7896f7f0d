"""One plugin in full: what it is, whom it serves, what it needs of the cluster, which options it has."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import BaseModel

from trainmaster.controller.cli.plugins.installed import InstalledPlugin, served_policies
from trainmaster.controller.manager import caches
from trainmaster.controller.reconciling import rights
from trainmaster.controller.resources import watched_resource
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.framework.framework import Framework
from trainmaster.runtime.listers import Watch

_ALL_JOBS = "all TrainJobs"


def shown(installed: InstalledPlugin) -> dict[str, Any]:
    """Return what is to be told of a plugin, for people and programs alike; what is empty is left out."""
    descriptor, plugin = installed.descriptor, installed.plugin
    told: dict[str, Any] = {
        "name": installed.name,
        "about": _summary(plugin),
        "distribution": f"{installed.distribution} {installed.version}".strip(),
        "class": installed.point.value,
        "state": installed.state,
        "reason": installed.reason,
    }
    if descriptor is not None:
        told |= {
            "apiVersion": descriptor.api_version,
            "maturity": descriptor.maturity,
            "featureGate": descriptor.feature_gate,
            "order": installed.position,
            "before": list(descriptor.place.before),
            "after": list(descriptor.place.after),
            "priority": descriptor.place.priority,
            "serves": _whom(installed),
            "replaces": list(descriptor.replaces),
            "failurePolicy": descriptor.failure_policy,
            "extensionPoints": list(descriptor.extension_points),
        }
    if descriptor is not None and plugin is not None:
        told["options"] = _options(installed)
        told["customPolicies"] = {
            f"{policy}.custom.config": fields_of(model) for policy, model in descriptor.custom_policies.items()
        }
        told["watches"] = _watches(installed)
    return {key: value for key, value in told.items() if value not in (None, "", [], {})}


def _summary(plugin: Any) -> str:
    text = inspect.getdoc(type(plugin)) if plugin is not None else None
    return (text or "").partition("\n\n")[0].replace("\n", " ")


def _whom(installed: InstalledPlugin) -> str:
    descriptor = installed.descriptor
    if descriptor is None:
        return ""
    if descriptor.decides:
        return "the TrainJobs for which its applies_to says so"
    policies = served_policies(descriptor)
    return f"TrainJobs whose runtime has {' or '.join(policies)}" if policies else _ALL_JOBS


def _options(installed: InstalledPlugin) -> dict[str, Any]:
    if installed.descriptor is not None and installed.descriptor.options_model is not None:
        return fields_of(installed.descriptor.options_model)
    signature = inspect.signature(type(installed.plugin))
    return {
        name: {"default": "required" if each.default is each.empty else repr(each.default)}
        for name, each in signature.parameters.items()
        # What is a function is for tests and for code that embeds us; no file can hold one.
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and not callable(each.default)
    }


def fields_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of a model: what each is, and what it is by default."""
    schema = model.model_json_schema()
    required = schema.get("required", [])
    return {
        name: {
            **{key: value for key, value in field.items() if key not in ("title", "default")},
            "default": "required" if name in required else field.get("default"),
        }
        for name, field in schema.get("properties", {}).items()
    }


def _watches(installed: InstalledPlugin) -> list[dict[str, Any]]:
    if installed.plugin is None:
        return []
    try:
        watches = Framework([installed.plugin]).watches()
    except PluginInvalid as error:
        return [{"error": str(error)}]
    return [_watch(each) for each in watches]


def _watch(watch: Watch) -> dict[str, Any]:
    rules = [*caches.policy_rules([watch]), *rights.trainjob_rules([watch])]
    told = {
        "apiVersion": watch.api_version,
        "kind": watch.kind,
        "labelSelector": watch.label_selector,
        "namespaces": list(watch.namespaces),
        "metadataOnly": watch.metadata_only,
        "workload": watch.workload,
        "optional": watch.optional,
        "rights": sorted({verb for rule in rules for verb in rule.verbs if rule.resource == watched_resource(watch)}),
    }
    return {key: value for key, value in told.items() if value}
