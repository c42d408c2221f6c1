#!/usr/bin/env bash
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash scripts/efficiency.sh [--check | --grid] [arguments of python -m benchmarks.efficiency]

Measures prefill, decoding and memory of the full cache and of eviction methods, beside transformers' own generate loop
and the released procedure, on models of real shape with random weights: nothing is downloaded. On a GPU LLaVA-1.5-7B's
shape at 8k and 32k tokens, on a CPU one of 8 layers at 2k and 4k; under 8 minutes. Prints Table 4; the figures go to
results/efficiency/, after every configuration. Run it on a machine that does nothing else.

  --check       instead: every promise about cost next to its bound, counted or timed in pairs (about five minutes on
                two quiet CPU cores); exits with 1 when one is missed, with 3 when one cannot be decided, as on a busy
                machine; the last lines say why
  --grid        the whole of Table 4: 2k to 32k tokens, batch 1, 8, 16 and 32, 50, 20, 10 and 5 %; takes hours. Stop it
                at any time, or with --seconds N: the same command goes on with what is not measured yet
  --help        this text; python -m benchmarks.efficiency --help lists shapes, lengths, batches, methods, budgets
TEXT
}

main() {
    case ${1-} in -h | --help) usage; exit ;; esac
    source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
    setup_environment
    if [ "${1-}" = --check ]; then
        shift
        exec python -m benchmarks.check "$@"
    fi
    exec python -m benchmarks.efficiency "$@"
}

main "$@"; exit # on one line: bash has read all before it starts, so the file may change while it runs
