#!/usr/bin/env bash
# Set-up of a development environment in .venv: Debian's packages where something is missing, then the locked Python
# packages, checked by their hashes. They are kept in the cache, so that the next set-up needs no network.
#
#   setup.sh          what the server, the client and the demo need; `make build` compiles after that
#   setup.sh dev      what tests, checks and measurements need, after that
#   setup.sh spark    PySpark and Java, after that
#   setup.sh spark 4.1    an older PySpark, in .venv/spark-4.1: a virtual environment that has the packages of .venv as well
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}

say() { echo "set-up: $*"; }
includes() { echo "#include <$1>" | g++ -E -x c++ - "${@:2}" >/dev/null 2>&1; }
pip() { .venv/bin/python -m pip -q --disable-pip-version-check "$@"; }

# install PACKAGE...: Debian's packages.
install() {
  say "installing $*"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "$@" >/dev/null
}

# collect LOCK PIP-COMMAND...: have pip put the wheels of a lock into a folder of the cache, named after the lock and
# the interpreter, unless it is there; $wheels is the folder.
collect() {
  local lock=$1
  wheels=$cache/wheels/$(cat "$lock" <("$python" -VV) | sha256sum | cut -c -16)
  [ ! -d "$wheels" ] || return 0
  say "downloading the packages of $lock"
  mkdir -p "$cache/wheels"
  partial=$(mktemp -d "$wheels.XXXXXX")
  trap 'rm -rf "$partial"' EXIT
  TMPDIR=$partial pip "${@:2}" "$partial" --require-hashes -r "$lock" # Spark takes 2.3 GB meanwhile: much for a /tmp
  mv -T "$partial" "$wheels" 2>/dev/null || true # another set-up was faster
}

# The main version of the Java that PySpark would start; 0 when there is none.
java_version() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  { "$java" -version 2>&1 || echo 'version "0"'; } | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

if [ "${1-}" = dev ]; then
  collect requirements-dev.lock download --only-binary :all: --no-deps -d
  say "installing Python packages for development"
  pip install --no-index --no-deps --find-links "$wheels" --require-hashes -r requirements-dev.lock
  exit
fi

if [ "${1-}" = spark ]; then
  if [ "$(java_version)" -lt 17 ]; then
    mkdir -p /usr/share/man/man1 # Java's packages write there, and small images of Debian leave it out
    install default-jre-headless
  fi
  [ "$(java_version)" -ge 17 ] || { say "Spark needs Java 17 or later: let JAVA_HOME or PATH name it"; exit 1; }
  version=${2-}
  exec {lock}>.venv/spark.lock # several test processes may want an older one
  flock "$lock"
  # PySpark is published as a source only. Its wheel is built here, once, and therefore has no hash in the lock.
  collect "requirements-spark${version:+-$version}.lock" wheel --no-cache-dir --no-deps --no-build-isolation --use-pep517 -w
  if [ -z "$version" ]; then
    say "installing PySpark"
    pip install --no-index --no-deps "$wheels"/*.whl
  elif [ ! -e ".venv/spark-$version/.ready" ]; then
    say "installing PySpark $version"
    "$python" -m venv --clear --without-pip ".venv/spark-$version"
    pip --python ".venv/spark-$version/bin/python" install --no-index --no-deps "$wheels"/*.whl
    packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    # Not only its path: what is installed in place is found by the files *.pth there.
    echo "import site; site.addsitedir('$packages')" >"${packages/.venv/.venv/spark-$version}/base.pth"
    touch ".venv/spark-$version/.ready"
  fi
  exit
fi

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
includes libdeflate.h || packages+=(libdeflate-dev)
includes zstd.h || packages+=(libzstd-dev)
includes openssl/evp.h || packages+=(libssl-dev)
[ ${#packages[@]} -eq 0 ] || install "${packages[@]}"

"$python" -c 'import sys; sys.exit("Python 3.11 or later is needed, not " + sys.version if sys.version_info < (3, 11) else 0)'
[ -x .venv/bin/python ] || "$python" -m venv .venv

collect requirements.lock download --only-binary :all: --no-deps -d
say "installing Python packages"
# What is imported is compiled to byte code when it is: most of it never.
pip install --no-index --no-deps --no-compile --find-links "$wheels" --require-hashes -r requirements.lock
SETUP_LINKS_ONLY=1 pip install --no-index --no-deps --no-build-isolation -e .
