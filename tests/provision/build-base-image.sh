#!/usr/bin/env bash
# Makes a root file system with Debian's Python and pip once, which stands for the Containerfile's BASE where no registry
# of images can be reached.
#
# Usage: build-base-image.sh FILE.tar
#
# Runs as root on Debian. A file that is there is not made again; FILE.tar.log keeps what was printed.
set -euo pipefail

file=$1
mkdir -p "$(dirname "$file")"
# One of an older recipe is made again.
recipe=$(sha256sum < "$0")
if [ -s "$file" ] && [ "$(cat "$file.recipe" 2> /dev/null)" = "$recipe" ]; then
    exit 0
fi

echo "Making a base image with Debian's Python (once, a minute; log: $file.log)"
sources=()
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources; do
    [ -s "$list" ] && sources+=("$list")
done
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mmdebstrap --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv \
    "$release" "$file.partial" "${sources[@]}" --format=tar > "$file.log" 2>&1 || {
    status=$?
    tail -n 20 "$file.log" >&2
    echo "Making a base image failed; the whole log is in $file.log" >&2
    exit "$status"
}
mv "$file.partial" "$file"
echo "$recipe" > "$file.recipe"
