//! Device memory and pinned memory: contents, limits, and detected misuse.
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

mod common;

use common::*;
use cuda_sim::{cuda_sim_live_allocations, cuda_sim_live_bytes, cuda_sim_live_pinned_bytes, cuda_sim_set_memory};

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 7 + index / 251) as u8).collect()
}

#[test]
fn bytes_come_back_by_every_way() {
    let driver = Exclusive::new();
    let bytes = pattern(3 * MIB + 5);
    let (a, b) = (alloc(bytes.len()).unwrap(), alloc(bytes.len()).unwrap());
    upload(a, &bytes).unwrap();
    let own = stream(NON_BLOCKING).unwrap();
    copy_on_device(b, a, bytes.len(), own).unwrap();
    copy_async(a, b + 5, 100, own).unwrap();
    fill(a + 100, 0x5a, 50, own).unwrap();
    synchronize_stream(own).unwrap();
    assert_eq!(download(b, bytes.len()).unwrap(), bytes);
    let begin = download(a, 200).unwrap();
    assert_eq!(begin[..100], bytes[5..105]);
    assert_eq!(begin[100..150], [0x5a; 50]);
    assert_eq!(begin[150..], bytes[150..200]);
    for address in [a, b] {
        free(address).unwrap();
    }
    assert_eq!(driver.violations(), 0);
}

#[test]
fn fresh_memory_is_marked_at_both_ends() {
    let _driver = Exclusive::new();
    let a = alloc(100 * MIB).unwrap();
    assert_eq!(download(a, 4096).unwrap(), [0xcd; 4096]);
    assert_eq!(download(a + 100 * MIB as u64 - 4096, 4096).unwrap(), [0xcd; 4096]);
    free(a).unwrap();
}

#[test]
fn addresses_go_up_and_never_come_back() {
    let _driver = Exclusive::new();
    let mut last = 0;
    for bytes in [1, 512, 3 * MIB, 2 * MIB, 7] {
        let address = alloc(bytes).unwrap();
        assert!(address > last && address.is_multiple_of(2 << 20), "{address:#x}");
        last = address + bytes as u64 - 1;
        free(address).unwrap();
    }
}

#[test]
fn use_after_free_is_found_and_stays() {
    let driver = Exclusive::new();
    let (a, b) = (alloc(1000).unwrap(), alloc(1000).unwrap());
    free(a).unwrap();
    let own = stream(0).unwrap();
    fill(a + 10, 1, 1, own).unwrap();
    assert_eq!(synchronize_stream(own), Err(ILLEGAL_ADDRESS));
    assert_eq!(driver.violations(), 1);
    let text = violation_text();
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with("a fill on device 0 writes 1 bytes at") && last.contains("freed memory: 1000 bytes"),
        "{last}"
    );
    // From now on every call fails. Even a free fails, and frees nothing.
    let live = cuda_sim_live_allocations();
    assert_eq!(free(b), Err(ILLEGAL_ADDRESS));
    assert_eq!(alloc(1), Err(ILLEGAL_ADDRESS));
    assert_eq!(destroy_stream(own), Err(ILLEGAL_ADDRESS));
    assert_eq!(event(0), Err(ILLEGAL_ADDRESS));
    assert_eq!(cuda_sim_live_allocations(), live);
    // The other device is not affected.
    use_device(1);
    let c = alloc(1).unwrap();
    free(c).unwrap();
    cuda_sim::cuda_sim_reset_sticky();
    free(b).unwrap();
    destroy_stream(own).unwrap();
}

#[test]
fn a_byte_too_far_is_found() {
    let driver = Exclusive::new();
    let own = stream(NON_BLOCKING).unwrap();
    let before = alloc(1).unwrap();
    // The two are adjacent. Running past the end of one is an error all the same.
    let (a, b) = (alloc(2 * MIB).unwrap(), alloc(2 * MIB).unwrap());
    assert_eq!(b, a + 2 * MIB as u64);
    let touches: [&dyn Fn() -> Outcome; 5] = [
        &|| fill(a + 1, 0, 2 * MIB, own),
        &|| copy_on_device(a + 1, b, 2 * MIB, own),
        &|| copy_on_device(a, b + 1, 2 * MIB, own),
        &|| fill(b + 2 * MIB as u64, 0, 1, own),
        &|| fill(a - 1, 0, 2, own),
    ];
    for (index, touch) in touches.iter().enumerate() {
        touch().unwrap();
        assert_eq!(synchronize_stream(own), Err(ILLEGAL_ADDRESS), "{index}");
        assert_eq!(driver.violations(), index as u64 + 1);
        cuda_sim::cuda_sim_reset_sticky();
    }
    fill(a, 0, 2 * MIB, own).unwrap();
    synchronize_stream(own).unwrap();
    for address in [before, a, b] {
        free(address).unwrap();
    }
}

#[test]
fn a_device_has_so_much_memory() {
    let _driver = Exclusive::new();
    let before = memory();
    assert_eq!(before.1 as u64, MEMORY);
    let a = alloc(600 * MIB + 1).unwrap();
    assert_eq!(memory().0, before.0 - 600 * MIB - 1, "exact, not rounded");
    assert_eq!(alloc(before.0 - 600 * MIB), Err(2));
    let rest = alloc(before.0 - 600 * MIB - 1).unwrap();
    assert_eq!(memory().0, 0);
    assert_eq!(alloc(1), Err(2));
    free(rest).unwrap();
    free(a).unwrap();
    assert_eq!(memory(), before);
    assert_eq!(cuda_sim_set_memory(0, 10), 0);
    assert_eq!((alloc(11), memory().1), (Err(2), 10));
    assert_eq!(cuda_sim_set_memory(0, MEMORY), 0);
    assert_eq!(cuda_sim_set_memory(2, 1), 101);
}

#[test]
fn bad_arguments_are_refused() {
    let driver = Exclusive::new();
    let a = alloc(100).unwrap();
    assert_eq!([free(0), free(a + 1), free(a + (1 << 40)), free(1)], [Err(1); 4]);
    assert_eq!([alloc(0), alloc_pinned(0, 0), alloc_pinned(8, 8)], [Err(1); 3]);
    // SAFETY: the out-parameter is null.
    assert_eq!(unsafe { cuda_sim::cuMemAlloc_v2(None, 8) }, 1);
    free(a).unwrap();
    assert_eq!(free(a), Err(1), "twice");
    assert_eq!(driver.violations(), 0);
}

#[test]
fn a_free_waits_for_the_device() {
    let driver = Exclusive::new();
    let (a, b) = (alloc(64).unwrap(), alloc(64).unwrap());
    let own = stream(NON_BLOCKING).unwrap();
    let behind = event(NO_TIMING).unwrap();
    upload(a, &[7; 64]).unwrap();
    copy_on_device(b, a, 64, own).unwrap();
    record(behind, own).unwrap();
    free(a).unwrap();
    cuda_sim::cuda_sim_hold(own);
    assert_eq!(query_event(behind), Ok(()), "the free waited for everything");
    cuda_sim::cuda_sim_release(own);
    assert_eq!(download(b, 64).unwrap(), [7; 64]);
    free(b).unwrap();
    assert_eq!(driver.violations(), 0);
}

#[test]
fn stream_ordered_memory_is_freed_in_its_turn() {
    let driver = Exclusive::new();
    let own = stream(NON_BLOCKING).unwrap();
    let live = cuda_sim_live_bytes();
    let a = alloc_async(1000, own).unwrap();
    fill(a, 1, 1000, own).unwrap();
    free_async(a, own).unwrap();
    assert_eq!(cuda_sim_live_bytes(), live + 1000);
    assert_eq!(free_async(a, own), Err(1), "twice");
    synchronize_stream(own).unwrap();
    assert_eq!(cuda_sim_live_bytes(), live);
    let b = alloc(10).unwrap();
    assert_eq!(free_async(b, own), Err(1), "not stream-ordered");
    free(b).unwrap();
    // Memory that is only waiting to be freed does not cause an out-of-memory error.
    let most = memory().0;
    let c = alloc_async(most, own).unwrap();
    free_async(c, own).unwrap();
    let d = alloc_async(most, own).unwrap();
    free(d).unwrap();
    assert_eq!(driver.violations(), 0);
}

#[test]
fn pinned_memory_is_read_and_written_in_its_turn() {
    let driver = Exclusive::new();
    let own = stream(NON_BLOCKING).unwrap();
    let (pinned, a) = (alloc_pinned(16, 1).unwrap(), alloc(16).unwrap());
    assert_eq!(device_pointer(pinned + 3, 0), Ok(pinned + 3));
    assert_eq!([host_flags(pinned + 3), host_flags(a)], [Ok(3), Err(1)]);
    cuda_sim::cuda_sim_hold(own);
    set_pinned_byte(pinned, 1);
    copy_async(a, pinned, 1, own).unwrap();
    set_pinned_byte(pinned, 2);
    copy_async(pinned + 1, a, 1, own).unwrap();
    assert_ne!(pinned_byte(pinned + 1), 2, "not yet");
    synchronize_stream(own).unwrap();
    assert_eq!(pinned_byte(pinned + 1), 2, "the value when the copy ran");
    // Pageable memory is read during the call.
    let mut source = vec![3u8; 1];
    copy_async(a, source.as_ptr() as u64, 1, own).unwrap();
    source[0] = 4;
    assert_eq!(query_stream(own), Err(NOT_READY), "and copied later, since the stream is held");
    synchronize_stream(own).unwrap();
    assert_eq!(download(a, 1).unwrap(), [3]);
    // A copy to pageable memory has happened when the call returns.
    copy_async(source.as_mut_ptr() as u64, a, 1, own).unwrap();
    assert_eq!(source[0], 3);
    free_pinned(pinned).unwrap();
    free(a).unwrap();
    assert_eq!(driver.violations(), 0);
}

#[test]
fn pinned_memory_freed_too_early_is_found() {
    let driver = Exclusive::new();
    let own = stream(NON_BLOCKING).unwrap();
    let (a, pinned) = (alloc(16).unwrap(), alloc_pinned(16, 0).unwrap());
    copy_async(a, pinned + 8, 8, own).unwrap();
    free_pinned(pinned).unwrap();
    assert_eq!(driver.violations(), 1);
    assert!(violation_text().ends_with("(16 bytes) is freed while work still uses it"));
    synchronize_stream(own).unwrap();
    assert_eq!(driver.violations(), 1);
    assert_eq!(free_pinned(pinned), Err(1));
    free(a).unwrap();
}

#[test]
fn pinned_memory_is_limited() {
    let _driver = Exclusive::new();
    let before = cuda_sim_live_pinned_bytes();
    let most = alloc_pinned(4 << 30, 0).unwrap();
    assert_eq!(alloc_pinned(1, 0), Err(2));
    assert_eq!(cuda_sim_live_pinned_bytes(), before + (4 << 30));
    free_pinned(most).unwrap();
    assert_eq!(cuda_sim_live_pinned_bytes(), before);
}
