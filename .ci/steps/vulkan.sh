# Vulkan, on Mesa's driver for CPUs.
# shellcheck shell=bash disable=SC2154 # `built` and `scratch` are set by common.sh and run

# Runs a command with only Mesa's driver for CPUs visible.
with_lavapipe() {
  install mesa-vulkan-drivers libvulkan1
  local drivers=(/usr/share/vulkan/icd.d/lvp_icd.*.json)
  VK_DRIVER_FILES=${drivers[0]} VK_ICD_FILENAMES=${drivers[0]} ACCELERATOR_REQUIRE=host,vulkan "$@"
}

# Runs a command under the Khronos validation layer. Any message fails the step, and so does a layer that is not active.
validated() {
  install vulkan-validationlayers
  rm -f "$scratch/validation.txt"
  {
    validation_settings "$scratch/validation.txt"
    # This finds missing barriers, which drivers for CPUs do not need.
    echo 'khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT'
  } >"$scratch/vk_layer_settings.txt"
  VK_LAYER_SETTINGS_PATH=$scratch VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation with_lavapipe "$@" || return 1
  is_clean "$scratch/validation.txt"
}
validation_settings() {
  cat <<-END
	khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
	khronos_validation.log_filename = $1
	khronos_validation.report_flags = error,warn,perf,info
	END
}
is_clean() {
  grep -q 'Khronos Validation Layer Active' "$1" || return 1
  # The first form is that of Debian 12.
  if grep -E -A20 '\((ERROR|WARN|PERF)|^Validation (Error|Warning|Performance)' "$1"; then return 1; fi
}

step vulkan-conformance release 'Vulkan: conformance'
step_vulkan-conformance() {
  programs
  conformance vulkan with_lavapipe
}

step vulkan-validation release 'Vulkan: conformance and tests under the Khronos validation layer'
step_vulkan-validation() {
  programs
  validated conformance_cases vulkan ''
  validated cargo test --workspace --locked --test vulkan
}

step vulkan-tests debug 'Vulkan: all tests that use a driver'
step_vulkan-tests() {
  install spirv-tools
  # The step vulkan-conformance covers the conformance cases.
  with_lavapipe cargo test --workspace --locked --test program --test facade --test vulkan
  with_lavapipe cargo test --workspace --locked --test failing_calls -- vulkan::
}

step vulkan-saxpy release 'Vulkan: saxpy'
step_vulkan-saxpy() {
  programs
  with_lavapipe "$built/examples/saxpy-vulkan"
  with_lavapipe "$built/accel" verify --backend vulkan --quick --output "$scratch/vulkan.md"
}

step vulkan-newer-driver debug 'Vulkan: virtual memory, on the driver of Debian 13 under the Khronos validation layer'
step_vulkan-newer-driver() {
  programs
  if ! unpack_debian13; then
    not_tested 'virtual memory on Vulkan was NOT TESTED: Debian 13 cannot be unpacked here'
    return
  fi
  local program
  program=$(test_program vulkan)
  into_debian13 "$built/accel" "$program" "$(dirname "$program")/../../tmp" tests/data crates/accelerator-cli/src/backends \
    backends/vulkan
  validation_settings /var/log/validation.txt | as_root tee "$scratch/debian13/var/log/vk_layer_settings.txt" >/dev/null
  # This driver has address space for 2 GiB, of which each open device takes some. On one core, one case runs at a time.
  conformance_cases vulkan '' on_newer_driver ACCELERATOR_VULKAN_CAPACITY=512MiB taskset -c 0
  on_newer_driver ACCELERATOR_REQUIRE=vulkan,vulkan-virtual-memory "$program"
}
on_newer_driver() {
  as_root rm -f "$scratch/debian13/var/log/validation.txt"
  in_debian13 VK_DRIVER_FILES=/usr/share/vulkan/icd.d/lvp_icd.json ACCELERATOR_REQUIRE=vulkan \
    VK_LAYER_SETTINGS_PATH=/var/log VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation "$@" || return 1
  is_clean "$scratch/debian13/var/log/validation.txt"
}
