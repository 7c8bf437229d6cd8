#!/usr/bin/env bash
# Apache Flink 2.0 with its connector for Kafka out of their jars on Maven Central, downloaded once into
# ${SLUICE_CACHE:-~/.cache/sluice}/flink.
#
#   flink.sh FOLDER   compile Flink.java into FOLDER; prints the class path
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=flink
# shellcheck source=tests/servers/downloads.sh
source "$here/../servers/downloads.sh"
dist=$cache/flink

fetch() { # SQL, the connector, and all that they depend on; Maven compares each with its checksum
  local items='' artifact
  for artifact in flink-{table-api-java-bridge,table-planner-loader,table-runtime,clients,connector-base,json}:2.0.0 \
    flink-connector-kafka:4.0.1-2.0; do
    items+="<dependency><groupId>org.apache.flink</groupId><artifactId>${artifact%:*}</artifactId>"
    items+="<version>${artifact#*:}</version></dependency>"
  done
  cat >"$dist/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>sluice</groupId><artifactId>flink</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>$items</dependencies>
</project>
POM
  need mvn maven
  alone mvn -B -q -ntp -C -f "$dist/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$dist" >&2
  verify "$dist/flink-json-2.0.0.jar" 63af56619710e8d4c4ad68b95ede6b97988b07688d7dedcb1bd2423e7376f0ee
  verify "$dist/flink-connector-kafka-4.0.1-2.0.jar" 842885a51c768b2f31c946a2071656c166ee8cc6d3c02fe6c557e134e03bf228
}

once "$dist" fetch
mkdir -p /usr/share/man/man1 # Java's packages write there, and small images of Debian leave it out
need javac default-jdk-headless
javac -cp "$dist/*" -d "$1" "$here/Flink.java" >&2
echo "$1:$dist/*"
