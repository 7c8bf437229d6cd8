#!/usr/bin/env bash
# Set-up of a development environment in .venv: Debian's packages where something is missing, then the locked Python
# packages, checked by their hashes. They are kept in the cache, so that the next set-up needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}

say() { echo "set-up: $*"; }
includes() { echo "#include <$1>" | g++ -E -x c++ - "${@:2}" >/dev/null 2>&1; }

packages=()
command -v "$python" >/dev/null || packages+=(python3)
command -v g++ >/dev/null || packages+=(g++)
command -v git >/dev/null || packages+=(git)
command -v curl >/dev/null || packages+=(curl)
[ -e /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates)
# Python may have come by other means than apt, with its headers: then Debian's are not asked for.
"$python" -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
includes Python.h "-I$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)" || packages+=(python3-dev)
includes zlib.h || packages+=(zlib1g-dev)
includes zstd.h || packages+=(libzstd-dev)
if [ ${#packages[@]} -gt 0 ]; then
  say "installing ${packages[*]}"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "${packages[@]}" >/dev/null
fi

"$python" -c 'import sys; sys.exit("Python 3.11 or later is needed, not " + sys.version if sys.version_info < (3, 11) else 0)'
[ -x .venv/bin/python ] || "$python" -m venv .venv

pip() { .venv/bin/python -m pip -q --disable-pip-version-check "$@"; }
wheels=$cache/wheels/$(cat requirements.lock <("$python" -VV) | sha256sum | cut -c -16)
if [ ! -d "$wheels" ]; then
  say "downloading Python packages"
  mkdir -p "$cache/wheels"
  partial=$(mktemp -d "$wheels.XXXXXX")
  pip download --only-binary :all: --require-hashes -r requirements.lock -d "$partial"
  mv -T "$partial" "$wheels" 2>/dev/null || rm -rf "$partial" # another set-up was faster
fi
say "installing Python packages"
pip install --no-index --find-links "$wheels" --require-hashes -r requirements.lock

say "compiling"
pip install --no-index --no-deps --no-build-isolation -e .
