"""Rules of names, which the embedded cluster shares with the admission of TrainJobs."""

from trainmaster.runtime.names import (
    NameRule,
    dns_label,
    dns_label_1035,
    dns_subdomain,
    label_value,
    path_segment,
    qualified_name,
)

__all__ = ["NameRule", "dns_label", "dns_label_1035", "dns_subdomain", "label_value", "path_segment", "qualified_name"]
