#!/usr/bin/env bash
# Resolve the dependencies of pyproject.toml anew: versions and hashes, no addresses. What only Spark needs has a lock of
# its own, for it is several times as large as all the rest, and little needs it.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools"
"$tools/bin/pip" -q --disable-pip-version-check install uv
cat requirements.lock requirements-spark.lock >"$tools/lock" # versions that need not change stay
"$tools/bin/uv" pip compile -q pyproject.toml --extra dev --extra spark --universal --python-version 3.11 \
  --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command 'make lock' -o "$tools/lock"
awk '/^#/ { print >"requirements.lock"; print >"requirements-spark.lock"; next }
     /^[a-z]/ { lock = /^(py4j|pyspark)==/ ? "requirements-spark.lock" : "requirements.lock" }
     { print >lock }' "$tools/lock"
for version in 4.1 4.2; do # older ones, for tests
  echo "pyspark==$version.*" | "$tools/bin/uv" pip compile -q - --no-deps --universal --python-version 3.11 \
    --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command 'make lock' -o "requirements-spark-$version.lock"
done
