#!/usr/bin/env bash
# Unpacks Debian's openssh-server into a folder, for tests that start sshd. Installed, it would listen on port 22 from the
# next start of the machine on.
#
# Usage: unpack-openssh.sh FOLDER
set -euo pipefail

target=$1
[ ! -x "$target/usr/sbin/sshd" ] || exit 0

mkdir -p "$(dirname "$target")"
work=$(mktemp -d "$target.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "Unpacking openssh-server into $target"
# libwrap0 is the only library of sshd that neither openssh-client nor the base system brings along.
(cd "$work" && apt-get download -q openssh-server libwrap0)
for package in "$work"/*.deb; do
    dpkg-deb --extract "$package" "$work/unpacked"
done
rm -rf "$target"
mv "$work/unpacked" "$target"
