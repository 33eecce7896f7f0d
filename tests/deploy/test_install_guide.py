"""docs/install.md says what is there, and what it says works."""

import re
from pathlib import Path

import yaml
from support.manifests import CHART, DEPLOY, NEEDS_KUBECTL, OVERLAYS, ROOT, by_identity, kustomize

from trainmaster.runtime.version import __version__

GUIDE = (ROOT / "docs/install.md").read_text()


def section(title: str) -> str:
    """The text below a heading, up to the next one of the same rank."""
    rank = title.partition(" ")[0]
    _, _, after = GUIDE.partition(f"\n{title}\n")
    assert after, title
    return re.split(rf"\n{rank} ", after)[0]


def test_every_overlay_is_explained_and_has_its_values() -> None:
    for title in ("### Overlays", "## With Helm"):
        explained = set(re.findall(r"^\| `([a-z-]+)` \|", section(title), re.MULTILINE))
        assert explained == set(OVERLAYS) - ({"standalone"} if title == "## With Helm" else set())


def test_every_value_that_is_named_is_there() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = re.findall(r"`((?:[a-zA-Z]+\.)+[a-zA-Z]+)`", section("## With Helm"))
    assert len(named) > 8
    for path in named:
        if path == "trainer.kubeflow.org":
            continue
        place = values
        for key in path.split("."):
            assert key in place, path
            place = place[key]


def test_versions_are_the_same_everywhere() -> None:
    dependencies = {
        each["name"]: each["version"] for each in yaml.safe_load((CHART / "Chart.yaml").read_text())["dependencies"]
    }
    assert f"/jobset/releases/download/v{dependencies['jobset']}/manifests.yaml" in section("## With kubectl")
    assert f"LeaderWorkerSet](https://lws.sigs.k8s.io) {dependencies['lws']}" in section("## With kubectl")
    assert dependencies["jobset"] in (ROOT / "hack/kind/versions.sh").read_text()
    assert f"`trainmaster:{__version__}`" in GUIDE


@NEEDS_KUBECTL[0]
@NEEDS_KUBECTL[1]
def test_the_example_of_an_installation_renders(tmp_path: Path) -> None:
    example, generator = re.findall(r"```yaml\n(.*?)\n *```", section("## With kubectl"), re.DOTALL)
    configuration = (DEPLOY / "base/controller_manager_config.yaml").read_text().replace("port: 9443", "port: 9444")
    (tmp_path / "controller_manager_config.yaml").write_text(configuration)
    up = "../" * (len(tmp_path.resolve().parts) - 1)
    content = example.replace("../trainmaster/deploy", f"{up}{str(DEPLOY.resolve())[1:]}")
    more = "\n".join(line.removeprefix("  ") for line in generator.splitlines())
    (tmp_path / "kustomization.yaml").write_text(f"{content}\n{more}\n")
    objects = by_identity(kustomize(tmp_path))
    deployment = objects["Deployment", "kubeflow", "kubeflow-trainer-controller-manager"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert deployment["spec"]["replicas"] == 2
    assert container["image"] == f"registry.example.com/trainmaster:{__version__}"
    data = objects["ConfigMap", "kubeflow", "kubeflow-trainer-config"]["data"]
    assert data == {"controller_manager_config.yaml": configuration}
