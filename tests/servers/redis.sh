#!/usr/bin/env bash
# Redis for the tests, out of Debian's packages, unpacked once into ${SLUICE_CACHE:-~/.cache/sluice}/servers/redis.
#
#   redis.sh fetch       prints the version
#   redis.sh run PORT    runs a server in the foreground, in memory only
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=redis version=8.0
# shellcheck source=tests/servers/downloads.sh
source "$here/downloads.sh"
dist=$cache/servers/$name

case $1 in
  fetch) once "$dist" fetch_debian trixie redis-server 'adduser|init-system-helpers|perl|debconf' && echo "$version" ;;
  run) exec_foreign "$dist/root/usr/bin/redis-server" --port "$2" --bind 127.0.0.1 --save '' --appendonly no ;;
  *) say "fetch or run, not $1"; exit 2 ;;
esac
