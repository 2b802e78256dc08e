# The Python package inside PyTorch, on simulated CUDA.
# shellcheck shell=bash

step torch 'PyTorch with CUDA from PyPI, on our allocator and the simulated driver: numbers, histories, features'
step_torch() {
  install g++ python3-venv binutils
  python/tests/run
}
