#!/usr/bin/env bash
# Iceberg's jar for Spark 4.1, downloaded once into ${SLUICE_CACHE:-~/.cache/sluice}/clients; prints where it is.
set -euo pipefail

name=iceberg
# shellcheck source=tests/servers/downloads.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/../servers/downloads.sh"
dist=$cache/clients/$name
artifact=iceberg-spark-runtime-4.1_2.13
version=1.11.0

once "$dist" fetch_maven "$dist" "org.apache.iceberg:$artifact:$version" \
  d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242
echo "$dist/$artifact-$version.jar"
