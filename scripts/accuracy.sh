# Sourced by the accuracy_*.sh scripts: the score of every configuration of a sweep on one model, and the table.

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    printf 'error: this is a part of the other scripts; run one of them, such as bash scripts/accuracy_llava.sh\n' >&2
    exit 2
fi
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=scripts/logged.sh
source "$(dirname "${BASH_SOURCE[0]}")/logged.sh"
# shellcheck source=scripts/names.sh
source "$(dirname "${BASH_SOURCE[0]}")/names.sh"

# shellcheck disable=SC2034  # of the scripts that source this file
paper_tasks=chartqa,docvqa_val,vizwiz_vqa_val,textvqa_val,textcaps_val,coco2017_cap_val
own_variables=(CKPT TASKS LIMIT SWEEP METHODS RETENTION NUM_PROCESSES BATCH_SIZE OUTPUT VIDEO_MODEL MODEL_TYPE
    MAX_GENERATED_TOKENS IMAGE_MAX_TOKEN_NUM VISION_ASPECT_RATIO PRUNE_RATIO HF_HUB_OFFLINE)

usage() {
    cat <<TEXT
usage: bash scripts/$(basename "$0") [--dry-run] [--separate] [--yes]

Scores the full cache and the methods of a sweep at its budgets on $row of configs/models, with real lmms-eval, and
prints the table. The prefill of a sample serves all of them; answers that are there are not computed again, so a run
that was interrupted goes on where it stopped.

  --dry-run     print every planned run, its fingerprint and what is already there; run nothing. Exits with 3 if
                something has to be settled before it can run
  --separate    one \`accelerate launch -m lmms_eval\` per KV_CACHE_TYPE and PRUNE_RATIO, as in the paper's repository,
                instead of all in one process; the first computes the grid, the others read it. The same answers, some
                ten seconds more per line. With --dry-run the lines are printed, each to be run alone.
  --yes         if answers are to be judged by a model: send the requests without asking
  --help        this text
${about-}
Environment:
  CKPT           checkpoint folder or hub id (default: that of $row); another size of the family is fine
  MODEL_TYPE     row of configs/models whose name and paper numbers CKPT gets in tables; it must fit the checkpoint
                 (default: the row of its architecture and sizes, if there is one)
  TASKS          lmms-eval tasks, separated by commas (default: $tasks)
  LIMIT          first N samples of each task, or a share below 1 (default: all)
  SWEEP          name in configs/sweeps, or a YAML file (default: paper)
  METHODS        only these methods of the sweep, or others, separated by commas; the full cache is always there
  RETENTION      shares kept instead of the sweep's, separated by commas, e.g. 0.5,0.05
  NUM_PROCESSES  default: the GPUs found; without a GPU 1, and more are CPU processes
  BATCH_SIZE     default: 1
  OUTPUT         folder for results and records (default: results/runs/<script>, with CKPT and LIMIT in its name)
  HF_HUB_OFFLINE default: 1 if CKPT is a folder, else 0
and MAX_GENERATED_TOKENS, IMAGE_MAX_TOKEN_NUM, VISION_ASPECT_RATIO, KV_RECORDS_DIR, KV_ALLOW_FAILURES, KV_JUDGE as in
README.md.
TEXT
}

read_options() {
    dry_run=false separate=false yes=()
    while [ $# -gt 0 ]; do
        case $1 in
            --dry-run) dry_run=true ;;
            --separate) separate=true ;;
            --yes) yes=(--yes) ;;
            -h | --help) usage; exit ;;
            *) die "unknown option '$1'; --help lists all" ;;
        esac
        shift
    done
}

read_environment() {
    local name
    check_names "bash scripts/$(basename "$0")" "${own_variables[@]}"
    [[ ${LIMIT-1} =~ ^([0-9]+\.?[0-9]*|\.[0-9]+)$ && ${LIMIT-1} =~ [1-9] ]] \
        || die "LIMIT=$LIMIT: a number of samples or a share between 0 and 1 is needed (unset: all samples)"
    for name in NUM_PROCESSES BATCH_SIZE; do
        [[ ${!name-1} =~ ^[1-9][0-9]*$ ]] || die "$name=${!name}: a whole number from 1 is needed"
    done
    for name in CKPT TASKS SWEEP OUTPUT; do
        [ -n "${!name-default}" ] || die "$name is empty; unset it for the default"
    done
    [[ ${CKPT-} != *,* ]] || die "CKPT=$CKPT: a comma cannot be part of it (lmms-eval splits its model arguments there)"
    for name in KV_CACHE_TYPE PRUNE_RATIO KV_RETENTION KV_VARIANT KV_DECODE KV_PROFILE KV_SWEEP; do
        [ -z "${!name+set}" ] || say "$name=${!name} is ignored: METHODS, RETENTION and SWEEP choose what is scored"
        unset "$name"
    done
}

found_here() { # a sweep or a checkpoint that lies where the script was called; anything else as it is
    if [ -f "$1" ] || [ -f "$1/config.json" ]; then absolute "$1"; else printf '%s\n' "$1"; fi
}

find_machine() { # the row of the model, and the GPUs; torch is imported only where there may be some
    local found
    found=$(python - "$row" "${row_variable-}" <<'PY'
import difflib
import sys
from pathlib import Path

import yaml

rows = {}
for path in sorted(Path("configs/models").glob("*.yaml")):
    rows |= yaml.safe_load(path.read_text())
gpus = 0
if any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")):
    import torch

    gpus = torch.cuda.device_count()
if sys.argv[1] not in rows:
    near = difflib.get_close_matches(sys.argv[1], rows, 1)
    asked = f"{sys.argv[2]}={sys.argv[1]}" if sys.argv[2] else sys.argv[1]
    meant = f". Did you mean '{near[0]}'?" if near else ""
    sys.exit(f"error: {asked} is no row of configs/models; there are {', '.join(rows)}{meant}")
row = rows[sys.argv[1]]
print(row["checkpoint"], row["wrapper"], gpus)
PY
    ) || exit 2
    read -r default_checkpoint wrapper gpus <<<"$found"
}

free_port() {
    python -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
}

count_cores() { # that this process may use, where the system says so
    python -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())'
}

use_embedded_model() { # a script may name a row and tasks for those who have neither a GPU nor a checkpoint
    if [ -z "${without_gpu-}" ] || [ "$gpus" -gt 0 ] || [ -n "${CKPT-}" ]; then return; fi
    row=${without_gpu[0]} tasks=${without_gpu[1]} more_model_args=
    unset MODEL_TYPE
    export HF_HUB_OFFLINE=1 OFFLINE_BECAUSE="there is neither a GPU nor CKPT" KV_JUDGE=${KV_JUDGE:-exact} BATCH_SIZE=${BATCH_SIZE:-8}
    say "There is no GPU, and CKPT is not set: $row of configs/models on ${TASKS:-$tasks}, judged by KV_JUDGE=$KV_JUDGE"
    say "(the whole sweep on all samples takes about half an hour on two CPU cores; LIMIT=20, or SWEEP=quickstart, is quicker)"
    find_machine
}

choose_launcher() {
    local processes=${NUM_PROCESSES:-$((gpus > 0 ? gpus : 1))} threads
    launch=(accelerate launch --num_machines 1 --mixed_precision no --dynamo_backend no
        --main_process_port "$(free_port)" --num_processes "$processes")
    if [ "$processes" -eq 1 ]; then
        $separate || launch=(python)
    elif [ "$gpus" -gt 0 ]; then
        launch+=(--multi_gpu)
    else # without a GPU accelerate launch starts one process, whatever it is told
        threads=${OMP_NUM_THREADS:-$((($(count_cores) + processes - 1) / processes))}
        launch=(env ACCELERATE_USE_CPU=true "OMP_NUM_THREADS=$threads"
            torchrun --nnodes 1 --nproc_per_node "$processes" --master_port "$(free_port)")
    fi
}

name_output() {
    local name
    name=$(basename "$0" .sh)
    [ -z "${row_in_name-}" ] || name+=-$row
    [ "$checkpoint" = "$default_checkpoint" ] || name+=-$(basename "$checkpoint")
    output=${OUTPUT:-results/runs/$name${LIMIT:+-limit$LIMIT}}
}

score_separately() { # the loop of the paper's repository; every line can be run alone
    local lines line folder variables command
    lines=$(python -m lmms_eval_plugins.lines "${grid[@]}" --write "$output/grid.yaml") || exit
    export KV_SWEEP=$output/grid.yaml
    while read -r -a line <&3; do
        folder=$output/${line[0]} variables=("${line[@]:1}")
        command=("${launch[@]}" -m lmms_eval "${arguments[@]}" --output_path "$folder")
        if $dry_run; then
            printf '%q ' env "KV_SWEEP=$KV_SWEEP" "KV_RECORDS_DIR=$KV_RECORDS_DIR" \
                ${MODEL_TYPE:+"MODEL_TYPE=$MODEL_TYPE"} ${KV_JUDGE:+"KV_JUDGE=$KV_JUDGE"} \
                ${MAX_GENERATED_TOKENS:+"MAX_GENERATED_TOKENS=$MAX_GENERATED_TOKENS"} "${variables[@]}" "${command[@]}"
            printf '\n'
            continue
        fi
        say "${line[*]}"
        rm -f "$folder"/result.*.json
        logged "$folder/log.txt" env "${variables[@]}" "${command[@]}"
    done 3<<<"$lines"
}

judge_answers() { # open answers only; what is judged already is not asked again
    grep -rqs --include='*.json' videott_open_ended_score "$output" || return 0
    if [ "${KV_JUDGE-}" = none ]; then
        say "KV_JUDGE=none: the answers are stored; python -m lmms_eval_plugins.judge $output judges them"
        exit
    fi
    python -m lmms_eval_plugins.judge "$output" ${yes[@]+"${yes[@]}"} \
        || die "answers are unjudged: python -m lmms_eval_plugins.judge $output goes on with them"
}

accuracy() { # a row of configs/models/*.yaml, the tasks if TASKS names none, then the script's arguments
    local allow started=$SECONDS status=0 sweep row=$1 tasks=$2
    shift 2
    read_options "$@"
    read_environment
    [ -z "${CKPT-}" ] || CKPT=$(found_here "$CKPT")
    [ -z "${OUTPUT-}" ] || OUTPUT=$(absolute "$OUTPUT")
    sweep=$(found_here "${SWEEP:-paper}")
    if [ -z "${HF_HUB_OFFLINE-}" ] && [ -d "${CKPT-}" ]; then
        export HF_HUB_OFFLINE=1 OFFLINE_BECAUSE="CKPT=$CKPT is a folder" # said where it keeps something from being fetched
    fi
    export HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-0}
    setup_environment
    find_machine
    use_embedded_model
    checkpoint=${CKPT:-$default_checkpoint}
    # Of another checkpoint the row follows from what it is: a copy of this row's, another size, or none of the rows.
    [ "$checkpoint" != "$default_checkpoint" ] || export MODEL_TYPE=${MODEL_TYPE:-$row}
    name_output
    export KV_RECORDS_DIR=${KV_RECORDS_DIR:-$output/records}
    grid=(--sweep "$sweep" --methods "${METHODS-}" --retention "${RETENTION-}")
    arguments=(--model "$wrapper" --model_args "pretrained=$checkpoint,attn_implementation=sdpa,device_map=auto${more_model_args:+,$more_model_args}"
        --tasks "${TASKS:-$tasks}" --batch_size "${BATCH_SIZE:-1}" --log_samples ${LIMIT:+--limit "$LIMIT"})
    choose_launcher
    if $dry_run; then
        python -m lmms_eval_plugins.sweep --dry-run "${grid[@]}" "${arguments[@]}" --output_path "$output" || status=$?
        [ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit "$status" # 3: planned, but it cannot run yet
        printf '%s, results in %s:\n' "$($separate && echo 'one launch per run' || echo 'one launch')" "$output"
        if $separate; then score_separately; else
            printf '%q ' "${launch[@]}" -m lmms_eval_plugins.sweep "${grid[@]}" "${arguments[@]}"
            printf -- '--output_path %q\n' "$output"
        fi
        return "$status"
    fi
    if $separate; then score_separately; else
        logged "$output/log.txt" "${launch[@]}" -m lmms_eval_plugins.sweep "${grid[@]}" "${arguments[@]}" \
            --output_path "$output"
    fi
    judge_answers
    if [ "${KV_ALLOW_FAILURES-}" = 1 ]; then allow=(--allow-failures); fi
    python -m analysis.table "$output" ${allow[@]+"${allow[@]}"}
    say "Evaluated in $((SECONDS - started)) s"
}
