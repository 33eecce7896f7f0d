import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

IMPORT = "import sys; from trainmaster.controller.kube.auth import kubeconfig_library as library\n"
LOADED = "print(*sorted(name for name in sys.modules if name.startswith('kubernetes_asyncio')))\n"


def output_of(program: str, *, path: Path | None = None) -> str:
    """Run a program in an interpreter of its own, which finds modules in `path` first."""
    begin = "" if path is None else f"import sys; sys.path.insert(0, {str(path)!r})\n"
    command = [sys.executable, "-c", begin + program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_client_of_the_library_is_not_imported() -> None:
    """Neither by our modules nor by what they import; nothing is left that others would take for the library."""
    assert output_of(IMPORT + LOADED) == ""
    where = "print(library.KubeConfigLoader.__module__)"
    assert output_of(IMPORT + where) == "kubernetes_asyncio.config.kube_config"


@pytest.mark.parametrize("imports", ["{whole}{ours}", "{ours}{whole}"], ids=["before", "after"])
def test_others_get_all_of_the_library(imports: str) -> None:
    program = imports.format(whole="import kubernetes_asyncio\n", ours=IMPORT)
    program += "kubernetes_asyncio.config.load_kube_config, library.KubeConfigLoader\n"
    assert output_of(program + "print(kubernetes_asyncio.client.V1Pod(kind='Pod').kind)") == "Pod"


def test_a_version_that_needs_more_of_its_client_is_imported_whole(tmp_path: Path) -> None:
    library = tmp_path / "kubernetes_asyncio"
    for name, content in {
        "__init__.py": "import kubernetes_asyncio.client, kubernetes_asyncio.config\n",
        "client/__init__.py": "from kubernetes_asyncio.client.configuration import Configuration\nclass New: pass\n",
        "client/configuration.py": "class Configuration: pass\n",
        "config/__init__.py": "",
        "config/kube_config.py": (
            "from kubernetes_asyncio.client import Configuration, New\n"
            "class ConfigException(Exception): pass\n"
            "class ConfigNode: pass\n"
            "class KubeConfigLoader: pass\n"
            "class KubeConfigMerger: pass\n"
        ),
    }.items():
        (library / name).parent.mkdir(exist_ok=True)
        (library / name).write_text(content, encoding="utf-8")
    same = "import kubernetes_asyncio.config.kube_config as it; print(it.KubeConfigLoader is library.KubeConfigLoader)"
    assert output_of(IMPORT + same, path=tmp_path) == "True"


def test_without_the_library_it_says_what_is_missing() -> None:
    """The command line tells from the name what to install."""
    program = (
        "import importlib.machinery as m, sys\n"
        "class Absent(m.PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        return None if name == 'kubernetes_asyncio' else super().find_spec(name, path, target)\n"
        "sys.meta_path[sys.meta_path.index(m.PathFinder)] = Absent\n"
        "try: import trainmaster.controller.kube.auth.kubeconfig_library\n"
        "except ModuleNotFoundError as error: print(error.name)\n"
    )
    assert output_of(program) == "kubernetes_asyncio"
