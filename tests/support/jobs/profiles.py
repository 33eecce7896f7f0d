"""The settings with which the cases of V1 jobs were recorded, by the flags and the environment of the original."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import MappingProxyType
from typing import Final

from support.sim.world import quiet

from trainmaster.controller.cli.training_operator_flags import (
    add_training_operator_flags,
    overrides_of_environment,
    overrides_of_flags,
)
from trainmaster.controller.configuration import Configuration
from trainmaster.controller.configuration.overrides import override

_TEMPLATE: Final = Path(__file__).resolve().parents[2] / "golden/init-container-template.yaml"

FLAGS: Final = MappingProxyType(
    {
        "none": (),
        "volcano": ("--gang-scheduler-name=volcano",),
        "scheduler-plugins": ("--gang-scheduler-name=scheduler-plugins-scheduler",),
        "custom": (
            "--pytorch-init-container-image=registry.example/tools/busybox:9",
            "--pytorch-init-container-max-tries=7",
            "--mpi-kubectl-delivery-image=registry.example/kd:v3",
        ),
        "template": (f"--pytorch-init-container-template-file={_TEMPLATE}",),
    }
)
"""By profile."""

ENVIRONMENT: Final = MappingProxyType({"custom": {"CUSTOM_CLUSTER_DOMAIN": "corp.example"}})


def configuration_of(profile: str) -> Configuration:
    """Return the configuration of a profile, without servers and election."""
    parser = argparse.ArgumentParser()
    add_training_operator_flags(parser)
    given = (
        *overrides_of_environment(ENVIRONMENT.get(profile, {})),
        *overrides_of_flags(parser.parse_args(FLAGS[profile])),
    )
    return override(quiet(elects=False), given).configuration
