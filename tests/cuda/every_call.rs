//! Makes each driver call of a program fail in turn. The error must be typed and name the call, and nothing may be
//! lost.

use accelerator_core::{Backend, Error};
use accelerator_cuda::Cuda;
use libtest_mimic::{Failed, Trial};

use crate::programs::everything::{opened_and_worked, something_of_everything};
use crate::programs::process;
use crate::rig::{self, Outcome, check_all_gone, trial};

const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const LAUNCH_FAILED: i32 = 719;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("every_call::refuses", MEMORY, || in_turn(INVALID_VALUE)),
        trial("every_call::is_out_of_memory", MEMORY, || in_turn(OUT_OF_MEMORY)),
        trial("every_call::loses_the_device", MEMORY, loses_the_device),
    ]
}

const MEMORY: &[(&str, &str)] = &[("CUDA_SIM_MEMORY", "256M"), ("CUDA_SIM_HOST_MEMORY", "8M")];

/// Returns the number of calls that the program makes when none fail.
fn calls_of_all_work() -> Result<u64, Failed> {
    assert_eq!(Cuda::probe()?, 1); // once per process, and not counted here
    let before = rig::calls();
    let (worked, device) = opened_and_worked(something_of_everything::<Cuda>)?;
    worked?;
    let whole = rig::calls() - before;
    check_all_gone(device)?;
    assert!(whole > 100, "the program makes only {whole} calls");
    Ok(whole)
}

fn in_turn(code: i32) -> Outcome {
    let whole = calls_of_all_work()?;
    let mut told = 0;
    for call in 1..=whole {
        rig::fail_at(call, code);
        let worked = opened_and_worked(something_of_everything::<Cuda>);
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
fn loses_the_device() -> Outcome {
    const TURN: &str = "ACCELERATOR_TURN";
    if let Ok(turn) = std::env::var(TURN) {
        assert_eq!(Cuda::probe()?, 1);
        rig::fail_at(turn.parse()?, LAUNCH_FAILED);
        let worked = opened_and_worked(something_of_everything::<Cuda>).and_then(|(result, device)| {
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
    for call in 1..=calls_of_all_work()? {
        process::again(&[(TURN, &call.to_string())])?;
    }
    Ok(())
}

fn check_names_the_call(call: u64, error: &Error) {
    let text = error.to_string();
    let memory = matches!(error, Error::OutOfMemory(_) | Error::HostOutOfMemory { .. });
    assert!(memory || text.contains(" cu"), "call {call}: {text}");
}
