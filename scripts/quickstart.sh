#!/usr/bin/env bash
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash scripts/quickstart.sh [--limit N] [--output DIR] [--separate]

Evaluates the full cache and TGV-KV at 50, 20, 10 and 5 % retention on the embedded tiny VLM and its four tasks, with
real lmms-eval, on whatever this machine has (a CPU is enough). No weights or data are downloaded. Then prints the
table and writes it into DIR, with a plot and report.html: one page with everything that was found, what was kept of a
picture included. A few minutes on 2 cores once installed; a second run takes seconds, since answers that are there are
not computed again.

  --limit N     first N samples of each task only (default: all 200)
  --output DIR  where results go (default: results/runs/quickstart)
  --separate    one `accelerate launch -m lmms_eval` per configuration, as in the paper's repository, instead of all
                configurations in one process; the same answers, a few minutes slower
  --help        this text

The environment is the active virtual environment, or .venv, made and filled on the first run.
TEXT
}

read_options() {
    limit=() output=results/runs/quickstart separate=false
    while [ $# -gt 0 ]; do
        case $1 in
            --limit)
                [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "--limit '${2:-}' must be a whole number from 1"
                limit=(--limit "$2"); shift ;;
            --output)
                [ -n "${2:-}" ] || die "--output needs a folder"
                output=$(absolute "$2"); shift ;;
            --separate) separate=true ;;
            -h | --help) usage; exit ;;
            *) die "unknown option '$1'; --help lists all" ;;
        esac
        shift
    done
}

evaluate() {
    local name ratio run launch arguments
    [ -z "${KV_CACHE_TYPE:-}" ] || say "KV_CACHE_TYPE=$KV_CACHE_TYPE is not read here, where full cache and TGV-KV are compared;" \
        "for one configuration see 'One configuration by hand' in README.md"
    unset KV_CACHE_TYPE PRUNE_RATIO KV_RETENTION KV_VARIANT KV_DECODE KV_PROFILE KV_SWEEP MAX_GENERATED_TOKENS
    launch=(accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no)
    arguments=(--model llava_hf --model_args "pretrained=tiny_vlm/weights,attn_implementation=sdpa,device_map=auto"
        --tasks mini_vlm --batch_size 16 --log_samples ${limit[@]+"${limit[@]}"})
    export MODEL_TYPE=tiny-vlm KV_RECORDS_DIR=$output/records KV_RECORD_KEPT=1 # for the pictures of the report
    if ! $separate; then
        logged "$output/log.txt" "${launch[@]}" -m lmms_eval_plugins.sweep --sweep quickstart "${arguments[@]}" \
            --output_path "$output"
        return
    fi
    export KV_SWEEP=quickstart # the first call computes the whole grid, the others read it
    for run in full: tgv_kv-0.50:0.50 tgv_kv-0.80:0.80 tgv_kv-0.90:0.90 tgv_kv-0.95:0.95; do
        name=${run%%:*} ratio=${run#*:}
        rm -f "$output/$name"/result.*.json
        logged "$output/$name/log.txt" env KV_CACHE_TYPE="${name%%-*}" ${ratio:+PRUNE_RATIO=$ratio} \
            "${launch[@]}" -m lmms_eval "${arguments[@]}" --output_path "$output/$name"
    done
}

main() {
    local started
    source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
    source "$(dirname "${BASH_SOURCE[0]}")/logged.sh"
    read_options "$@"
    setup_environment
    started=$SECONDS
    evaluate
    python -m analysis.table "$output"
    say "Evaluated in $((SECONDS - started)) s. Next:"
    cat >&2 <<TEXT
  another method or variant   see 'One configuration by hand' in README.md
  a real model on a GPU       see 'On a GPU' in README.md
TEXT
    python -m analysis.report "$output"
}

main "$@"; exit # on one line: bash has read all before it starts, so the file may change while it runs
