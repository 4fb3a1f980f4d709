#!/usr/bin/env bash
# The job runs this script. `python` is the environment that runtime.python in train.yaml defines.
set -eu
exec python train.py
