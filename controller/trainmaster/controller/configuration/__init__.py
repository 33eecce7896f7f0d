"""The configuration file: `config.trainer.kubeflow.org/v1alpha1`, kind `Configuration`, as the Go controller reads it.

- `types`: its sections, with defaults, what is allowed, and what each option does;
- `fields`: durations, addresses and other values as Go writes them;
- `loading`: from the texts of files to a `Configuration`, or all of their errors;
- `validation`: what sections say of each other, and what has no effect;
- `effective`: files, flags and the environment together: what a manager does;
- `reload`: follows the files while the manager runs.

Guarantees:
- Reading is strict: unknown and repeated fields are errors, and all errors are reported together, each with its path.
- What could have no effect is refused, or told by `notices` where the file that the original ships says it.
"""

from trainmaster.controller.configuration.effective import (
    EffectiveConfiguration,
    Override,
    complete,
    effective_configuration,
)
from trainmaster.controller.configuration.fields import (
    LONGEST_SHUTDOWN_DELAY,
    OFF,
    is_loopback,
    parse_address,
    traces_url,
)
from trainmaster.controller.configuration.loading import (
    ConfigurationFile,
    ConfigurationInvalid,
    Problem,
    decode_configuration,
    load_configuration,
    parse_configuration,
)
from trainmaster.controller.configuration.types import (
    CertManagement,
    Configuration,
    Controller,
    Health,
    LeaderElection,
    Metrics,
    MetricsAuth,
    Plugins,
    StatusServer,
    Tls,
    Tracing,
    TrainingOperator,
    Webhook,
)
from trainmaster.controller.configuration.validation import manages_certificates

__all__ = [
    "LONGEST_SHUTDOWN_DELAY",
    "OFF",
    "CertManagement",
    "Configuration",
    "ConfigurationFile",
    "ConfigurationInvalid",
    "Controller",
    "EffectiveConfiguration",
    "Health",
    "LeaderElection",
    "Metrics",
    "MetricsAuth",
    "Override",
    "Plugins",
    "Problem",
    "StatusServer",
    "Tls",
    "Tracing",
    "TrainingOperator",
    "Webhook",
    "complete",
    "decode_configuration",
    "effective_configuration",
    "is_loopback",
    "load_configuration",
    "manages_certificates",
    "parse_address",
    "parse_configuration",
    "traces_url",
]
