# Steps that need no driver.
# shellcheck shell=bash disable=SC2154 # `built` and `scratch` are set by common.sh and run

step programs release 'builds the programs in release mode'
step_programs() { programs; }

step no-driver release 'accel reports that there is no driver'
step_no-driver() {
  programs
  "$built/accel" info --backend opencl | grep '^opencl is not available: '
  "$built/accel" info --backend cuda | grep '^cuda is not available: '
  "$built/accel" info --backend xpu | grep '^xpu is not available: '
  "$built/accel" info --backend vulkan | grep '^vulkan is not available: '
}

step replay release 'the replay of the README'
step_replay() {
  programs
  "$built/accel" replay
}

step tests debug 'all tests, as in the README'
step_tests() { ACCELERATOR_REQUIRE=host cargo test --workspace --locked; }

step models own 'models of the concurrent code, in all interleavings within the bounds of docs/architecture/models.md'
step_models() {
  # In a target folder of its own, because these flags are for all packages. At the end of a run, debug builds check the
  # whole allocator.
  RUSTFLAGS='--cfg loom -C debug-assertions' CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/models \
    cargo test --package accelerator-core --lib --release --locked models
}

step properties release 'property tests with three times as many inputs, in release mode'
step_properties() {
  if ! ACCELERATOR_PROPERTY_FACTOR=3 ACCELERATOR_PROPERTY_FAILURES=$scratch/failing properties; then
    tail -n +1 "$scratch"/failing/* # shows the complete inputs
    exit 1
  fi
}
properties() {
  local program
  program=$(test_program property --release)
  # Each property has its own process: allocators live as long as their process, and each property creates thousands.
  "$program" --list --format terse | sed -n 's/: test$//p' |
    RUST_BACKTRACE=0 xargs -n 1 -P 2 "$program" --quiet --exact &&
    cargo test --release --workspace --test pytorch_files --locked -- random::
}

step faults release 'the suite catches every planted fault; ACCELERATOR_FAULTS_RUNS=3 tries each three times'
step_faults() {
  cargo test --release --workspace --test faults --locked -- --include-ignored
}

step conformance release 'conformance of the simulated device and of the host, in release mode'
step_conformance() {
  programs
  "$built/accel" conformance --backend sim
  conformance host
  ACCELERATOR_HOST_INHERITED=1 conformance host
}

# It has its own workspace and its own Cargo.lock, with the versions of ours. After an update of ours, copy ours there
# and run `cargo check` in that folder, which removes what it does not need.
step third-party debug 'a backend outside the workspace, its suite, and its own accel'
step_third-party() (
  export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
  # Nothing else may be locked there.
  diff <(comm -23 <(locked_versions tests/third-party) <(locked_versions .)) \
    <(printf 'name = "sample-backend" version = "0.1.0"\n')
  cd tests/third-party
  cargo fmt --check
  cargo clippy --all-targets --locked -- --deny warnings
  cargo test --locked
)
locked_versions() { sed -n '/^name = /{N;s/\n/ /;p}' "$1/Cargo.lock" | sort; }

# As for `third-party`, its Cargo.lock has our versions, and libFuzzer in addition. The steps `format` and `clippy` see
# its sources, since `tests/fuzz.rs` has them, too.
step fuzz own 'inputs that the fuzzer found before, and a few seconds of fuzzing for each target'
step_fuzz() {
  if ! command -v c++ >/dev/null; then install g++; fi
  diff <(comm -23 <(locked_versions tests/fuzz) <(locked_versions .) | sed -n 's/^name = "\(.*\)" version.*/\1/p') \
    <(printf '%s\n' accelerator-fuzz arbitrary jobserver libfuzzer-sys)
  tests/fuzz/run replay
  tests/fuzz/run all 3
}

step verify debug 'accel verify --quick on the host, and its report'
step_verify() { cargo test --workspace --test program --locked -- --ignored; }

step names release 'every name in the tables of the facade README'
step_names() {
  programs
  "$built/examples/every_name"
}

step two-models release 'serves two models in turn in the memory of one'
step_two-models() {
  programs
  "$built/examples/serve_two_models"
}

step tracker release 'trains a network, and reads the files that it writes'
step_tracker() {
  programs
  "$built/examples/train_mlp" --stats "$scratch/run.jsonl" --snapshot "$scratch/run.pickle" | tee "$scratch/run"
  grep -E '^(9[0-9]|100)\.[0-9] % of the points' "$scratch/run" # the network has learnt
  "$built/accel" tracker "$scratch/run.jsonl" --top 5
  "$built/accel" convert "$scratch/run.pickle" -o "$scratch/run.trace.gz"
  "$built/accel" replay "$scratch/run.trace.gz" --backend sim
  "$built/accel" report "$scratch/run.pickle" -o "$scratch/run.html"
  "$built/examples/live"
}

step snapshot release 'reads a large snapshot in bounded memory'
step_snapshot() {
  ACCELERATOR_SNAPSHOT_MIB=64 cargo test --release --workspace --test snapshot_memory --locked -- --ignored
}
