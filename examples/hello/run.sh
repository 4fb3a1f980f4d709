#!/usr/bin/env bash
# The job runs this script in the folder that was pushed.
set -eu
echo "hello, $WHO, from job $BT_TRAINING_JOB_NAME"

# The project's cache outlives the job: the next one finds this file.
runs=$(cat "$BT_PROJECT_CACHE_DIR/runs" 2>/dev/null || echo 0)
echo $((runs + 1)) > "$BT_PROJECT_CACHE_DIR/runs"
echo "run number $((runs + 1)) of this project"

# Files in this folder are uploaded while the job runs.
mkdir -p "$BT_CHECKPOINT_DIR/checkpoint-1"
date -u > "$BT_CHECKPOINT_DIR/checkpoint-1/when.txt"
