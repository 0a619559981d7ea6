#!/usr/bin/env bash
# WORKERS equal servers and sglang-router in front of them; all end together.
#
#   pip install sglang-router        (tried with 0.3.2)
#   WORKERS=2 launch/router.sh --model-path <your model>
#
# Arguments go to every worker. Environment:
#   WORKERS      number of workers, each on the GPU of its number     (2)
#   CONFIG       their configuration                                  (launch/data_parallel.yaml)
#   PORT         the router's port                                    (30000)
#   WORKER_PORT  the first worker's port, counting up                 (31000)
#   WAIT         seconds until every worker must be up                (1200)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
workers=${WORKERS:-2}
config=${CONFIG:-$here/data_parallel.yaml}
port=${PORT:-30000}
first=${WORKER_PORT:-31000}
pids=()
urls=()

trap 'kill "${pids[@]}" 2>/dev/null || true; wait' EXIT
trap 'exit 130' INT TERM

for ((i = 0; i < workers; i++)); do
  CUDA_VISIBLE_DEVICES=$i python -m scout_sglang.launch \
    --config "$config" "$@" --port $((first + i)) &
  pids+=($!)
  urls+=("http://127.0.0.1:$((first + i))")
done

deadline=$((SECONDS + ${WAIT:-1200}))
for ((i = 0; i < workers; i++)); do
  until curl -sf "${urls[i]}/health" >/dev/null; do
    if ! kill -0 "${pids[i]}" 2>/dev/null; then
      echo "worker $i ended before it was up; its last lines above say why" >&2
      exit 1
    fi
    if ((SECONDS > deadline)); then
      echo "worker $i is not up after ${WAIT:-1200} s; raise WAIT for a large model" >&2
      exit 1
    fi
    sleep 2
  done
done

python -m sglang_router.launch_router --worker-urls "${urls[@]}" \
  --policy cache_aware --host 127.0.0.1 --port "$port" &
pids+=($!)
# One gone is all gone: a router that lost a worker would lose that worker's sessions' caches.
wait -n
