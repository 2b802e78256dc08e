#!/usr/bin/env bash
# The commands of the recipe "Replay a job under other settings". They need `accel` and a file snapshot.pickle.
set -euo pipefail

# ANCHOR: replay
accel replay snapshot.pickle --backend sim
accel replay snapshot.pickle --backend sim --conf policy:compact
# ANCHOR_END: replay
# ANCHOR: advise
accel advise snapshot.pickle
# ANCHOR_END: advise
# ANCHOR: compare
accel replay --compare snapshot.pickle --conf garbage_collection_threshold:0.8,per_process_memory_fraction:0.9
# ANCHOR_END: compare
# ANCHOR: convert
accel convert snapshot.pickle -o job.trace.gz
accel report job.trace.gz --conf policy:compact -o report.html
# ANCHOR_END: convert
