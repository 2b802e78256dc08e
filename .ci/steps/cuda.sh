# CUDA, on the simulated driver of the tests.
# shellcheck shell=bash disable=SC2154 # `built` and `scratch` are set by common.sh and run

# Runs a program, not cargo, on the simulated driver.
on_simulated_cuda() { env --unset CUDA_VISIBLE_DEVICES LD_PRELOAD="$built/libcuda_sim.so" CUDA_SIM_CLOCK=real "$@"; }

step cuda-info release 'simulated CUDA: the same program as in no-driver sees a device'
step_cuda-info() {
  programs
  on_simulated_cuda "$built/accel" info --backend cuda | grep 'Simulated CUDA device 0'
}

step cuda-conformance release 'simulated CUDA: conformance, other orders of work, each driver function failing in turn'
step_cuda-conformance() {
  programs
  ACCELERATOR_REQUIRE=cuda conformance cuda on_simulated_cuda
  # With a second device, the threads of this case also copy between the two.
  CUDA_SIM_DEVICES=2 conformance_cases cuda M142 on_simulated_cuda
  # Fails only the first call of each function. The default also fails the 1,000th call, and takes twice as long.
  ACCELERATOR_FAILING_CALLS=1 cargo test --release --workspace --test cuda --locked -- --ignored
}

step cuda-programs release 'simulated CUDA: a pipeline of three streams, and two models in turn'
step_cuda-programs() {
  programs
  on_simulated_cuda "$built/examples/pipeline"
  on_simulated_cuda "$built/examples/serve_two_models" cuda
}

step cuda-old-driver release 'simulated CUDA: a driver without virtual memory'
step_cuda-old-driver() {
  programs
  cargo build --package cuda-sim --features old-driver --target-dir "$scratch/old-driver" --locked
  LD_PRELOAD=$scratch/old-driver/debug/libcuda_sim.so env --unset CUDA_VISIBLE_DEVICES CUDA_SIM_CLOCK=real \
    ACCELERATOR_REQUIRE=cuda "$built/accel" conformance --backend cuda
}
