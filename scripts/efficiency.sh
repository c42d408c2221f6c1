#!/usr/bin/env bash
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash scripts/efficiency.sh [--check] [arguments of python -m benchmarks.efficiency]

Measures prefill, decoding and memory of the full cache and of eviction methods, beside transformers' own generate loop
and the released procedure, on models of real shape with random weights: nothing is downloaded. On a GPU LLaVA-1.5-7B's
shape at 8k and 32k tokens, on a CPU one of 8 layers at 2k and 4k; under 8 minutes. Prints Table 4; the figures go to
results/efficiency/. Run it on a machine that does nothing else.

  --check       instead: every promise about cost as a ratio within one run, next to its bound (about ten minutes on
                two CPU cores); exits with 1 when one is missed
  --help        this text; python -m benchmarks.efficiency --help lists shapes, lengths, batches, methods, budgets
TEXT
}

case ${1-} in -h | --help) usage; exit ;; esac
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_environment
if [ "${1-}" = --check ]; then
    shift
    exec python -m benchmarks.check "$@"
fi
exec python -m benchmarks.efficiency "$@"
