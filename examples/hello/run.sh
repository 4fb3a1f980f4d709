#!/usr/bin/env bash
# What the job runs. It starts in the folder that was pushed.
set -eu
echo "hello, $WHO, from job $BT_TRAINING_JOB_NAME"

# The project's cache outlives the job: the next one finds this file.
runs=$(cat "$BT_PROJECT_CACHE_DIR/runs" 2>/dev/null || echo 0)
echo $((runs + 1)) > "$BT_PROJECT_CACHE_DIR/runs"
echo "run number $((runs + 1)) of this project"

# What is written here is shipped to the object store while the job goes on.
mkdir -p "$BT_CHECKPOINT_DIR/checkpoint-1"
date -u > "$BT_CHECKPOINT_DIR/checkpoint-1/when.txt"
