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
  local log=$scratch/validation.txt
  cat >"$scratch/vk_layer_settings.txt" <<-END
	khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
	khronos_validation.log_filename = $log
	khronos_validation.report_flags = error,warn,perf,info
	END
  rm -f "$log"
  VK_LAYER_SETTINGS_PATH=$scratch VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation with_lavapipe "$@"
  grep -q 'Khronos Validation Layer Active' "$log"
  if grep -v '(INFO / ' "$log" | grep -E -A20 '\((ERROR|WARN|PERF)'; then return 1; fi
}

step vulkan-conformance 'Vulkan: conformance'
step_vulkan-conformance() {
  programs
  with_lavapipe "$built/accel" conformance --backend vulkan
  with_lavapipe taskset -c 0 "$built/accel" conformance --backend vulkan M
}

step vulkan-validation 'Vulkan: conformance and tests under the Khronos validation layer'
step_vulkan-validation() {
  programs
  validated "$built/accel" conformance --backend vulkan
  validated cargo test --workspace --locked --test vulkan
}

step vulkan-tests 'Vulkan: all tests that use a driver'
step_vulkan-tests() {
  install spirv-tools
  # The step vulkan-conformance covers the conformance cases.
  with_lavapipe cargo test --workspace --locked --test program --test vulkan
}

step vulkan-saxpy 'Vulkan: saxpy'
step_vulkan-saxpy() {
  programs
  with_lavapipe "$built/examples/saxpy-vulkan"
  with_lavapipe "$built/accel" verify --backend vulkan --quick --output "$scratch/vulkan.md"
}
