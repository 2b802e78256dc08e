# Steps that need other programs: valgrind, PyTorch's tools, Python, a browser.
# shellcheck shell=bash disable=SC2154 # `built` and `scratch` are set by common.sh and run

step instructions release 'instruction counts match benches/instructions.txt'
step_instructions() {
  install valgrind
  ACCELERATOR_REQUIRE=valgrind cargo bench --workspace --bench instructions --locked
}

step memcheck debug 'the facade, the core and a few random programs under valgrind: no access outside the heap'
step_memcheck() {
  install valgrind
  # The debug build walks the whole allocator after each operation. The release build is what users run.
  local program programs=(the_allocator_equals_the_model compact::the_program_whose_calls_fail_maps_aliases pools::)
  for program in "$(test_program property)" "$(test_program property --release)"; do
    memcheck "$program" --quiet "${programs[@]}"
  done
  memcheck "$(built_test accelerator_core --lib)" --quiet
  # What other processes do is not seen.
  ACCELERATOR_REQUIRE=host memcheck "$(test_program facade)" --skip sharing::
}
# Runs a test program, of which few random inputs. Arguments: its path, and its arguments.
memcheck() { PROPTEST_CASES=2 RUST_BACKTRACE=0 valgrind --quiet --error-exitcode=1 "$@"; }

step pytorch-tools debug "PyTorch's own tools read our files"
step_pytorch-tools() {
  install python3-venv unzip
  python3 -m venv "$scratch/python"
  # The wheel for macOS has the same Python sources, in a quarter of the size.
  if "$scratch/python/bin/pip" download --quiet --no-deps --only-binary=:all: --dest "$scratch/torch" \
    --platform macosx_14_0_arm64 --python-version 3.11 torch==2.15.0; then
    unzip -q "$scratch"/torch/*.whl torch/cuda/_memory_viz.py torch/distributed/_tools/memory_tracker.py \
      -d "$scratch/sources"
    rm -r "$scratch/torch"
    ACCELERATOR_PYTORCH_SOURCES=$scratch/sources ACCELERATOR_REQUIRE=python,pytorch \
      cargo test --workspace --test pytorch_code --locked
  else
    not_tested "our files were NOT TESTED with PyTorch's own tools: they could not be downloaded from PyPI"
  fi
}

step side-by-side own 'the tests of the side-by-side benchmark with PyTorch'
step_side-by-side() {
  install python3
  python3 -m unittest discover benches/pytorch
}

step browser debug 'the page of a report works in a browser'
step_browser() {
  install chromium
  ACCELERATOR_REQUIRE=chromium cargo test --workspace --test browser --locked
}
