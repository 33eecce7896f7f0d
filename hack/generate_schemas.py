"""Write what Trainmaster knows of the schemas of Kubernetes; `--check` only compares.

- The OpenAPI definitions of the kinds that the embedded cluster serves, of the release that it says it is.
- The table that tells how objects merge: what strategic merge and server-side apply ask of a schema and nothing else,
  which fields are objects, maps and lists, and how each of them merges. Fields that hold a scalar are left out: they
  can only be replaced. `MergeSchema` reads the table and describes the form of its entries.
"""

from __future__ import annotations

import sys
from pathlib import Path

import generator
import kubernetes_schemas
from kubernetes_schemas import Node
from trainmaster.devcluster.apiserver.schema import RELEASE

ROOT = Path(__file__).parents[1]
DEFINITIONS = ROOT / "hack/trainmaster/devcluster/apiserver/schema/definitions.json"
TABLE = ROOT / "runtime/trainmaster/runtime/strategicpatch/table.json"

PARTS = ("io.k8s.api.batch.v1.JobTemplateSpec",)
"""What objects of other APIs hold and no built-in kind does: a JobSet is made of these."""

_RENAMED = {
    "x-kubernetes-list-map-keys": "mapKeys",
    "x-kubernetes-list-type": "listType",
    "x-kubernetes-map-type": "mapType",
    "x-kubernetes-patch-merge-key": "mergeKey",
    "x-kubernetes-patch-strategy": "strategies",
}


def main() -> int:
    """Write files in which each name has its entry in a line."""
    served = kubernetes_schemas.load(*kubernetes_schemas.ALPHA, release=RELEASE)
    alpha = {name: node for name, node in served.items() if ".v1alpha" in name}
    definitions = alpha | kubernetes_schemas.load(*PARTS)
    table = {name: _entry(node, definitions) for name, node in definitions.items() if not _holds_scalar(node)}
    contents = {DEFINITIONS: served, TABLE: table}
    files = {path: kubernetes_schemas.one_per_line(content) + "\n" for path, content in contents.items()}
    return generator.write(files, check=generator.parser(__doc__).parse_args().check)


def _entry(node: Node, definitions: dict[str, Node]) -> Node:
    """Give the table's entry for a schema; empty if the schema holds a scalar."""
    entry: Node = {}
    if "$ref" in node:
        if _holds_scalar(definitions[node["$ref"]]):
            return {}
        entry["ref"] = node["$ref"]
    elif "properties" in node:
        fields = {name: _entry(schema, definitions) for name, schema in node["properties"].items()}
        entry["fields"] = {name: field for name, field in fields.items() if field}
    elif "items" in node:
        entry["items"] = _entry(node["items"], definitions)
    elif node.get("type") == "object":
        entry["values"] = _entry(node.get("additionalProperties", {}), definitions)
    for extension, key in _RENAMED.items():
        if extension in node:
            entry[key] = node[extension]
    if "strategies" in entry:
        entry["strategies"] = entry["strategies"].split(",")
    return entry


def _holds_scalar(definition: Node) -> bool:
    """Tell whether values of the definition have no inner structure to merge: Time, Quantity, or JSON of any shape."""
    return definition.get("type") not in {"array", "object"}


if __name__ == "__main__":
    sys.exit(main())
