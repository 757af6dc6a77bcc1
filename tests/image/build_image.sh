#!/usr/bin/env bash
# Builds the image of the Dockerfile without a registry and without a daemon, in a storage of its own.
#
#   build_image.sh STORE      as root, with buildah and debootstrap; prints the storage driver and the image's id
#
# The base image is a minimal Debian with Python, made once by debootstrap and kept, as a tar file, in the user's cache
# (XDG_CACHE_HOME): 40 s and 55 MB, against 6 s from the cache. Remove STORE when done; nothing else is left behind.
set -euo pipefail

store=${1:?usage: build_image.sh STORE}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
project=$(cd "$here/../.." && pwd)
suite=bookworm
mkdir -p "$store"
packages=ca-certificates,python3,python3-pip,python3-venv
architecture=$(dpkg --print-architecture)
base_tar=${XDG_CACHE_HOME:-$HOME/.cache}/slopewise/image-base/debian-$suite-$architecture-python.tar.gz

# overlay shares layers, vfs copies each one (19 s more for every container) but works also on top of an overlay.
driver=vfs
! buildah --root "$store/probe/root" --runroot "$store/probe/run" --storage-driver overlay info &> /dev/null || driver=overlay
rm -rf "$store/probe"

in_store() {
    buildah --root "$store/root" --runroot "$store/run" --storage-driver "$driver" "$@"
}

# A new file under another name, renamed at the end: two runs at once, or a killed one, leave no half of a base.
make_base_tar() {
    local rootfs=$store/debootstrap draft
    debootstrap --variant=minbase --include="$packages" "$suite" "$rootfs" >&2
    rm -rf "$rootfs"/var/cache/apt/archives/*.deb "$rootfs"/var/lib/apt/lists/* "$rootfs"/usr/share/{doc,locale,man}/*
    mkdir -p "$(dirname "$base_tar")"
    draft=$(mktemp "$base_tar.XXXXXX")
    tar --create --gzip --file "$draft" --directory "$rootfs" --exclude=./dev --exclude=./proc --exclude=./sys .
    mv "$draft" "$base_tar"
    rm -rf "$rootfs"
}

import_base() {
    local container
    container=$(in_store from scratch)
    in_store add --quiet "$container" "$base_tar" / >&2
    in_store config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
    in_store commit --quiet --rm "$container" slopewise-base >&2
}

# How this machine reaches a package index is no business of the Dockerfile: pip in the build reads it from a mounted
# pip.conf, and nothing of it gets into the image.
pip_mounts() {
    {
        echo "[global]"
        echo "progress-bar = off"
        [[ -z ${PIP_INDEX_URL:-} ]] || echo "index-url = $PIP_INDEX_URL"
        [[ -z ${PIP_CERT:-} ]] || echo "cert = /run/pip-ca.crt"
    } > "$store/pip.conf"
    mounts=(--volume "$store/pip.conf:/etc/pip.conf:ro")
    [[ -z ${PIP_CERT:-} ]] || mounts+=(--volume "$PIP_CERT:/run/pip-ca.crt:ro")
}

[[ -f $base_tar ]] || make_base_tar
import_base
pip_mounts
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$project/controller/__init__.py")
in_store bud --isolation chroot "${mounts[@]}" --build-arg BASE_IMAGE=localhost/slopewise-base \
    --build-arg VERSION="$version" --tag slopewise --iidfile "$store/image-id" "$project" >&2
echo "$driver $(< "$store/image-id")"
