//! Pools that are paused and resumed many times: the same addresses, the same bytes, and nothing left behind.

use std::error::Error as StdError;
use std::path::PathBuf;

use accelerator_core::{Accelerator, Backend, Buffer, Error, Keep, MIB, MemPool, MemPoolOptions};

type Outcome<T = ()> = Result<T, Box<dyn StdError + Send + Sync>>;

/// Sizes in the small pool, in the large one, within a page and over several.
const SIZES: [u64; 6] = [1, 700, 300 << 10, 1_100_000, 2 * MIB, 4 * MIB + 3];

/// A buffer, and the bytes that must be in it.
struct Numbered<B: Backend> {
    buffer: Buffer<B>,
    number: u64,
    bytes: Vec<u8>,
}

impl<B: Backend> Numbered<B> {
    fn new(device: &'static Accelerator<B>, len: u64, number: u64) -> Outcome<Self> {
        let buffer = device.allocate(len, device.default_stream())?;
        let mut numbered = Self { buffer, number, bytes: vec![0; len as usize] };
        numbered.write(number)?;
        Ok(numbered)
    }

    fn write(&mut self, number: u64) -> Outcome {
        self.number = number;
        let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for word in self.bytes.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        Ok(self.buffer.write(0, &self.bytes, self.buffer.stream())?)
    }

    fn check(&self) -> Outcome {
        let mut found = vec![0; self.buffer.len() as usize];
        self.buffer.read(0, &mut found, self.buffer.stream())?;
        assert!(found == self.bytes, "the bytes of a buffer of {} bytes", found.len());
        Ok(())
    }
}

fn is_paused<T>(result: accelerator_core::Result<T>) -> bool {
    matches!(result, Err(Error::MemPool { problem: "is paused: resume it first", .. }))
}

/// Pauses and resumes a pool so many times, next to memory that is not paused. `held` returns the bytes that the device
/// holds, by a count that is not the allocator's.
pub(crate) fn cycles<B: Backend>(device: &'static Accelerator<B>, count: u64, held: impl Fn() -> u64) -> Outcome {
    let allocator = device.allocator();
    let stream = device.default_stream();
    let beside = Numbered::new(device, 3 * MIB, 0)?;
    let outside = held();
    let options = MemPoolOptions { pausable: true, ..MemPoolOptions::default() };
    let pool = MemPool::new(device, options)?;
    let guard = pool.use_pool();
    let mut buffers = SIZES.into_iter().zip(1..).map(|(len, number)| Numbered::new(device, len, number));
    let mut buffers = buffers.by_ref().collect::<Outcome<Vec<_>>>()?;
    let file = std::env::temp_dir().join(format!("paused-pool-{}", std::process::id()));
    for cycle in 0..count {
        let addresses: Vec<_> = buffers.iter().map(|one| one.buffer.ptr()).collect();
        let keep = match cycle % 10 {
            9 => Keep::File(PathBuf::clone(&file)),
            even if even % 2 == 0 => Keep::Host,
            _ => Keep::Nothing,
        };
        let before = allocator.statistics();
        let paused = pool.pause(keep.clone())?;
        assert_eq!(held(), outside, "only what is not paused is held");
        let asleep = allocator.statistics();
        assert_eq!(asleep.paused_bytes.unsigned_abs(), paused.bytes);
        assert_eq!(asleep.reserved_bytes.all.current.unsigned_abs() - paused.bytes, outside);
        assert_eq!(asleep.allocated_bytes, before.allocated_bytes);
        assert!(pool.snapshot().segments.iter().all(|segment| segment.paused));
        if cycle % 50 == 0 {
            assert!(is_paused(device.allocate(100, stream)));
            assert!(is_paused(buffers[0].buffer.fill(1, stream)));
            assert!(is_paused(buffers[0].buffer.read(0, &mut [0], stream)));
            assert!(is_paused(buffers[0].buffer.record_use(stream)));
            assert!(pool.pause(Keep::Nothing).is_err() && pool.is_paused());
            beside.check()?;
        }
        let freed = (cycle % 7 == 0).then(|| buffers.pop()).flatten();
        drop(freed); // a block may be freed while its pool is paused
        let resumed = pool.resume()?;
        assert_eq!(resumed.bytes, paused.bytes);
        assert_eq!(held(), outside + resumed.bytes);
        assert_eq!(allocator.statistics().paused_bytes, 0);
        assert!(pool.resume().is_err(), "it is not paused any more");
        assert!(!file.exists(), "the file is removed");
        for (one, address) in buffers.iter_mut().zip(addresses) {
            assert_eq!(one.buffer.ptr(), address);
            match keep {
                Keep::Nothing => one.write(one.number + 10)?,
                _ => one.check()?,
            }
        }
        if buffers.len() < SIZES.len() {
            buffers.push(Numbered::new(device, SIZES[buffers.len()], cycle)?);
        }
    }
    drop(guard);
    beside.check()?;
    drop(buffers);
    drop(pool);
    assert_eq!(held(), outside);
    drop(beside);
    allocator.empty_cache()?;
    assert_eq!(held(), 0);
    let statistics = allocator.statistics();
    assert_eq!((statistics.reserved_bytes.all.current, statistics.paused_bytes), (0, 0));
    Ok(())
}
