#!/usr/bin/env bash
# Makes `python -m venv` work: Debian's Python comes without it.
#
# Usage: venv.sh PYTHON
set -euo pipefail

python=$1
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
package="python$version-venv"
if [ -x /usr/bin/apt-get ] && [ "$(id -u)" = 0 ]; then
    echo "Installing $package"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q > /dev/null
    apt-get install -y -q --no-install-recommends "$package" > /dev/null
else
    echo "$python has no venv module: install it (on Debian and Ubuntu: apt-get install $package) and call make again" >&2
    exit 2
fi
