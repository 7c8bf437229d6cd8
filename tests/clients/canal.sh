#!/usr/bin/env bash
# Alibaba's Canal server 1.1.7 out of its jars on Maven Central, downloaded once into ${SLUICE_CACHE:-~/.cache/sluice}/canal.
#
#   canal.sh FOLDER   compile CanalServer.java and Filters.java into FOLDER; prints the class path
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name="canal server"
# shellcheck source=tests/servers/downloads.sh
source "$here/../servers/downloads.sh"
dist=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/canal

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

once "$dist" fetch
mkdir -p /usr/share/man/man1 # Java's packages write there, and small images of Debian leave it out
need javac default-jdk-headless
javac -cp "$dist/*" -d "$1" "$here/CanalServer.java" "$here/Filters.java" >&2
cp "$here/logback.xml" "$1"
echo "$1:$dist/*"
