#!/usr/bin/env bash
# Alibaba's Canal server 1.1.7 and its producer for Kafka out of their jars on Maven Central, downloaded once into
# ${SLUICE_CACHE:-~/.cache/sluice}/canal and canal-kafka.
#
#   canal.sh FOLDER   compile CanalServer.java, Filters.java and Producer.java into FOLDER; prints the class path
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name="canal server"
# shellcheck source=tests/servers/downloads.sh
source "$here/../servers/downloads.sh"
dist=$cache/canal

fetch() { # the server and all that it depends on; Maven compares each with its checksum
  cat >"$dist/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>sluice</groupId><artifactId>canal</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>com.alibaba.otter</groupId><artifactId>canal.server</artifactId><version>1.1.7</version></dependency>
  </dependencies>
</project>
POM
  need mvn maven
  mvn -B -q -ntp -C -f "$dist/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$dist" >&2
  verify "$dist/canal.server-1.1.7.jar" e9ff77c327dd2f8ef073c544c08c0b0374518ccc49273b89d90dccc83c637e85
}

fetch_kafka() {
  fetch_maven "$dist-kafka" \
    com.alibaba.otter:connector.kafka:1.1.7 cc65760cccd476b7880867ab2583e7f29149f62b9d4ef9fe839edff09f2e4cad \
    org.apache.kafka:kafka-clients:2.4.0 5e902f581d20a1f6e9669dab8eb6c64a2830ad34cf7765b668ea9de72fba25ac
}

once "$dist" fetch
once "$dist-kafka" fetch_kafka
mkdir -p /usr/share/man/man1 # Java's packages write there, and small images of Debian leave it out
need javac default-jdk-headless
javac -cp "$dist/*:$dist-kafka/*" -d "$1" "$here/CanalServer.java" "$here/Filters.java" "$here/Producer.java" >&2
cp "$here/logback.xml" "$1"
echo "$1:$dist/*:$dist-kafka/*"
