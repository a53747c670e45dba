#!/usr/bin/env bash
# Builds Kubernetes binaries once, from Debian's source package, into a cache folder.
#
# Usage: build-kubernetes.sh DESTINATION BINARY...      (for example: kube-apiserver kube-controller-manager)
#
# Runs as root on Debian, because it installs the Go toolchain with apt-get. A binary that is already in
# DESTINATION is not built again. DESTINATION/build.log keeps what the build printed.
set -euo pipefail

destination=$1
shift
mkdir -p "$destination"
log="$destination/build.log"

# Programs of an older recipe are built again.
recipe=$(sha256sum < "$0")
if [ "$(cat "$destination/recipe" 2> /dev/null)" != "$recipe" ]; then
    rm -f "$destination"/kube*
    echo "$recipe" > "$destination/recipe"
fi

wanted=()
for binary in "$@"; do
    [ -x "$destination/$binary" ] || wanted+=("$binary")
done
[ ${#wanted[@]} -gt 0 ] || exit 0

echo "Building ${wanted[*]} from Debian's source package (once, some minutes; log: $log)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

{
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends dpkg-dev golang-go rsync make gcc libc6-dev

    # Source entries are derived from the binary ones this machine already uses and kept in a folder of our own:
    # the machine's own lists stay as they are.
    mkdir -p "$work/parts" "$work/lists/partial"
    for list in /etc/apt/sources.list.d/*.sources; do
        [ -e "$list" ] || continue
        if grep -q '^Suites: .*bookworm' "$list" || grep -q "^Suites: .*$(. /etc/os-release && echo "$VERSION_CODENAME")" "$list"; then
            sed 's/^Types: .*/Types: deb-src/' "$list" > "$work/parts/$(basename "$list")"
        fi
    done
    if [ -s /etc/apt/sources.list ]; then
        sed -n 's/^deb \(.*\)/deb-src \1/p' /etc/apt/sources.list > "$work/parts/main.list"
    fi
    apt_options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/parts" -o "Dir::State::lists=$work/lists")
    apt-get "${apt_options[@]}" update

    cd "$work"
    apt-get "${apt_options[@]}" source --download-only kubernetes
    dpkg-source -x kubernetes_*.dsc tree
    # 1.20 vendors reflect2 1.0.1, which since Go 1.18 crashes the API server at the first custom resource (map
    # iteration in json-iterator). Debian's package of reflect2 is new enough; the API did not change.
    apt-get download golang-github-modern-go-reflect2-dev
    dpkg-deb -x golang-github-modern-go-reflect2-dev_*.deb reflect2
    rm tree/vendor/github.com/modern-go/reflect2/*
    find reflect2/usr/share/gocode/src/github.com/modern-go/reflect2 -maxdepth 1 -type f ! -name '*_test.go' \
        -exec cp -t tree/vendor/github.com/modern-go/reflect2 {} +
    mkdir -p tree/.go/src/k8s.io
    ln -s "$work/tree" tree/.go/src/k8s.io/kubernetes
    cd tree/.go/src/k8s.io/kubernetes
    export GOPATH="$work/tree/.go" GO111MODULE=off CGO_ENABLED=0
    # The compiler's own garbage collector takes a fifth of its time, and nobody debugs these programs. The libraries of
    # the in-tree cloud providers, which no test configures, are a quarter of what would be compiled, and half of each
    # program.
    export GOGC=400 GOFLAGS="-gcflags=all=-dwarf=false -tags=providerless"
    # All in one run: sources are generated once, and one program is linked while the next is compiled.
    make WHAT="${wanted[*]/#/cmd/}"
    for binary in "${wanted[@]}"; do
        built=$(find "$work/tree" -type f -name "$binary" -perm -u+x -path '*_output*' | head -n 1)
        [ -n "$built" ] || { echo "no $binary was built"; exit 1; }
        # Written beside and renamed, so that an interrupted copy is never taken for a binary.
        cp "$built" "$destination/.$binary.partial"
        mv "$destination/.$binary.partial" "$destination/$binary"
    done
} > "$log" 2>&1 || {
    status=$?
    tail -n 20 "$log" >&2
    echo "Building ${wanted[*]} failed; the whole log is in $log" >&2
    exit "$status"
}
