"""What is in the wheel and the source distribution, and programs of Debian packages."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from email.parser import Parser
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("controller", "runtime", "plugins", "metrics", "hack")
PACKAGES = {"controller", "runtime", "plugins", "metrics", "devcluster", "testing"}
CRDS = {
    "kubeflow.org_jaxjobs.yaml",
    "kubeflow.org_mpijobs.yaml",
    "kubeflow.org_paddlejobs.yaml",
    "kubeflow.org_pytorchjobs.yaml",
    "kubeflow.org_tfjobs.yaml",
    "kubeflow.org_xgboostjobs.yaml",
    "trainer.kubeflow.org_clustertrainingruntimes.yaml",
    "trainer.kubeflow.org_optimizationjobs.yaml",
    "trainer.kubeflow.org_trainingruntimes.yaml",
    "trainer.kubeflow.org_trainjobs.yaml",
}

WITHOUT_CHECKOUT = """
import sys

unpacked, checkout = sys.argv[1:]
# Keep the dependencies of this environment, but not the source roots, which an editable install puts on the path.
sys.path[:] = [unpacked, *(entry for entry in sys.path if "site-packages" in entry or not entry.startswith(checkout))]

from trainmaster.controller.cli.crds import definition_files
from trainmaster.controller.cli.files.offline import built_in_names
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    TRAINING_OPERATOR_DEFINITIONS,
    definition_file,
)
from trainmaster.runtime.framework import load_plugins
from trainmaster.runtime.strategicpatch import definition

deployed = (*TRAINER_DEFINITIONS, *TRAINING_OPERATOR_DEFINITIONS)
for name in (*JOBSET_DEFINITIONS, *GANG_DEFINITIONS, *deployed):
    assert definition_file(name).is_relative_to(unpacked), definition_file(name)
# The controller has them, whether or not the embedded cluster is there.
assert len(definition_files()) == len(deployed)
assert all("devcluster" not in str(path) and path.is_relative_to(unpacked) for path in definition_files().values())
assert len(built_in_names()) == 9, built_in_names()
assert definition("io.k8s.api.core.v1.PodSpec").field("containers").patch_merge_key == "name"
assert {"torch", "plainml", "jobset"} <= {plugin.name for plugin in load_plugins()}
foreign = [
    module.__file__
    for name, module in sys.modules.items()
    if name.startswith("trainmaster.") and not module.__file__.startswith(unpacked)
]
assert not foreign, foreign
"""


def modules() -> dict[str, Path]:
    """Every module of the checkout by its place in a wheel."""
    return {
        str(path.relative_to(ROOT / root)): path
        for root in SOURCE_ROOTS
        for path in sorted((ROOT / root / "trainmaster").rglob("*.py"))
    }


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with an sdist of the checkout and the wheel that was built from that sdist."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    pytest.importorskip("build", reason="the build frontend is not installed")
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, checkout / name)
    for name in (*SOURCE_ROOTS, "deploy"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", out, checkout],
        check=True,
        capture_output=True,
        text=True,
    )
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Iterator[zipfile.ZipFile]:
    """The built wheel."""
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_checkout_has_no_init_in_the_namespace() -> None:
    """One would hide the other portions of the namespace as soon as it is imported first."""
    assert [root for root in SOURCE_ROOTS if (ROOT / root / "trainmaster/__init__.py").exists()] == []


def test_the_wheel_has_one_top_level_package(wheel: zipfile.ZipFile) -> None:
    """Generic names like `runtime` would overwrite files of other distributions."""
    assert {name.partition("/")[0].partition("-")[0] for name in wheel.namelist()} == {"trainmaster"}
    assert "trainmaster/__init__.py" not in wheel.namelist()


def test_the_wheel_has_every_module_and_no_other(wheel: zipfile.ZipFile) -> None:
    """Built from the sdist, it shows that neither of them loses a portion of the namespace."""
    assert {name for name in wheel.namelist() if name.endswith(".py")} == set(modules())


def test_every_package_is_typed(wheel: zipfile.ZipFile) -> None:
    assert {f"trainmaster/{package}/py.typed" for package in PACKAGES} <= set(wheel.namelist())


def test_every_directory_of_modules_is_a_package() -> None:
    """A forgotten `__init__.py` makes a second namespace package, which tools treat differently."""
    directories = {Path(name).parent for name in modules()} - {Path("trainmaster")}
    assert [str(each) for each in sorted(directories) if str(each / "__init__.py") not in modules()] == []


def test_the_wheel_has_its_data(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert "trainmaster/runtime/strategicpatch/table.json" in names
    assert "trainmaster/devcluster/apiserver/schema/definitions.json" in names
    assert "trainmaster/devcluster/crds/jobset.x-k8s.io_jobsets.yaml" in names
    assert {f"trainmaster/runtime/crds/{name}" for name in CRDS} <= names
    runtimes = {path.name for path in (ROOT / "deploy/runtimes").glob("*.yaml")}
    assert {f"trainmaster/runtime/runtimes/{name}" for name in runtimes} <= names
    assert not [name for name in names if name.endswith("Kustomization")], "kustomize alone reads these"


def test_the_wheel_has_its_entry_points(wheel: zipfile.ZipFile) -> None:
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    points = ConfigParser()
    points.read_string(wheel.read(path).decode())
    assert dict(points["console_scripts"]) == {"trainmaster": "trainmaster.controller.cli:main"}
    assert {"torch", "plainml", "jobset"} <= set(points["trainmaster.plugins"])
    assert points["trainmaster.commands"]["cluster"] == "trainmaster.devcluster.cli.command:command"
    assert points["pytest11"]["trainmaster"] == "trainmaster.testing.fixtures"
    assert points["trainmaster.schemas"]["trainer"] == "trainmaster.devcluster.apiserver.registry.offline:check"
    for group in points.sections():
        for target in points[group].values():
            module = target.partition(":")[0].replace(".", "/")
            assert {f"{module}.py", f"{module}/__init__.py"} & set(wheel.namelist()), target


def test_the_wheel_has_the_licence(wheel: zipfile.ZipFile) -> None:
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
    assert wheel.read(path) == (ROOT / "LICENSE").read_bytes()
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    assert Parser().parsestr(wheel.read(metadata).decode())["License-Expression"] == "Apache-2.0"


def test_the_sdist_has_what_the_wheel_is_built_from(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {str(path.relative_to(ROOT)) for path in modules().values()} <= names
    assert {"deploy/crds/trainer.kubeflow.org_trainjobs.yaml", "LICENSE", "README.md"} <= names


def test_the_wheel_works_without_the_checkout(dist: Path, tmp_path: Path) -> None:
    """Unpacked alone, with the dependencies of this environment: the plugins load and the data files are found."""
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(WITHOUT_CHECKOUT, encoding="utf-8")
    command = [sys.executable, "-P", str(script), str(tmp_path), str(ROOT)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A checkout on a machine without apt, and without any of the programs."""
    (tmp_path / "hack").mkdir()
    shutil.copy(ROOT / "hack/debian_packages.sh", tmp_path / "hack")
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "dirname", "mkdir"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "hack/debian_packages.sh", *arguments],
        env={"PATH": str(checkout / "bin")}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_without_apt_it_says_what_must_be_installed(elsewhere: Path) -> None:
    made = run(elsewhere, "promtool", "chromium")
    assert made.returncode == 1
    assert "no apt-get on this machine: promtool chromium must be on the PATH" in made.stderr


def test_what_is_optional_fails_nothing_and_is_told_all_the_same(elsewhere: Path) -> None:
    made = run(elsewhere, "--optional", "promtool")
    assert made.returncode == 0
    assert "promtool must be on the PATH" in made.stderr


def test_a_program_on_the_path_is_left_at_that(elsewhere: Path) -> None:
    (elsewhere / "bin/promtool").symlink_to("/bin/sh")
    made = run(elsewhere, "promtool")
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
    assert not (elsewhere / ".cache").exists()


def test_an_unknown_program_is_refused_with_those_that_are_known(elsewhere: Path) -> None:
    made = run(elsewhere, "grafana")
    assert made.returncode == 2
    assert "no program grafana; it knows chromium, prometheus, promtool, sshd, valgrind and vgdb" in made.stderr
