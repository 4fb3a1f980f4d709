#!/bin/bash
set -eux
# an image would bring its own
PYTHON=${PYTHON:-python}
export HF_HOME="$BT_PROJECT_CACHE_DIR/huggingface" HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
$PYTHON train.py
