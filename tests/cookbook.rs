//! The programs of the documentation's cookbook and of its first pages. They check themselves. They read state of the
//! whole process, such as the peak of the memory, so each runs in a process of its own.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::needless_question_mark,
    reason = "the pages show the recipes as they are, and their `main`s have two types of errors"
)]

use std::env;
use std::error::Error;
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};

/// Set to the recipe's name in its process.
const CHILD: &str = "ACCELERATOR_RECIPE";

type Recipe = (&'static str, fn() -> Result<(), Box<dyn Error>>);

macro_rules! recipes {
    ($($name:ident in $path:literal)*) => {
        $(#[path = $path] mod $name;)*

        const RECIPES: &[Recipe] = &[$((stringify!($name), || Ok($name::main()?))),*];
    };
}

recipes! {
    allocate_and_copy in "cookbook/allocate_and_copy.rs"
    capture_a_graph in "cookbook/capture_a_graph.rs"
    find_a_leak in "cookbook/find_a_leak.rs"
    first_program in "cookbook/first_program.rs"
    fragmentation in "cookbook/fragmentation.rs"
    limit_the_memory in "cookbook/limit_the_memory.rs"
    out_of_memory in "cookbook/out_of_memory.rs"
    overlap_copies in "cookbook/overlap_copies.rs"
    pause_a_model in "cookbook/pause_a_model.rs"
    peak_of_a_step in "cookbook/peak_of_a_step.rs"
    pinned_memory in "cookbook/pinned_memory.rs"
    pool_for_a_phase in "cookbook/pool_for_a_phase.rs"
    pool_with_its_own_source in "cookbook/pool_with_its_own_source.rs"
    share_between_processes in "cookbook/share_between_processes.rs"
    share_between_streams in "cookbook/share_between_streams.rs"
    write_a_backend in "cookbook/write_a_backend.rs"
    write_a_snapshot in "cookbook/write_a_snapshot.rs"
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(name) = env::var_os(CHILD) {
        let (_, recipe) = RECIPES.iter().find(|(other, _)| name == *other).ok_or("no such recipe")?;
        return recipe();
    }
    let trials = RECIPES.iter().map(|(name, _)| Trial::test(*name, || in_a_process(name))).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Runs a recipe on the host in an empty folder, without settings from the environment.
fn in_a_process(name: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(env::current_exe()?);
    command.env(CHILD, name).env("ACCELERATOR_BACKEND", "host").current_dir(&folder);
    for variable in
        ["ACCELERATOR_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]
    {
        command.env_remove(variable);
    }
    let output = command.env_remove("ACCELERATOR_HOST_CAPACITY").output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(format!("{stdout}{stderr}").into()) }
}
