# What the scripts here install; each may be another one from outside. Sourced.
# shellcheck shell=bash
CLUSTER=${CLUSTER:-trainmaster}
IMAGE=${IMAGE:-trainmaster:e2e}
# The release that Kubeflow Trainer 2.3 comes with, which these definitions and tests are for.
JOBSET_VERSION=${JOBSET_VERSION:-v0.12.0}
# Empty: what this release of kind brings, which is pinned with it.
NODE_IMAGE=${NODE_IMAGE:-}
# Its `python3` runs in the pods of the tests.
E2E_IMAGE=${E2E_IMAGE:-python:3.13-slim}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
kubeconfig=${KIND_KUBECONFIG:-$root/build/kind/kubeconfig}

need() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || {
            echo "kind: there is no '$program' on PATH" >&2
            exit 1
        }
    done
}

kube() {
    kubectl --kubeconfig "$kubeconfig" "$@"
}
