#!/usr/bin/env bash
# All static checks; each finding is an error. One of them alone: a line below, with .venv/bin in PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
files() { git ls-files --cached --others --exclude-standard "$@"; }

ruff check --quiet || failed=1
ruff format --quiet --check || failed=1
# Inside the package imports are relative; ruff says so of what is not compiled.
! files '*.pyx' '*.pxd' | xargs grep -nE '^ *from sluice\b' || failed=1
mypy --no-error-summary || failed=1
files '*.pyx' '*.pxd' | xargs cython-lint || failed=1
python -m scripts.check_assertions || failed=1
python -m scripts.check_prose || failed=1
python -m scripts.generate_consumer --check || failed=1
lint-imports --no-cache >/dev/null || lint-imports --no-cache || failed=1
files '*.sh' .ci/run | xargs shellcheck || failed=1
exit $failed
