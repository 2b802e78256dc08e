use accelerator_conformance::Suite;
use accelerator_vulkan::Vulkan;

fn main() -> std::process::ExitCode {
    Suite::<Vulkan>::new("vulkan").main()
}
