"""What kubernetes_asyncio has for kubeconfigs, without its client.

Guarantees:
- Only the modules that read kubeconfigs are imported. The package would import its client before them, a module for
  each kind of object that Kubernetes knows, of which they need one class: that is a third of a second and 36 MB, which
  the manager and every command that reaches a cluster would pay.
- Whoever imports kubernetes_asyncio itself gets all of it, before and after.
- A version whose modules need more of the client is imported whole.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

_LIBRARY: Final = "kubernetes_asyncio"
_READER: Final = f"{_LIBRARY}.config.kube_config"


def import_reader() -> ModuleType:
    """Import the module that reads kubeconfigs."""
    if _LIBRARY in sys.modules:
        return import_module(_READER)
    try:
        return _import_without_client()
    except ImportError:
        return import_module(_READER)


def _import_without_client() -> ModuleType:
    """Import it into packages that have not run, of which nothing stays but what it refers to."""
    try:
        _add_package(find_spec(_LIBRARY))
        client: Any = _add_package(find_spec(f"{_LIBRARY}.client"))
        client.Configuration = import_module(f"{_LIBRARY}.client.configuration").Configuration
        client.ApiClient = object  # in annotations, and of functions that make one
        return import_module(_READER)
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _LIBRARY]:
            del sys.modules[name]


def _add_package(spec: ModuleSpec | None) -> ModuleType:
    """Make a package whose modules can be imported, without running it."""
    if spec is None:
        raise ImportError(name=_LIBRARY)
    package = module_from_spec(spec)
    sys.modules[spec.name] = package
    return package


if TYPE_CHECKING:
    from kubernetes_asyncio.config import ConfigException
    from kubernetes_asyncio.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger
else:
    _reader = import_reader()
    ConfigException, ConfigNode = _reader.ConfigException, _reader.ConfigNode
    KubeConfigLoader, KubeConfigMerger = _reader.KubeConfigLoader, _reader.KubeConfigMerger

__all__ = ["ConfigException", "ConfigNode", "KubeConfigLoader", "KubeConfigMerger"]
