# Functions shared by all steps. Read by .ci/run.
# shellcheck shell=bash disable=SC2154 # .ci/run sets `scratch`, and the schedule `current`

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Adds to the last line what could not be tested, and why.
not_tested() { printf ', but %s' "$1" >>"$scratch/untested"; }

# Runs a command while no other step runs one under this name. Arguments: the name, and the command.
one_at_a_time() {
  (
    flock 9
    "${@:2}" 9>&-
  ) 9>"$scratch/$1.lock"
}

# Hides the drivers of the machine. Steps that need a driver make it visible to their programs.
see_no_drivers() {
  # OpenCL loaders look for drivers in this folder, which is empty.
  mkdir "$scratch/no-drivers"
  export OCL_ICD_VENDORS=$scratch/no-drivers
  unset OCL_ICD_FILENAMES
  # Vulkan's loader finds no driver. Old loaders know the second variable only.
  export VK_DRIVER_FILES=/no/such/driver VK_ICD_FILENAMES=/no/such/driver
  # No CUDA device is visible.
  export CUDA_VISIBLE_DEVICES=
  # No Level Zero driver is visible. An empty name would crash some loaders.
  export ZE_ENABLE_ALT_DRIVERS=/no/such/driver
}

# Installs these Debian packages, if they are missing.
install() { one_at_a_time install install_missing "$@"; }
install_missing() {
  local package missing=()
  for package in "$@"; do
    if [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
      missing+=("$package")
    fi
  done
  if [ ${#missing[@]} = 0 ]; then return; fi
  if [ ! -e "$scratch/apt-is-fresh" ]; then as_root apt-get update; fi
  touch "$scratch/apt-is-fresh"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"
}

# Builds a cargo tool unless it is installed. Arguments: its name, its version, and further arguments of `cargo
# install`. A debug build takes a third of the time, and is fast enough.
cargo_tool() {
  local tools=${CARGO_TARGET_DIR:-$PWD/target}/tools
  PATH=$PATH:$tools/bin
  if ! command -v "$1" >/dev/null; then
    CARGO_PROFILE_DEV_DEBUG=false cargo install "$1@$2" --locked --debug --root "$tools" "${@:3}"
  fi
}

# Builds the programs once, in release mode, and sets `built` to their folder. As in all tests, the features are those
# that all members of the workspace request together, so that nothing is built twice.
built=
programs() {
  if [ -n "$built" ]; then return; fi
  cargo build --release --workspace --lib --bins --examples --bench instructions --locked
  built=$(realpath "${CARGO_TARGET_DIR:-target}/release")
}

# Runs conformance cases of a backend. A case that could not look while work was running tested nothing, so it fails the
# step. Arguments: the backend, a part of the names of the cases or an empty text for all, and what to put before the
# program.
conformance_cases() {
  # shellcheck disable=SC2086 # an empty text is no argument
  "${@:3}" "$built/accel" conformance --backend "$1" $2 | tee "$scratch/$current.conformance" || return 1
  if grep 'could not ask' "$scratch/$current.conformance"; then return 1; fi
}

# Runs the conformance suite of a backend, and the cases of the backend itself once more on one core. Arguments: the
# backend, and what to put before the program.
conformance() {
  conformance_cases "$1" '' "${@:2}" || return 1
  conformance_cases "$1" M "${@:2}" taskset -c 0
}

# Unpacks Debian 13, which has newer drivers and loaders, once. Fails if that is not possible here.
unpack_debian13() { one_at_a_time debian13 unpack_debian13_once; }
unpack_debian13_once() {
  local packages=libze1,mesa-vulkan-drivers,libvulkan1,vulkan-validationlayers
  if [ ! -d "$scratch/debian13" ]; then
    install debootstrap
    as_root debootstrap --variant=minbase --include="$packages" trixie "$scratch/debian13" >"$scratch/debootstrap" 2>&1 ||
      { tail -5 "$scratch/debootstrap" && as_root rm -rf "$scratch/debian13"; }
  fi
  in_debian13 true
}

# Copies files and folders there, to the paths that they have here.
into_debian13() {
  local needed
  for needed in "$@"; do
    as_root cp --recursive --parents "$(realpath "$needed")" "$scratch/debian13"
  done
}

# Runs a command there. Its environment may be set first, as for `env`.
in_debian13() {
  # shellcheck disable=SC2016 # the inner shell expands the variables
  as_root unshare --mount sh -c 'mount --bind /proc "$1/proc" && exec chroot "$@"' sh "$scratch/debian13" env "$@"
}

# Builds a test target and prints the path of its program. Arguments: its name, and further arguments of `cargo test`.
test_program() { built_test "$1" --test "$@"; }

# Builds tests, and prints the path of one program. Arguments: its name, and which tests `cargo test` is to build.
built_test() {
  cargo test --workspace --no-run --message-format=json --locked "${@:2}" |
    sed -n 's/.*"executable":"\([^"]*\/'"$1"'-[^"]*\)".*/\1/p'
}
