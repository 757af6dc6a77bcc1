#!/usr/bin/env bash
# Builds the images without a registry and without a daemon. As root, with buildah and debootstrap:
#
#   build_image.sh                the controller's image; prints the storage's options and the image's id
#   build_image.sh FOLDER         and the trainer's; writes FOLDER/slopewise.tar and FOLDER/slopewise-trainer.tar, as
#                                 `docker save` does, for `python -m testbed load-image`; names: slopewise:VERSION,
#                                 slopewise-trainer:VERSION
#   build_image.sh FOLDER slopewise   the first of the two alone
#
# The variable REVISION becomes the label of that name.
#
# The base image is a minimal Debian with Python, made once by debootstrap. It (55 MB) and the layers of former builds
# (2 GB) are kept in the user's cache, XDG_CACHE_HOME: on two cores the first build takes 100 s, one after a change of
# our own code 20 s, one without any 10 s; a tar file is written only when its image has changed.
set -euo pipefail

# need PROGRAM…  Before anything that takes minutes; exit status 2, as for any other mistake that one can correct.
need() {
    local program missing=()
    for program in "$@"; do command -v "$program" > /dev/null || missing+=("$program"); done
    [[ ${#missing[@]} -eq 0 ]] && return
    echo "build_image.sh: not on the PATH: ${missing[*]}; install it (on Debian and Ubuntu: apt-get install ${missing[*]})," \
        "or build the image with docker (docs/deployment.md)." >&2
    exit 2
}
need buildah dpkg

out=${1:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
project=$(cd "$here/../.." && pwd)
suite=bookworm
packages=ca-certificates,python3,python3-pip,python3-venv
architecture=$(dpkg --print-architecture)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/slopewise
base_tar=$cache/image-base/debian-$suite-$architecture-python.tar.gz
base=localhost/slopewise-base:$suite
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$project/controller/slopewise/__init__.py")
store=$cache/image-store
MAX_STORE_KIB=$((6 * 1024 * 1024))  # unused layers are not sorted out: beyond 6 GB it starts from none

# Two builds at once would take each other's tags.
mkdir -p "$cache"
exec 9> "$cache/image-store.lock"
flock 9
scratch=$(mktemp -d "${TMPDIR:-/tmp}/slopewise-image.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# overlay shares layers and is kept. vfs, for where overlay cannot be mounted, copies 0.5 GB for each: not kept.
choose_storage() {
    driver=overlay
    layers=(--layers)
    if ! buildah --root "$scratch/probe" --runroot "$scratch/probe-run" --storage-driver overlay info &> /dev/null; then
        driver=vfs
        layers=()
    fi
    if [[ -d $store && ($driver = vfs || $(du -sk "$store" | cut -f1) -gt $MAX_STORE_KIB) ]]; then
        rm -rf "$store"
    fi
    storage=(--root "$store/root" --runroot "$store/run" --storage-driver "$driver")
}

in_store() {
    buildah "${storage[@]}" "$@"
}

# A new file under another name, renamed at the end: two runs at once, or a killed one, leave no half of a base.
make_base_tar() {
    local rootfs=$scratch/debootstrap draft
    debootstrap --variant=minbase --include="$packages" "$suite" "$rootfs" >&2
    rm -rf "$rootfs"/var/cache/apt/archives/*.deb "$rootfs"/var/lib/apt/lists/* "$rootfs"/usr/share/{doc,locale,man}/*
    mkdir -p "$(dirname "$base_tar")"
    draft=$(mktemp "$base_tar.XXXXXX")
    tar --create --gzip --file "$draft" --directory "$rootfs" --exclude=./dev --exclude=./proc --exclude=./sys .
    mv "$draft" "$base_tar"
}

import_base() {
    local container
    container=$(in_store from scratch)
    in_store add --quiet "$container" "$base_tar" / >&2
    in_store config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
    in_store commit --quiet --rm "$container" "$base" >&2
}

# How this machine reaches a package index is no business of the Dockerfile: pip in the build reads it from a mounted
# pip.conf, and nothing of it gets into the image. The path is the same each time, or no layer would be found again.
pip_mounts() {
    mkdir -p "$store"
    {
        echo "[global]"
        echo "progress-bar = off"
        [[ -z ${PIP_INDEX_URL:-} ]] || echo "index-url = $PIP_INDEX_URL"
        [[ -z ${PIP_CERT:-} ]] || echo "cert = /run/pip-ca.crt"
    } > "$store/pip.conf"
    mounts=(--volume "$store/pip.conf:/etc/pip.conf:ro")
    [[ -z ${PIP_CERT:-} ]] || mounts+=(--volume "$PIP_CERT:/run/pip-ca.crt:ro")
}

# build NAME DOCKERFILE [ARGUMENT=VALUE …]
build() {
    local name=$1 dockerfile=$2 arguments=()
    shift 2
    for argument in "$@"; do arguments+=(--build-arg "$argument"); done
    in_store bud --force-rm --isolation chroot "${layers[@]}" "${mounts[@]}" "${arguments[@]}" --file "$dockerfile" \
        --ignorefile "$scratch/ignored" --tag "localhost/$name:$version" --iidfile "$scratch/$name.id" "$project" >&2
}

# export_tar NAME
export_tar() {
    local tar=$out/$1.tar draft
    if [[ ! -f $tar || ! -f $tar.id || $(< "$tar.id") != "$(< "$scratch/$1.id")" ]]; then
        draft=$(mktemp -u "$tar.XXXXXX")
        in_store push --quiet "localhost/$1:$version" "docker-archive:$draft:$1:$version" >&2
        mv "$draft" "$tar"
        cp "$scratch/$1.id" "$tar.id"
    fi
    echo "$tar"
}

[[ -f $base_tar ]] || need debootstrap
choose_storage
[[ -f $base_tar ]] || make_base_tar
in_store inspect --type image "$base" &> /dev/null || import_base
pip_mounts
cp "$project/.dockerignore" "$scratch/ignored"
build slopewise "$project/Dockerfile" "BASE_IMAGE=$base" "VERSION=$version" \
    "REVISION=${REVISION:-unknown}"
if [[ -z $out ]]; then
    echo "${storage[*]} $(< "$scratch/slopewise.id")"
    exit
fi
mkdir -p "$out"
export_tar slopewise
[[ ${2:-} != slopewise ]] || exit 0
echo '!requirements-dev.lock' >> "$scratch/ignored"
build slopewise-trainer "$project/tests/cluster/trainer/Dockerfile" "BASE_IMAGE=$base" \
    "SLOPEWISE_IMAGE=localhost/slopewise:$version"
export_tar slopewise-trainer
