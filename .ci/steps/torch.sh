# The Python package inside PyTorch, on simulated CUDA.
# shellcheck shell=bash

step torch 'PyTorch with CUDA from PyPI, on our allocator and the simulated driver: numbers, histories, features'
step_torch() {
  install g++ python3-venv binutils
  python/tests/run
}

step wheel 'the Python wheel: its size, contents and tag; without PyTorch; in unchanged programs; its reports and advice'
step_wheel() {
  install g++ python3-venv binutils
  local clean=$scratch/clean/bin
  python3 -m venv "$scratch/clean"
  ACCELERATOR_PREBUILD=2.15.0:2.14.1:2.13.0 "$clean/pip" wheel --quiet --no-deps --wheel-dir "$scratch/wheel" ./python
  "$clean/pip" install --quiet --no-index "$scratch"/wheel/*.whl
  "$clean/python" -B python/tests/wheel.py "$scratch"/wheel/*.whl
  ACCELERATOR_WHEEL=$(echo "$scratch"/wheel/*.whl) python/tests/run test_environment test_tools
}
