#!/bin/bash
#SBATCH --job-name=samebits-merge --cpus-per-task=8 --constraint=icelake
uvx samebits merge --store /shared/samebits
