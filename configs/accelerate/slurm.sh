#!/usr/bin/env bash
# A sweep on several nodes under Slurm. From a clone that all nodes see, with the environment active and HF_HOME on a file
# system that all nodes see. Nodes without network: fetch once where there is one, with the same HF_HOME:
#   export LMMS_EVAL_DATASETS_CACHE=${HF_HOME:-$HOME/.cache/huggingface}/datasets
#   hf download Qwen/Qwen3-VL-8B-Instruct && python -m lmms_eval_plugins.fetch chartqa
#   CKPT=Qwen/Qwen3-VL-8B-Instruct MODEL=qwen3_vl TASKS=chartqa sbatch --nodes 2 configs/accelerate/slurm.sh
#SBATCH --job-name=kv-sweep
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --output=slurm-%j.log
set -euo pipefail
# shellcheck source=scripts/names.sh
source scripts/names.sh
check_names "sbatch configs/accelerate/slurm.sh" OUTPUT SWEEP METHODS RETENTION MODEL CKPT TASKS BATCH_SIZE LIMIT \
    MODEL_TYPE MAX_GENERATED_TOKENS IMAGE_MAX_TOKEN_NUM VISION_ASPECT_RATIO HF_HUB_OFFLINE

output=${OUTPUT:-results/runs/slurm-$SLURM_JOB_ID}
gpus=${SLURM_GPUS_ON_NODE:-8}
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=${hosts%%$'\n'*}
export KV_RECORDS_DIR=${KV_RECORDS_DIR:-$output/records} HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1}
# Else lmms-eval looks for prepared data on each node's own disk when HF_HOME is on a network file system.
export LMMS_EVAL_DATASETS_CACHE=${LMMS_EVAL_DATASETS_CACHE:-${HF_DATASETS_CACHE:-${HF_HOME:-$HOME/.cache/huggingface}/datasets}}

launch=(--config_file configs/accelerate/nodes.yaml
    --num_machines "$SLURM_NNODES" --num_processes "$((SLURM_NNODES * gpus))"
    --main_process_ip "$first" --main_process_port "$((20000 + SLURM_JOB_ID % 20000))")
sweep=(-m lmms_eval_plugins.sweep --sweep "${SWEEP:-paper}" --methods "${METHODS-}" --retention "${RETENTION-}"
    --model "${MODEL:?MODEL is lmms-eval\'s name of the family, such as qwen3_vl or llava_hf}"
    --model_args "pretrained=${CKPT:?CKPT is a checkpoint folder or a hub id},attn_implementation=sdpa,device_map=auto"
    --tasks "${TASKS:-chartqa,docvqa_val,textvqa_val}" --batch_size "${BATCH_SIZE:-1}" ${LIMIT:+--limit "$LIMIT"}
    --log_samples --output_path "$output")

# shellcheck disable=SC2016 # SLURM_NODEID is known on the node only
srun --kill-on-bad-exit=1 bash -c 'exec accelerate launch --machine_rank "$SLURM_NODEID" "$@"' launch \
    "${launch[@]}" "${sweep[@]}"
python -m analysis.table "$output"
