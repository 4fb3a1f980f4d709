#!/usr/bin/env bash
# PYTHON: an interpreter with torch, transformers 4 and accelerate.
set -eu
export HF_HOME="$BT_PROJECT_CACHE_DIR/huggingface" HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec "${PYTHON:-python3}" train.py
