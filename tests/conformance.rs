//! The conformance suite for every backend of the workspace.

use std::process::ExitCode;

use accelerator_cli::backends::Choice;

fn main() -> ExitCode {
    Choice::Sim
        .conformance()
        .and(Choice::Host.conformance())
        .and(Choice::Cuda.conformance())
        .and(Choice::Xpu.conformance())
        .and(Choice::OpenCl.conformance())
        .and(Choice::Vulkan.conformance())
        .main()
}
