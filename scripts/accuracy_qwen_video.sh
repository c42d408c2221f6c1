#!/usr/bin/env bash
# Qwen3-VL on Video-TT: long answers about videos, judged by a model; see --help.
set -euo pipefail

about='
Answers are stored first and judged afterwards, each distinct one once; what is judged is kept. The judge is any
OpenAI-compatible server: OPENAI_API_URL, OPENAI_API_KEY (not needed for a server of your own) and GPT_EVAL_MODEL_NAME;
the script of the paper has https://api.deepseek.com/chat/completions and deepseek-chat. KV_JUDGE=exact judges offline by
words and numbers (not comparable to the paper), KV_JUDGE=none leaves it for later.

VIDEO_MODEL=qwen-4B-video is the smaller model. Without a GPU and without CKPT, the embedded video model is scored on its
own tasks with KV_JUDGE=exact: nothing is downloaded. MAX_GENERATED_TOKENS is 1500 unless set, as in the paper.
'
row=${VIDEO_MODEL:-${MODEL_TYPE:-qwen-8B-video}} row_in_name=1 row_variable=VIDEO_MODEL
tasks=videott_no_leading_oe,videott_paraphrase_oe,videott_wrong_leading_oe,videott_correct_leading_oe,videott_single_mc
without_gpu=(tiny-video mini_video)
more_model_args=max_pixels=203840 # of one frame, as in the script of the paper
[ "$row" != tiny-video ] || tasks=mini_video more_model_args=
export MAX_GENERATED_TOKENS=${MAX_GENERATED_TOKENS:-1500}

# shellcheck source=scripts/accuracy.sh
source "$(dirname "${BASH_SOURCE[0]}")/accuracy.sh"
accuracy "$row" "$tasks" "$@"; exit # on one line: the file may change while it runs
