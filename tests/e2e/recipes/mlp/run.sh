#!/bin/bash
set -eux
# an image would bring its own
PYTHON=${PYTHON:-python}
export OMP_NUM_THREADS=1
$PYTHON train.py --epochs "$EPOCHS" --data "$BT_RW_CACHE_DIR/spirals.pt" --output "$BT_CHECKPOINT_DIR"
