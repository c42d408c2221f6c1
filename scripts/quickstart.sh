#!/usr/bin/env bash
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash scripts/quickstart.sh [--limit N] [--output DIR]

Evaluates the full cache and TGV-KV at 50, 20, 10 and 5 % retention on the embedded tiny VLM and its four tasks, with
real lmms-eval, on whatever this machine has (a CPU is enough). No weights or data are downloaded. Then prints the
table and writes it, with a plot, into DIR. About 4 minutes on 2 cores once installed.

  --limit N     first N samples of each task only (default: all 200)
  --output DIR  where results go (default: results/runs/quickstart); what an earlier quickstart left there is replaced
  --help        this text

The environment is the active virtual environment, or .venv, made and filled on the first run.
TEXT
}

limit=() output=results/runs/quickstart
while [ $# -gt 0 ]; do
    case $1 in
        --limit) limit=(--limit "${2:?--limit needs a number}"); shift 2 ;;
        --output) output=${2:?--output needs a folder}; shift 2 ;;
        -h | --help) usage; exit ;;
        *) usage >&2; printf "error: unknown option '%s'\n" "$1" >&2; exit 2 ;;
    esac
done

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup_environment
unset PRUNE_RATIO KV_RETENTION KV_VARIANT KV_DECODE MAX_GENERATED_TOKENS

evaluate() { # name, then the environment of one configuration
    local name=$1 started=$SECONDS log
    shift
    log=$output/$name/log.txt
    rm -rf "${output:?}/$name"
    mkdir -p "$output/$name"
    if ! env "$@" MODEL_TYPE=tiny-vlm KV_RECORDS_DIR="$output/$name" accelerate launch --num_processes 1 \
        --num_machines 1 --mixed_precision no --dynamo_backend no -m lmms_eval --model llava_hf \
        --model_args "pretrained=tiny_vlm/weights,attn_implementation=sdpa,device_map=auto" \
        --tasks mini_vlm --batch_size 16 --log_samples --output_path "$output/$name" ${limit[@]+"${limit[@]}"} > "$log" 2>&1
    then
        tail -n 25 "$log" >&2
        die "configuration $name failed; the whole log is $log"
    fi
    say "$(printf '%-12s done in %3d s' "$name" $((SECONDS - started)))"
}

started=$SECONDS
say "Evaluating 5 configurations on the embedded tasks; logs are in $output/*/log.txt"
evaluate full KV_CACHE_TYPE=none
for ratio in 0.50 0.80 0.90 0.95; do
    evaluate "tgv_kv-$ratio" KV_CACHE_TYPE=tgv_kv PRUNE_RATIO=$ratio
done
python -m analysis.quickstart "$output"
say "Evaluated in $((SECONDS - started)) s. Next:"
cat >&2 <<TEXT
  another method or variant   KV_CACHE_TYPE=tgv_kv KV_VARIANT=official PRUNE_RATIO=0.95, see README.md
  a real model on a GPU       see 'On a GPU' in README.md
TEXT
