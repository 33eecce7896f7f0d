"""A plugin whose result depends on the order of a set, in a module that other processes can import."""

from trainmaster.runtime.sdk import Info


class Unordered:
    name = "unordered"

    def pre_build(self, info: Info) -> None:
        info.annotations["zones"] = ",".join({f"zone-{number}" for number in range(20)})


class Ordered:
    name = "ordered"

    def pre_build(self, info: Info) -> None:
        info.annotations["zones"] = ",".join(sorted({f"zone-{number}" for number in range(20)}))
