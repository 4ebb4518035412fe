#!/bin/bash
#SBATCH --job-name=samebits --array=1-8 --cpus-per-task=8 --constraint=icelake
uvx samebits matrix --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" \
  --jobs "$SLURM_CPUS_PER_TASK" --store /shared/samebits
