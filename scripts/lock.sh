#!/usr/bin/env bash
# Resolve the dependencies of pyproject.toml again: versions and hashes, no addresses. Several locks, so that
# each installation downloads only what it needs: requirements.lock is what runs and compiles the server,
# requirements-dev.lock what tests, checks and measurements need besides, requirements-spark.lock what Spark needs,
# several times as large as all the rest, requirements-extras.lock what users of the extras need.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools"
"$tools/bin/pip" -q --disable-pip-version-check install uv
lock() { # of pyproject.toml, and what the arguments name
  "$tools/bin/uv" pip compile -q pyproject.toml "$@" --universal --python-version 3.11 --no-emit-index-url --no-annotate
}
cat requirements.lock requirements-dev.lock requirements-spark.lock >"$tools/lock" # versions that need not change stay
lock --extra dev --extra spark --generate-hashes --custom-compile-command 'make lock' -o "$tools/lock"
"${PYTHON:-python3}" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' >"$tools/build.in"
lock "$tools/build.in" --extra server --constraint "$tools/lock" --no-header -o "$tools/run"
awk 'FNR == NR { if (split($1, word, "==")) runs[word[1]]; next }
     /^#/ { print >"requirements.lock"; print >"requirements-dev.lock"; print >"requirements-spark.lock"; next }
     /^[a-z]/ { split($1, word, "==")
                lock = "requirements" (word[1] in runs ? "" : /^(py4j|pyspark)==/ ? "-spark" : "-dev") ".lock" }
     { print >lock }' "$tools/run" "$tools/lock"
# What a user installs for the extras, whole, with what the server needs: pip checks the hashes of all or of none.
lock --extra kafka --extra tidb --extra arrow --constraint "$tools/lock" --generate-hashes \
  --custom-compile-command 'make lock' -o requirements-extras.lock
for version in 4.1 4.2; do # older ones, for tests
  echo "pyspark==$version.*" | "$tools/bin/uv" pip compile -q - --no-deps --universal --python-version 3.11 \
    --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command 'make lock' -o "requirements-spark-$version.lock"
done
