use std::env;
use std::process::Command;

use accelerator::{Buffer, MemoryHandle, synchronize};

/// The handle goes to the other process in this variable of its environment.
const HANDLE: &str = "EXAMPLE_HANDLE";

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Ok(digits) = env::var(HANDLE) {
        return Ok(other_process(&digits)?);
    }
    let mut numbers = Buffer::from_slice(&[1_u32, 2, 3, 4], None)?;
    let digits: String = numbers.share()?.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();

    // The process may use the memory as long as it likes, also after `numbers` is dropped.
    let status = Command::new(env::current_exe()?).env(HANDLE, digits).status()?;
    assert!(status.success());
    assert_eq!(numbers.to_vec::<u32>()?, [1, 20, 3, 4]);
    Ok(())
}

fn other_process(digits: &str) -> Result<(), accelerator::Error> {
    let byte = |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).filter_map(byte).collect();

    // SAFETY: The first process waits until this one has ended, so they do not use the memory at the same time.
    let mut numbers = unsafe { Buffer::import(&MemoryHandle::from_bytes(&bytes), None) }?;
    assert_eq!(numbers.to_vec::<u32>()?, [1, 2, 3, 4]);
    numbers.write(4, &20_u32.to_le_bytes())?;
    synchronize(None)
}
