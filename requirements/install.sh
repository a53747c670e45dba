#!/bin/sh
# Install this project with its dependencies into a virtual environment. Every file from the package index must have a
# SHA-256 that is recorded in this folder (`make hashes` writes it). PYTHON has pip; ENVIRONMENT needs none.
#
#   requirements/install.sh PYTHON ENVIRONMENT [EXTRA,EXTRA [DISTRIBUTION...]]
#
# pip checks files against hashes in requirements only: constraints.txt cannot have them, and a folder such as this
# project has none. Hence three steps: pip collects verified wheels, and builds from verified sources with verified build
# tools; it builds this project with the same tools; it installs from these wheels without the package index.
# DISTRIBUTIONs are yours, such as an attestor. They have no recorded hash; their dependencies get the tested versions.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 PYTHON ENVIRONMENT [EXTRA,EXTRA [DISTRIBUTION...]]" >&2; exit 2; }
hashes=$(CDPATH='' cd "$(dirname "$0")" && pwd)
project=$(dirname "$hashes")
python=$1
environment=$2
extras=${3:-}
[ $# -lt 3 ] || shift
shift 2

requirements="--requirement $hashes/node.txt"
for extra in $(echo "$extras" | tr , ' '); do
    [ -f "$hashes/$extra.txt" ] || { echo "$0: no hashes for the extra $extra: $hashes/$extra.txt is missing" >&2; exit 2; }
    requirements="$requirements --requirement $hashes/$extra.txt"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv --without-pip "$work/build"
build="$python -m pip --quiet --disable-pip-version-check --python $work/build/bin/python"
target="$python -m pip --quiet --disable-pip-version-check --python $environment/bin/python"
$build install --require-hashes --requirement "$hashes/build.txt"
$build wheel --require-hashes --no-build-isolation --wheel-dir "$work/wheels" $requirements
$build wheel --no-deps --no-build-isolation --wheel-dir "$work/project" "$project"
# --isolated: pip's settings of this machine could name other sources.
$target --isolated install --no-compile --no-index --find-links "$work/wheels" \
    "$(echo "$work"/project/*.whl)${extras:+[$extras]}"
[ $# = 0 ] || $target install --no-compile --constraint "$project/constraints.txt" "$@"
