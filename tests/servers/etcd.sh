#!/usr/bin/env bash
# etcd for the tests, out of Debian's packages, unpacked once into ${SLUICE_CACHE:-~/.cache/sluice}/servers/etcd.
#
#   etcd.sh fetch              prints the version
#   etcd.sh run [OPTION...]    runs a server in the foreground
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=etcd version=3.4
# shellcheck source=tests/servers/downloads.sh
source "$here/downloads.sh"
dist=$cache/servers/$name

case $1 in
  fetch) once "$dist" fetch_debian bookworm etcd-server 'adduser|init-system-helpers|perl|debconf' && echo "$version" ;;
  run) shift; exec_foreign "$dist/root/usr/bin/etcd" "$@" ;;
  *) say "fetch or run, not $1"; exit 2 ;;
esac
