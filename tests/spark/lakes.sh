#!/usr/bin/env bash
# lakes.sh iceberg|delta: its jars for Spark 4.1, downloaded once into ${SLUICE_CACHE:-~/.cache/sluice}/clients; prints where
# they are, separated by commas.
set -euo pipefail

name=$1
# shellcheck source=tests/servers/downloads.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/../servers/downloads.sh"
dist=$cache/clients/$name
case $name in
  iceberg)
    jars=(org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0 d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242)
    ;;
  delta)
    jars=(
      io.delta:delta-spark_4.1_2.13:4.3.1 ebf35a4383f0a653c3ee3c7882c0edcac2f846be31ac61af4b96ccfaaf36c171
      io.delta:delta-storage:4.3.1 577c12c7e371be4c041714fb48e88ad86e3c3512beea2bdaffbe7a4debf79718
    )
    ;;
esac

once "$dist" fetch_maven "$dist" "${jars[@]}"
printf '%s\n' "$dist"/*.jar | paste -sd ,
