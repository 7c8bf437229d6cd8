#!/usr/bin/env bash
# ZooKeeper for the tests, downloaded once into ${SLUICE_CACHE:-~/.cache/sluice}/servers/zookeeper.
#
#   zookeeper.sh fetch        prints the version
#   zookeeper.sh run CONFIG   runs a server in the foreground
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=zookeeper version=3.9.3
# shellcheck source=tests/servers/downloads.sh
source "$here/downloads.sh"
dist=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/servers/$name

fetch() {
  fetch_maven "$dist" \
    "org.apache.zookeeper:zookeeper:$version" ad6570105768d18382a762325b4460368b7089a5a77c053e682b17942e0e72b5 \
    "org.apache.zookeeper:zookeeper-jute:$version" be72e2c9099413a9878ce830b65bb22e0be755dc2a22b290550ab9e03b5b4cfa \
    io.netty:netty-handler:4.1.113.Final 7a583c4fe5880504d1257a4a6bfe6a635cd34ffe18aab0e4caabbf17d104f172 \
    io.netty:netty-buffer:4.1.113.Final a85c198180a8de997e8f64a62e054946a39af0708466c1bd67747d393d2feee1 \
    io.netty:netty-common:4.1.113.Final c0fb22d47111cb06aac2af67fe55e2e216a49fd00e767f4acb7488b280f8c327 \
    io.dropwizard.metrics:metrics-core:4.1.12.1 cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9 \
    org.xerial.snappy:snappy-java:1.1.10.7 4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36 \
    org.slf4j:slf4j-api:1.7.30 cdba07964d1bb40a0761485c6b1e8c2f8fd9eb1d19c53928ac0d7f9510105c57 \
    org.slf4j:slf4j-simple:1.7.30 8b9279cbff6b9f88594efae3cf02039b6995030eec023ed43928748c41670fee
}

case $1 in
  fetch)
    mkdir -p /usr/share/man/man1 # Java's packages write there, and small images of Debian leave it out
    need java default-jre-headless
    once "$dist" fetch && echo "$version"
    ;;
  run)
    # A process that is killed loses nothing that it has written, so that files need not be synced.
    exec java -Xmx160m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.forceSync=no -Dzookeeper.preAllocSize=1024 \
      -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$dist/*" \
      org.apache.zookeeper.server.quorum.QuorumPeerMain "$2"
    ;;
  *) say "fetch or run, not $1"; exit 2 ;;
esac
