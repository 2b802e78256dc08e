# The Python package inside PyTorch, on simulated CUDA.
# shellcheck shell=bash disable=SC2154 # `scratch` is set by run

# Runs a command that builds in a target folder of its own. It builds libraries whose features differ from those of the
# whole workspace, under the same names.
in_python_folder() { CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}/python") "$@"; }

step torch python 'PyTorch with CUDA from PyPI, on our allocator and the simulated driver: numbers, histories, features'
step_torch() {
  install g++ python3-venv binutils
  in_python_folder python/tests/run
}

step wheel python 'the Python wheel: size, contents, tag; without PyTorch; in unchanged programs; reports and advice'
step_wheel() {
  install g++ python3-venv binutils
  local clean=$scratch/clean/bin
  python3 -m venv "$scratch/clean"
  ACCELERATOR_PREBUILD=2.15.0:2.14.1:2.13.0 in_python_folder \
    "$clean/pip" wheel --quiet --no-deps --wheel-dir "$scratch/wheel" ./python
  "$clean/pip" install --quiet --no-index "$scratch"/wheel/*.whl
  "$clean/python" -B python/tests/wheel.py "$scratch"/wheel/*.whl
  ACCELERATOR_WHEEL=$(echo "$scratch"/wheel/*.whl) in_python_folder python/tests/run test_environment test_tools
}
