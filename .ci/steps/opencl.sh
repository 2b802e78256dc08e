# OpenCL, on drivers for CPUs.
# shellcheck shell=bash disable=SC2154 # `built` and `scratch` are set by common.sh and run

# Installs the drivers to test with, once, and lists them in the file `opencl-drivers`.
opencl_drivers() {
  if [ -e "$scratch/opencl-drivers" ]; then return; fi
  install pocl-opencl-icd ocl-icd-libopencl1 python3-venv
  python3 -m venv "$scratch/intel"
  echo /etc/OpenCL/vendors/pocl.icd >"$scratch/opencl-drivers"
  # The second package is an undeclared dependency of the first: without it the loader finds no platform.
  if "$scratch/intel/bin/pip" install --quiet intel-opencl-rt intel-cmplr-lib-rt; then
    echo "$scratch/intel/lib/libintelocl.so" >>"$scratch/opencl-drivers"
  else
    not_tested "Intel's OpenCL runtime was NOT TESTED: it could not be downloaded from PyPI"
  fi
}

# Runs a command once for each driver, with only that driver visible.
for_each_driver() {
  local driver drivers
  one_at_a_time opencl-drivers opencl_drivers
  mapfile -t drivers <"$scratch/opencl-drivers"
  for driver in "${drivers[@]}"; do
    printf -- '-- with %s\n' "$driver"
    OCL_ICD_VENDORS=$driver ACCELERATOR_REQUIRE=host,opencl "$@"
  done
}

step opencl-conformance release 'OpenCL: conformance'
step_opencl-conformance() {
  programs
  for_each_driver conformance opencl
}

step opencl-tests debug 'OpenCL: all tests that use a driver'
step_opencl-tests() {
  # The step opencl-conformance covers the cases under the policy `compact`, and the step tests covers everything that
  # needs no device.
  for_each_driver cargo test --workspace --locked \
    --test program --test conformance --test facade --test kernels --test opencl -- \
    --skip compare:: --skip ' (compact)'
  for_each_driver cargo test --workspace --locked --test failing_calls -- opencl::
}

step opencl-saxpy release 'OpenCL: saxpy'
step_opencl-saxpy() {
  programs
  for_each_driver "$built/examples/saxpy-opencl"
}

step opencl-types debug 'OpenCL: conversions to types of ocl-core, which link the loader'
step_opencl-types() {
  install ocl-icd-opencl-dev
  for_each_driver cargo test --package accelerator-opencl --features ocl --locked
}
