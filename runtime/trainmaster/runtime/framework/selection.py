"""Selection: which plugins serve a TrainJob, as far as its runtime says. No plugin is asked."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.runtime.framework.custom_policies import customs
from trainmaster.runtime.framework.descriptor import Descriptor
from trainmaster.runtime.info import Info


class Selection:
    """What plugins say of whom they serve.

    Args:
        descriptors: What they say of themselves, by name.
    """

    def __init__(self, descriptors: Mapping[str, Descriptor]) -> None:
        self.deciding = frozenset(name for name, each in descriptors.items() if each.decides)
        """Those that decide for each TrainJob, and have to be asked."""

        self.serving_all = frozenset(name for name, each in descriptors.items() if each.serves_all)
        self._by_policy: dict[str, set[str]] = {}
        self._custom: set[tuple[str, str]] = set()
        for name, each in descriptors.items():
            if name not in self.deciding:
                for policy in each.policies:
                    self._by_policy.setdefault(policy, set()).add(name)
                self._custom.update((policy, name) for policy in each.custom_policies)

    def chosen(self, info: Info) -> set[str]:
        """Return the plugins that serve all TrainJobs, or a policy of a runtime."""
        chosen = set(self.serving_all)
        for policy in (info.ml_policy, info.pod_group_policy):
            # Asking a model for what it does not have costs more than all the rest of this.
            if policy is not None:
                for name in policy.model_fields_set:
                    if name in self._by_policy and getattr(policy, name) is not None:
                        chosen |= self._by_policy[name]
        for field, custom in customs(info.ml_policy, info.pod_group_policy):
            if (field, custom.name) in self._custom:
                chosen.add(custom.name)
        return chosen
