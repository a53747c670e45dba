#!/usr/bin/env bash
# Installs the real parts that the tests marked "real" start: etcd, kube-apiserver, kube-controller-manager, kubemark
# (a kubelet that runs no containers), kubeadm, the kubelet, containerd, systemd, OpenSSH, and a browser.
#
# Usage: provision.sh [tpm] [image] [containers]
#
# "tpm" adds the software TPM, its tools, and what its Python library is compiled with; "image" a container engine, and
# a base that the Containerfile is built upon; "containers" what the kubelet runs Pods with, and clients that copy files.
# Safe to run again: what is there stays as it is.
# As root on Debian it installs packages, and makes the Kubernetes programs and the base once in the cache folder that
# tests/support looks in. Anywhere else it prints what to install and exits 0; with
# NODE_ATTESTATION_REQUIRE_REAL=1 a part that is missing in the end is an error.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
built="${XDG_CACHE_HOME:-$HOME/.cache}/capi-node-attestation"
cache="$built/kubernetes-debian"
base=
# prometheus: promtool holds the alerts against scrapes. strace: makes etcd's disk slow for the benchmark.
# nftables: loads the firewall's rule of docs/ssh-node.md in a network namespace. rsync: copies over node-access.
# zsh, fish: read their completion. chromium-headless-shell: opens the page that `status` writes; fonts-dejavu-core: its
# letters.
packages=(etcd-server prometheus strace containerd systemd openssh-client nftables rsync zsh fish)
packages+=(chromium-headless-shell fonts-dejavu-core)
programs=(etcd promtool strace containerd systemctl ssh-keygen rsync zsh fish chromium-headless-shell)
openssh_server="$built/openssh-server"
files=()
for argument in "$@"; do
    case $argument in
    tpm)
        # The second line compiles tpm2-pytss.
        packages+=(swtpm swtpm-tools tpm2-tools)
        packages+=(libtss2-dev gcc libc6-dev pkgconf python3-dev)
        programs+=(swtpm swtpm_setup tpm2_quote)
        ;;
    image)
        # runc, because crun of Debian 12 does not start where cgroups are of both versions.
        packages+=(podman runc mmdebstrap docker-registry)
        programs+=(podman runc docker-registry)
        base="$built/python-base.tar"
        ;;
    containers)
        packages+=(runc crun containernetworking-plugins iproute2)
        # What the images are made of: a static busybox, and programs in C.
        packages+=(busybox-static gcc libc6-dev)
        packages+=(sshfs rsync)
        # Users of containers on a node, and what its agent takes into sessions.
        packages+=(libnss-extrausers openssh-sftp-server libnss-wrapper)
        programs+=(runc crun ip nsenter busybox gcc sshfs rsync)
        files+=(/usr/lib/cni/ptp /usr/lib/libnss_extrausers.so.2 /usr/lib/openssh/sftp-server)
        ;;
    *)
        echo "usage: provision.sh [tpm] [image] [containers]" >&2
        exit 2
        ;;
    esac
done
kubernetes=(kube-apiserver kube-controller-manager kubemark kubeadm kubelet)

# What is missing now, one line each.
missing() {
    local name
    [ -z "$base" ] || [ -s "$base" ] || echo "$base"
    [ -x /usr/sbin/sshd ] || [ -x "$openssh_server/usr/sbin/sshd" ] || echo sshd
    for name in "${files[@]}"; do
        [ -e "$name" ] || echo "$name"
    done
    for name in "${programs[@]}"; do
        [ "$name" = etcd ] && [ -x "${KUBEBUILDER_ASSETS:-/nonexistent}/etcd" ] && continue
        command -v "$name" > /dev/null || echo "$name"
    done
    if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
        [ -x "$KUBEBUILDER_ASSETS/kube-apiserver" ] || echo "kube-apiserver in \$KUBEBUILDER_ASSETS"
        return
    fi
    for name in "${kubernetes[@]}"; do
        [ -x "$cache/$name" ] || echo "$name"
    done
}

# The development files of the TPM library are no program, so only the package database can tell.
missing_packages() {
    local package
    for package in "${packages[@]}"; do
        [ "$package" = etcd-server ] && [ -x "${KUBEBUILDER_ASSETS:-/nonexistent}/etcd" ] && continue
        dpkg-query --show --showformat='${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || echo "$package"
    done
}

is_debian() {
    # Ubuntu and other derivatives name their parent in ID_LIKE, but only Debian's own archive is known to have
    # the Kubernetes source package.
    [ -r /etc/os-release ] && grep -qx 'ID=debian' /etc/os-release
}

if is_debian && [ "$(id -u)" = 0 ]; then
    # One run at a time: two would install and build the same things.
    mkdir -p "$built"
    exec 9> "$built/provision.lock"
    flock 9
    # Once before anything is installed or built: an image often comes without package lists.
    [ -z "$(missing_packages)$(missing)" ] || apt-get update -q
    mapfile -t wanted < <(missing_packages)
    if [ ${#wanted[@]} -gt 0 ]; then
        echo "Installing ${wanted[*]}"
        # Nothing of etcd, Prometheus or containerd shall run by itself: the tests start their own.
        DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -q --no-install-recommends "${wanted[@]}"
    fi
    [ -n "${KUBEBUILDER_ASSETS:-}" ] || "$here/build-kubernetes.sh" "$cache" "${kubernetes[@]}"
    [ -z "$base" ] || "$here/build-base-image.sh" "$base"
    [ -x /usr/sbin/sshd ] || "$here/unpack-openssh.sh" "$openssh_server"
fi

left=$(missing)
if [ -z "$left" ]; then
    echo "The real parts are installed: ${programs[*]} ${kubernetes[*]}"
    exit 0
fi
cat >&2 << END
These real parts are missing, and the tests that need them will be skipped:
${left//$'\n'/, }
Either run this script as root on Debian (it installs ${packages[*]}
and builds the Kubernetes programs from Debian's source package), or set KUBEBUILDER_ASSETS to a folder with etcd and
kube-apiserver (the convention of controller-runtime's envtest: "setup-envtest use -p path" prints one).
END
[ "${NODE_ATTESTATION_REQUIRE_REAL:-}" != 1 ]
