# OpenCL, on drivers for CPUs.
# shellcheck shell=bash disable=SC2154 # `built` and `scratch` are set by common.sh and run

# Installs the drivers to test with, and lists them in `drivers`.
drivers=()
opencl_drivers() {
  if [ ${#drivers[@]} != 0 ]; then return; fi
  install pocl-opencl-icd ocl-icd-libopencl1 python3-venv
  drivers=(/etc/OpenCL/vendors/pocl.icd)
  python3 -m venv "$scratch/intel"
  # The second package is an undeclared dependency of the first: without it the loader finds no platform.
  if "$scratch/intel/bin/pip" install --quiet intel-opencl-rt intel-cmplr-lib-rt; then
    drivers+=("$scratch/intel/lib/libintelocl.so")
  else
    not_tested "Intel's OpenCL runtime was NOT TESTED: it could not be downloaded from PyPI"
  fi
}

# Runs a command once for each driver, with only that driver visible.
for_each_driver() {
  local driver
  opencl_drivers
  for driver in "${drivers[@]}"; do
    printf -- '-- with %s\n' "$driver"
    OCL_ICD_VENDORS=$driver ACCELERATOR_REQUIRE=host,opencl "$@"
  done
}

step opencl-conformance 'OpenCL: conformance'
step_opencl-conformance() {
  programs
  for_each_driver conformance opencl
}

step opencl-tests 'OpenCL: all tests that use a driver'
step_opencl-tests() {
  # The step opencl-conformance covers the cases under the policy `compact`, and the step tests covers everything that
  # needs no device.
  for_each_driver cargo test --workspace --locked \
    --test program --test conformance --test facade --test kernels --test opencl -- \
    --skip compare:: --skip ' (compact)'
  for_each_driver cargo test --workspace --locked --test failing_calls -- opencl::
}

step opencl-saxpy 'OpenCL: saxpy'
step_opencl-saxpy() {
  programs
  for_each_driver "$built/examples/saxpy-opencl"
}

step opencl-types 'OpenCL: conversions to types of ocl-core, which link the loader'
step_opencl-types() {
  install ocl-icd-opencl-dev
  for_each_driver cargo test --package accelerator-opencl --features ocl --locked
}
