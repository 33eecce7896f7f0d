# Runs in an image with a view of Flux, before the user's container: hands Flux and its configuration over to it. Above
# stand the hosts and the configuration of this job.

set -euo pipefail

flux=/mnt/flux
config=$flux/config

mkdir -p "$config/etc/flux/system" "$config/etc/flux/config" "$config/etc/curve" "$config/run/flux" "$config/var/lib/flux"
printf '%s\n' "$hosts" > "$config/etc/flux/system/hostlist"
printf '%s\n' "$broker_configuration" > "$config/etc/flux/config/broker.toml"

# A view is a directory of links into /opt/software, in a directory that Spack names.
view=$(find /opt/views/._view -mindepth 1 -maxdepth 1 -type d -print -quit)
if [[ -z $view ]]; then
    echo "there is no view of Flux in /opt/views/._view: FLUX_VIEW_IMAGE has to name an image with one" >&2
    exit 1
fi
# Init containers run again when a node restarts: what an earlier one left must not end up around the copy.
rm -rf "$flux/view" "$flux/software"
cp -R "$view" "$flux/view"
cp -R /opt/software "$flux/software"

# Helpers of the Flux Operator wait for this name.
touch "$flux/flux-operator-done.txt"
