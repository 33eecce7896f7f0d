#!/usr/bin/env bash
# Run the end-to-end tests on a kind cluster, which is made if there is none: hack/kind/e2e.sh [ARGUMENT OF PYTEST...]
# What the manager and the cluster say goes to build/kind/logs if a test fails. KEEP=1 keeps a cluster that was made here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/versions.sh"
need docker kind kubectl make

if ! kind get clusters | grep -qx "$CLUSTER"; then
    [ -n "${KEEP:-}" ] || trap 'kind delete cluster --name "$CLUSTER"' EXIT
fi
"$root/hack/kind/up.sh"

if ! TRAINMASTER_E2E_IMAGE=$E2E_IMAGE make -C "$root" e2e KUBECONFIG="$kubeconfig" ARGS="$*"; then
    logs=$root/build/kind/logs
    mkdir -p "$logs"
    kind export logs --name "$CLUSTER" "$logs" || true
    kube get pods,events,trainjobs,jobsets --all-namespaces -o wide >"$logs/objects.txt" || true
    kube -n kubeflow logs deployment/kubeflow-trainer-controller-manager --tail=-1 >"$logs/manager.log" || true
    echo "kind: the end-to-end tests failed; logs are in $logs" >&2
    exit 1
fi
