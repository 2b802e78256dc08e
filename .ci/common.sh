# What steps share. Read by .ci/run.
# shellcheck shell=bash disable=SC2154 # .ci/run sets the variables of `finish`

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Runs when the script ends, however it ends: how long each step took, and whether all is well. The status would not do:
# it is 0 after a signal that came between two commands.
finish() {
  printf '\n%s' "$times"
  if [ -n "$held" ]; then
    printf '%6d s  in all\n\n%s%s\n' "$SECONDS" "$closing" "$untested"
  else
    printf '%6d s  %s: FAILED, or was stopped\n' $((SECONDS - began)) "$current"
  fi
  rm -rf "$scratch" 2>/dev/null || as_root rm -rf "$scratch"
}

# Notes for the last line what could not be tested, and why.
untested=
not_tested() { untested="$untested, but $1"; }

# Hides the drivers that the machine has; the steps that need one show it to their programs.
see_no_drivers() {
  # OpenCL's loaders look for drivers here: in an empty folder.
  mkdir "$scratch/no-drivers"
  export OCL_ICD_VENDORS=$scratch/no-drivers
  unset OCL_ICD_FILENAMES
  # None of CUDA's devices is seen.
  export CUDA_VISIBLE_DEVICES=
  # None of Level Zero's drivers: an empty name would crash some loaders.
  export ZE_ENABLE_ALT_DRIVERS=/no/such/driver
}

# Installs those of these Debian packages that are missing.
apt_is_fresh=
install() {
  local package missing=()
  for package in "$@"; do
    if [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
      missing+=("$package")
    fi
  done
  if [ ${#missing[@]} = 0 ]; then return; fi
  if [ -z "$apt_is_fresh" ]; then as_root apt-get update; fi
  apt_is_fresh=yes
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"
}

# Builds a tool of cargo unless it is there: its name, its version, and further arguments of `cargo install`. A debug
# build takes a third of the time, and the tools have little to do.
cargo_tool() {
  local tools=${CARGO_TARGET_DIR:-$PWD/target}/tools
  PATH=$PATH:$tools/bin
  if ! command -v "$1" >/dev/null; then
    CARGO_PROFILE_DEV_DEBUG=false cargo install "$1@$2" --locked --debug --root "$tools" "${@:3}"
  fi
}

# Builds the programs, in release and once, and sets `built` to their folder. Their features are those that all members
# of the workspace ask for together, as in all tests, so that nothing is built twice.
built=
programs() {
  if [ -n "$built" ]; then return; fi
  cargo build --release --workspace --lib --bins --examples --bench instructions --locked
  built=$(realpath "${CARGO_TARGET_DIR:-target}/release")
}
