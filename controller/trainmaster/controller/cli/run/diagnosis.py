"""What is wrong with manifests, in the words of `trainmaster validate`: with line, field, and what was probably meant.

It only explains; whether an object is refused is said by the server alone, which may have other definitions, runtimes
and plugins. Where the definitions are not installed, or a plugin does not load, it has nothing to say.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from trainmaster.controller.cli.manifests import Manifest


class Diagnosis:
    """Of the manifests of some files; made when it is asked for, since most files are sound.

    Args:
        manifests: The manifests.
        namespace: Of objects that name none.
    """

    def __init__(self, manifests: Sequence[Manifest], *, namespace: str | None) -> None:
        self._manifests = manifests
        self._namespace = namespace

    def errors(self, manifest: Manifest | None = None) -> list[str]:
        """Return what is wrong with a manifest, or with all of them."""
        if manifest is not None:
            return list(self._errors.get(id(manifest), ()))
        return [error for errors in self._errors.values() for error in errors]

    @functools.cached_property
    def _errors(self) -> Mapping[int, list[str]]:
        # Most files are sound, and these take longer than all the rest.
        try:
            from trainmaster.controller.cli.offline import OfflineValidation  # noqa: PLC0415 - see above
        except ImportError:
            return {}
        from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins  # noqa: PLC0415 - see above
        from trainmaster.runtime.jobs.loader import load_job_kinds  # noqa: PLC0415 - see above

        try:
            validation = OfflineValidation(
                self._manifests,
                Framework(load_plugins()),
                namespace=self._namespace or "default",
                job_kinds=load_job_kinds,
                runtimes_elsewhere=True,
            )
        except (ImportError, RuntimeError, PluginInvalid):
            return {}
        return {
            id(validated.manifest): [
                str(diagnostic) for diagnostic in validated.diagnostics if diagnostic.severity == "error"
            ]
            for validated in validation.validated
        }
