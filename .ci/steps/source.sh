# The sources: layout, lints, documents, dependencies, packages.
# shellcheck shell=bash disable=SC2154 # `built` and `scratch` are set by common.sh and run

step format own 'the sources are formatted by rustfmt'
step_format() { cargo fmt --all --check; }

step planted own 'the faults of tests/mutants/planted.toml still fit the code, and the adversary finds two of them'
step_planted() {
  if ! command -v python3 >/dev/null; then install python3; fi
  tests/mutants/planted.py --check
  tests/mutants/planted.py --quick 'two `&mut`' 'a skipped event'
}

step clippy debug 'no clippy warnings, with several sets of features'
step_clippy() {
  local feature
  cargo clippy --workspace --all-targets --locked -- --deny warnings
  cargo clippy --locked -- --deny warnings
  cargo clippy --package accelerator-rs --no-default-features --locked -- --deny warnings
  cargo clippy --package accelerator-rs --no-default-features --features opencl --locked -- --deny warnings
  cargo clippy --package accelerator-rs --no-default-features --features cuda --locked -- --deny warnings
  cargo clippy --package accelerator-rs --no-default-features --features vulkan --locked -- --deny warnings
  cargo clippy --package accelerator-rs --no-default-features --features xpu --locked -- --deny warnings
  for feature in '' conformance cuda host opencl vulkan xpu; do
    cargo clippy --package accelerator-cli --no-default-features --features "$feature" --locked -- --deny warnings
  done
  cargo clippy --package accelerator-tracker --no-default-features --locked -- --deny warnings
  cargo clippy --package level-zero-sys --all-targets --all-features --locked -- --deny warnings
  cargo clippy --package accelerator-opencl --all-targets --all-features --locked -- --deny warnings
}

step documentation debug 'the documentation of all crates builds without warnings'
step_documentation() { RUSTDOCFLAGS='--deny warnings' cargo doc --workspace --no-deps --locked; }

# The core depends on crates for typed views, error messages, warnings and system calls, and on their dependencies.
step core-dependencies own 'the core has only the dependencies listed in this step'
step_core-dependencies() {
  diff <(cargo tree --package accelerator-core --edges normal --prefix none --format '{lib}' --no-dedupe --locked |
    sort --unique) \
    <(printf '%s\n' accelerator_core bitflags bytemuck libc linux_raw_sys once_cell pin_project_lite proc_macro2 \
      quote rustix syn thiserror thiserror_impl tracing tracing_core unicode_ident)
}

# The omitted default feature is a built-in git client. Without it cargo-deny runs the program git.
step deny own 'dependencies have licences and sources that deny.toml allows, and no known vulnerabilities'
step_deny() {
  # The crates outside the workspace have a Cargo.lock each. Steps far below need them; a stale one fails here, early.
  cargo metadata --manifest-path tests/third-party/Cargo.toml --locked --format-version 1 >/dev/null
  cargo metadata --manifest-path tests/fuzz/Cargo.toml --locked --format-version 1 >/dev/null
  cargo_tool cargo-deny 0.20.2 --no-default-features
  cargo deny --locked check --hide-inclusion-graph licenses bans sources
  if cargo deny fetch db 2>"$scratch/advisories"; then
    cargo deny --locked check --hide-inclusion-graph --disable-fetch advisories
  else
    tail -3 "$scratch/advisories"
    not_tested 'known vulnerabilities of dependencies were NOT CHECKED: the advisory database could not be fetched'
  fi
}

step cuda-versions debug 'the oldest and newest bindings of CUDA, and a version that a user chooses'
step_cuda-versions() {
  local version
  for version in cuda-11040 cuda-13040; do
    cargo check --package accelerator-cuda --no-default-features --features "$version" --locked
  done
  cargo check --package accelerator-rs --features cuda-without-version,accelerator-cuda/cuda-12080 --locked
}

# Clippy already reports functions of the standard library that are too new.
step oldest-rust own 'the oldest supported Rust compiles everything, if it is installed'
step_oldest-rust() {
  local version toolchain
  version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
  toolchain=$(rustup toolchain list 2>/dev/null | grep --max-count=1 --only-matching "^${version}[.-][^ ]*") || true
  if [ -n "$toolchain" ]; then
    cargo "+$toolchain" check --workspace --all-targets --locked --target-dir "$scratch/oldest-rust"
  else
    not_tested "Rust $version was NOT TESTED: it is not installed"
  fi
}

step package debug 'the packages for crates.io contain their licence and README, and compile'
step_package() {
  local packages=$scratch/packages archive name
  # Uploads nothing. Cargo's own check builds each package with all that it depends on, which takes minutes.
  cargo package --workspace --locked --allow-dirty --quiet --no-verify --target-dir "$scratch/package"
  mkdir "$packages"
  cp Cargo.lock "$packages"
  # They depend on each other as on packages from crates.io. The profile is that of our dependencies.
  printf '%s\n' '[workspace]' 'resolver = "3"' 'members = ["*-[0-9]*"]' \
    '[profile.dev]' 'debug = false' '[patch.crates-io]' >"$packages/Cargo.toml"
  for archive in "$scratch"/package/package/*.crate; do
    tar --extract --directory "$packages" --file "$archive"
    name=$(basename "$archive" .crate)
    if grep --quiet '^publish = false' "$packages/$name/Cargo.toml"; then
      rm -r "${packages:?}/$name"
      continue
    fi
    printf '%s = { path = "%s" }\n' "${name%-[0-9]*}" "$name" >>"$packages/Cargo.toml"
    ls "$packages/$name"/{README.md,LICENSE-*}
  done
  for archive in "$packages"/*/; do
    name=$(basename "$archive")
    cargo check --manifest-path "$packages/Cargo.toml" --package "${name%-[0-9]*}" --offline \
      --target-dir "${CARGO_TARGET_DIR:-target}"
  done
}

step semver own 'the version number matches the API changes since the last tag'
step_semver() {
  local tag
  if tag=$(git describe --tags --abbrev=0 2>/dev/null); then
    cargo_tool cargo-semver-checks 0.51.0
    cargo semver-checks --workspace --baseline-rev "$tag"
  else
    printf 'skipped: there is no tag to compare with yet\n'
  fi
}
