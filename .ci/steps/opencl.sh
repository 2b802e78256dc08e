# OpenCL, on drivers for CPUs.
# shellcheck shell=bash disable=SC2154 # `built` and `scratch` are set by common.sh and run

# Sets `drivers` to the drivers to test with, and installs them.
drivers=()
opencl_drivers() {
  if [ ${#drivers[@]} != 0 ]; then return; fi
  install pocl-opencl-icd ocl-icd-libopencl1 python3-venv
  drivers=(/etc/OpenCL/vendors/pocl.icd)
  python3 -m venv "$scratch/intel"
  # The second is a need of the first that it does not tell: without it the loader finds no platform.
  if "$scratch/intel/bin/pip" install --quiet intel-opencl-rt intel-cmplr-lib-rt; then
    drivers+=("$scratch/intel/lib/libintelocl.so")
  else
    not_tested "Intel's OpenCL runtime was NOT TESTED: PyPI does not give it"
  fi
}

# Runs a command with each driver alone.
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
  for_each_driver "$built/accel" conformance --backend opencl
}

step opencl-tests 'OpenCL: all tests that see a driver'
step_opencl-tests() {
  # The step opencl-conformance has the cases under the policy `compact`, and the step tests what needs no device.
  for_each_driver cargo test --workspace --locked \
    --test program --test conformance --test facade --test kernels --test opencl -- \
    --skip compare:: --skip ' (compact)'
}

step opencl-saxpy 'OpenCL: saxpy'
step_opencl-saxpy() {
  programs
  for_each_driver "$built/examples/saxpy-opencl"
}

step opencl-types 'OpenCL: types of ocl-core, which link the loader'
step_opencl-types() {
  install ocl-icd-opencl-dev
  for_each_driver cargo test --package accelerator-opencl --features ocl --locked
}
