#!/usr/bin/env bash
# Bring up a kind cluster with JobSet and Trainmaster, its image built from this checkout: hack/kind/up.sh
# Done again it brings the cluster up to date. What can be chosen: versions.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/versions.sh"
need docker kind kubectl git

mkdir -p "$(dirname "$kubeconfig")" "$root/build/kind"
if ! kind get clusters | grep -qx "$CLUSTER"; then
    kind create cluster --name "$CLUSTER" --kubeconfig "$kubeconfig" --config "$root/hack/kind/kind.yaml" --wait 5m \
        ${NODE_IMAGE:+--image "$NODE_IMAGE"}
fi
kind export kubeconfig --name "$CLUSTER" --kubeconfig "$kubeconfig"

docker build --tag "$IMAGE" \
    --build-arg SOURCE_DATE_EPOCH="$(git -C "$root" log -1 --format=%ct)" \
    --build-arg REVISION="$(git -C "$root" rev-parse HEAD)" "$root"
# A test may not have to wait for a registry.
docker pull --quiet "$E2E_IMAGE"
kind load docker-image --name "$CLUSTER" "$IMAGE" "$E2E_IMAGE"

kube apply --server-side --force-conflicts \
    -f "https://github.com/kubernetes-sigs/jobset/releases/download/$JOBSET_VERSION/manifests.yaml"
kube -n jobset-system rollout status deployment/jobset-controller-manager --timeout=5m

# The overlay that users apply, with the image that was built.
overlay=$(mktemp -d "$root/build/kind/overlay.XXXXXX")
trap 'rm -rf "$overlay"' EXIT
cat >"$overlay/kustomization.yaml" <<EOF
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - ../../../deploy/overlays/standalone
images:
  - name: trainmaster
    newName: ${IMAGE%:*}
    newTag: ${IMAGE##*:}
EOF
kube apply --server-side --force-conflicts -k "$overlay"
kube -n kubeflow rollout restart deployment/kubeflow-trainer-controller-manager # the same tag may be another image
kube -n kubeflow rollout status deployment/kubeflow-trainer-controller-manager --timeout=5m
kube apply --server-side --force-conflicts -k "$root/deploy/overlays/runtimes"

echo "export KUBECONFIG=$kubeconfig"
