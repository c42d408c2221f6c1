#!/usr/bin/env bash
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    cat <<'TEXT'
usage: bash scripts/test.sh [pytest arguments]

Sets up the environment (the active one, or .venv), then checks style (ruff), types (mypy on kv_caches) and runs the
tests. Arguments go to pytest, e.g. `bash scripts/test.sh tests/kv_caches -k fixtures`.
TEXT
    exit
fi

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_environment
say "ruff"
ruff check .
ruff format --check .
say "mypy kv_caches"
mypy kv_caches
say "pytest"
exec python -m pytest -n auto --dist loadfile "$@"
