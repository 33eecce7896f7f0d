#!/bin/sh
# Run a command as the kubelet runs the container of deploy/base: run_rootfs.sh ROOT UID:GID VOLUMES COMMAND...
#
# The root file system is read-only, /tmp is the only place to write; no capability, no way to get one. VOLUMES has
# `serviceaccount` and `controller_manager_config.yaml`, which are mounted where the manifests mount them. The command has
# the environment and the process id of this script.
set -eu
# shellcheck disable=SC2016 # the inner shell expands them
exec unshare --mount --propagation private sh -euc '
    root=$1 user=$2 volumes=$3
    shift 3
    mount --bind "$root" "$root"
    mount -o remount,bind,ro "$root"
    mount --bind /proc "$root/proc"
    for device in null random urandom; do mount --bind "/dev/$device" "$root/dev/$device"; done
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mount --bind "$volumes/serviceaccount" "$root/var/run/secrets/kubernetes.io/serviceaccount"
    mount --bind "$volumes/controller_manager_config.yaml" "$root/controller_manager_config.yaml"
    exec setpriv --no-new-privs "$(PATH=$PATH:/usr/sbin:/sbin command -v chroot)" --userspec="$user" "$root" "$@"
' sh "$@"
