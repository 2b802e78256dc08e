# Level Zero: its loader, Intel's driver, and the simulated driver of the tests.
# shellcheck shell=bash disable=SC2154 # `built` and `scratch` are set by common.sh and run

# Runs a program with Intel's driver without a device. It accepts work, but executes nothing.
without_hardware() {
  env --chdir="$scratch" --unset ZE_ENABLE_ALT_DRIVERS NEOReadDebugKeys=1 SetCommandStreamReceiver=1 \
    ProductFamilyOverride=tgllp AUBDumpSubCaptureMode=1 "$@"
}
# Runs a program with the simulated driver, under the loader's checks.
on_simulated_ze() {
  env ZE_ENABLE_ALT_DRIVERS="$built/libze_sim.so" ZE_ENABLE_VALIDATION_LAYER=1 ZE_ENABLE_PARAMETER_VALIDATION=1 \
    ZE_SIM_CLOCK=real ACCELERATOR_REQUIRE=xpu "$@"
}

step xpu-loader release 'Level Zero: the real loader, and no driver'
step_xpu-loader() {
  install libze1
  programs
  env --unset ZE_ENABLE_ALT_DRIVERS "$built/accel" info --backend xpu |
    grep "^xpu is not available: no Level Zero driver finds a GPU"
  env --unset ZE_ENABLE_ALT_DRIVERS "$built/accel" conformance --backend xpu
}

step xpu-tests debug "Level Zero: Intel's driver without hardware and the simulated driver, with the loader's checks"
step_xpu-tests() {
  install libze1 intel-opencl-icd spirv-tools
  ACCELERATOR_REQUIRE=xpu,spirv-tools \
    cargo test --workspace --test ddi --test loader --test driver --test xpu --test kernels --locked
}

step xpu-compiler release "Level Zero: Intel's driver without hardware accepts a kernel but does not execute it"
step_xpu-compiler() {
  install libze1 intel-opencl-icd
  programs
  local status=0
  without_hardware "$built/examples/saxpy-xpu" >"$scratch/saxpy" 2>&1 || status=$?
  cat "$scratch/saxpy"
  [ "$status" = 1 ]
  grep 'launched the kernel' "$scratch/saxpy"
  grep 'did not come back' "$scratch/saxpy"
}

step xpu-conformance release 'simulated Level Zero: conformance, other orders of work, each driver function failing'
step_xpu-conformance() {
  install libze1
  programs
  conformance xpu on_simulated_ze
  ACCELERATOR_FAILING_CALLS=1 ACCELERATOR_REQUIRE=xpu cargo test --release --workspace --test xpu --locked -- --ignored
}

step xpu-verify release 'simulated Level Zero: verify --quick, and a kernel'
step_xpu-verify() {
  install libze1
  programs
  on_simulated_ze "$built/accel" verify --backend xpu --quick
  on_simulated_ze "$built/examples/saxpy-xpu"
}

step xpu-newer-loader debug 'simulated Level Zero: the newer loader of Debian 13'
# With this loader, streams keep their own order, and the loader checks for leaks.
step_xpu-newer-loader() {
  if ! unpack_debian13; then
    not_tested 'a newer loader of Level Zero was NOT TESTED: Debian 13 cannot be unpacked here'
    return
  fi
  local program beside
  program=$(test_program xpu)
  beside=$(dirname "$program")
  into_debian13 "$program" "$beside"/{libze_sim.so,libcuda_sim.so,../../tmp} tests/data backends/xpu
  in_debian13 "$program" simulated:: --skip parity
  in_debian13 "$program" simulated::suite::seed_1 --ignored
}
