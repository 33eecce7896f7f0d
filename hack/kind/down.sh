#!/usr/bin/env bash
# Delete the kind cluster: hack/kind/down.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/versions.sh"
need kind

kind delete cluster --name "$CLUSTER" --kubeconfig "$kubeconfig"
