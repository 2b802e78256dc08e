//! Makes each driver call of a program fail in turn. The error must be typed and name the call, and nothing may be
//! lost.

use accelerator_core::{Accelerator, Backend, Error};
use accelerator_cuda::Cuda;
use libtest_mimic::{Failed, Trial};

use crate::failing;
use crate::programs::everything::{opened_and_worked, pools_graphs_and_pauses, something_of_everything};
use crate::programs::failing::InDriver;
use crate::programs::long;
use crate::programs::process;
use crate::rig::{self, Outcome, check_all_gone, trial};

const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const LAUNCH_FAILED: i32 = 719;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("every_call::refuses", MEMORY, || in_turn(INVALID_VALUE, something_of_everything)),
        trial("every_call::is_out_of_memory", MEMORY, || in_turn(OUT_OF_MEMORY, something_of_everything)),
        trial("every_call::loses_the_device", MEMORY, || loses_the_device(something_of_everything)),
        trial("every_call::of_pools_refuses", MEMORY, || in_turn(INVALID_VALUE, pools_graphs_and_pauses)),
        trial("every_call::of_pools_is_out_of_memory", MEMORY, || in_turn(OUT_OF_MEMORY, pools_graphs_and_pauses)),
        trial("every_call::of_pools_loses_the_device", MEMORY, || loses_the_device(pools_graphs_and_pauses)),
        trial("every_call::of_random_programs", RANDOM, random_programs),
        long(trial("every_call::of_conformance", CONFORMANCE, conformance)),
    ]
}

/// A program each of whose calls fails in turn.
type Work = fn(&'static Accelerator<Cuda>) -> Result<(), Error>;

const MEMORY: &[(&str, &str)] = &[("CUDA_SIM_MEMORY", "256M"), ("CUDA_SIM_HOST_MEMORY", "8M")];

const RANDOM: &[(&str, &str)] = &[("CUDA_SIM_MEMORY", "256M"), ("CUDA_SIM_HOST_MEMORY", "64M")];
/// The suite compares elapsed time with the host's clock.
const CONFORMANCE: &[(&str, &str)] = &[("CUDA_SIM_CLOCK", "real")];

/// Returns the number of calls that the program makes when none fail.
fn calls_of_all(work: Work) -> Result<u64, Failed> {
    assert_eq!(Cuda::probe()?, 1); // once per process, and not counted here
    let before = rig::calls();
    let (worked, device) = opened_and_worked(work)?;
    worked?;
    let whole = rig::calls() - before;
    check_all_gone(device)?;
    assert!(whole > 100, "the program makes only {whole} calls");
    Ok(whole)
}

fn random_programs() -> Outcome {
    failing::programs::<InDriver<Cuda>>("every_call::of_random_programs", 10, 2)
}

fn conformance() -> Outcome {
    failing::cases::<InDriver<Cuda>>("every_call::of_conformance", 1)
}

fn in_turn(code: i32, work: Work) -> Outcome {
    let whole = calls_of_all(work)?;
    let mut told = 0;
    for call in 1..=whole {
        rig::fail_at(call, code);
        let worked = opened_and_worked(work);
        rig::clear_faults();
        let error = match worked {
            Err(refused) => Some(refused),
            Ok((result, device)) => {
                check_all_gone(device)?;
                result.err()
            }
        };
        told += u64::from(error.inspect(|error| check_names_the_call(call, error)).is_some());
    }
    assert!(told > 20, "only {told} of {whole} failures were reported");
    Ok(())
}

/// A lost device is lost for the whole process, so each turn needs its own.
fn loses_the_device(work: Work) -> Outcome {
    const TURN: &str = "ACCELERATOR_TURN";
    if let Ok(turn) = std::env::var(TURN) {
        assert_eq!(Cuda::probe()?, 1);
        rig::fail_at(turn.parse()?, LAUNCH_FAILED);
        let worked = opened_and_worked(work).and_then(|(result, device)| {
            result?;
            device.synchronize() // finds a device that was lost without an error
        });
        assert_eq!(rig::clear_faults(), 0, "the call was never made");
        // Some early calls are optional: error names, the UUID, virtual memory.
        let without = std::env::var(TURN).is_ok_and(|turn| turn.parse().is_ok_and(|turn: u64| turn < 30));
        match worked {
            Err(error) => check_names_the_call(0, &error),
            Ok(()) => assert!(without, "a lost device was not reported"),
        }
        return Ok(());
    }
    for call in 1..=calls_of_all(work)? {
        process::again(&[(TURN, &call.to_string())])?;
    }
    Ok(())
}

fn check_names_the_call(call: u64, error: &Error) {
    let text = error.to_string();
    let memory = matches!(error, Error::OutOfMemory(_) | Error::HostOutOfMemory { .. });
    assert!(memory || text.contains(" cu"), "call {call}: {text}");
}
