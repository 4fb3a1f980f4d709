#!/usr/bin/env bash
# What the job runs: `python` is the one that runtime.python in train.yaml has made.
set -eu
exec python train.py
