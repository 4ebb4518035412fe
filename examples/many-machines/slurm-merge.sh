#!/bin/bash
#SBATCH --job-name=samebits-merge --cpus-per-task=8 --constraint=icelake
uvx samebits merge --jobs "$SLURM_CPUS_PER_TASK" --store /shared/samebits
