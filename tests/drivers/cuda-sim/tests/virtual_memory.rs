//! Virtual memory.
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

mod common;

use common::*;
use cuda_sim::{cuda_sim_live_mappings, cuda_sim_live_physical, cuda_sim_live_reservations};

const PAGE: usize = 2 * MIB;
const READ_WRITE: u32 = 3;

fn live() -> [u64; 3] {
    [cuda_sim_live_reservations(), cuda_sim_live_physical(), cuda_sim_live_mappings()]
}

#[test]
fn one_memory_at_two_addresses() {
    let driver = Exclusive::new();
    let before = memory().0;
    let (a, b) = (reserve(4 * PAGE, 0, 0, 0).unwrap(), reserve(2 * PAGE, 0, 0, 0).unwrap());
    assert_eq!(memory().0, before, "addresses cost nothing");
    let one = create_physical(PAGE, 0).unwrap();
    let two = create_physical(PAGE, 0).unwrap();
    assert_eq!(memory().0, before - 2 * PAGE);
    map(a + PAGE as u64, PAGE, 0, one, 0).unwrap();
    map(a + 2 * PAGE as u64, PAGE, 0, two, 0).unwrap();
    map(b, PAGE, 0, one, 0).unwrap();
    assert_eq!(live(), [2, 2, 3]);
    set_access(a + PAGE as u64, 2 * PAGE, 0, READ_WRITE).unwrap();
    set_access(b, PAGE, 0, READ_WRITE).unwrap();
    // Written across the boundary, and read through the other mapping.
    let text = b"across the seam";
    let seam = a + 2 * PAGE as u64;
    upload(seam - 6, text).unwrap();
    assert_eq!(download(seam - 6, text.len()).unwrap(), text);
    assert_eq!(download(b + PAGE as u64 - 6, 6).unwrap(), text[..6]);
    fill_now(b + PAGE as u64 - 2, b'!', 2).unwrap();
    assert_eq!(download(seam - 6, text.len()).unwrap(), b"acro!! the seam");
    // A handle may be released before its mappings are unmapped.
    release_physical(one).unwrap();
    assert_eq!(release_physical(one), Err(1));
    unmap(b, PAGE).unwrap();
    assert_eq!(memory().0, before - 2 * PAGE);
    unmap(a + PAGE as u64, 2 * PAGE).unwrap();
    assert_eq!(memory().0, before - PAGE);
    release_physical(two).unwrap();
    assert_eq!(memory().0, before);
    free_addresses(a, 4 * PAGE).unwrap();
    free_addresses(b, 2 * PAGE).unwrap();
    assert_eq!((live(), driver.violations()), ([0, 0, 0], 0));
}

#[test]
fn memory_is_touched_only_where_it_is_mapped_and_permitted() {
    let driver = Exclusive::new();
    let a = reserve(3 * PAGE, 0, 0, 0).unwrap();
    let physical = create_physical(PAGE, 0).unwrap();
    let middle = a + PAGE as u64;
    map(middle, PAGE, 0, physical, 0).unwrap();
    let refused = |address: u64, bytes: usize, what: &str| {
        let before = driver.violations();
        let outcome = fill_now(address, 1, bytes).and_then(|()| synchronize());
        cuda_sim::cuda_sim_reset_sticky();
        assert_eq!((outcome, driver.violations()), (Err(ILLEGAL_ADDRESS), before + 1), "{what}");
    };
    refused(middle, 1, "no access was given");
    set_access(middle, PAGE, 0, 1).unwrap();
    refused(middle, 1, "read access only");
    download(middle, 1).unwrap();
    set_access(middle, PAGE, 0, READ_WRITE).unwrap();
    fill_now(middle, 1, PAGE).unwrap();
    synchronize().unwrap();
    refused(middle - 1, 2, "begins before the mapping");
    refused(middle + 1, PAGE, "ends after it");
    unmap(middle, PAGE).unwrap();
    refused(middle, 1, "unmapped");
    release_physical(physical).unwrap();
    free_addresses(a, 3 * PAGE).unwrap();
}

#[test]
fn bad_arguments_are_refused() {
    let driver = Exclusive::new();
    let before = memory().0;
    let a = reserve(4 * PAGE, 0, 0, 0).unwrap();
    let physical = create_physical(2 * PAGE, 0).unwrap();
    let refusals = [
        reserve(PAGE + 1, 0, 0, 0).map(drop),
        reserve(PAGE, 3, 0, 0).map(drop),
        create_physical(PAGE - 1, 0).map(drop),
        map(a + 1, 2 * PAGE, 0, physical, 0),
        map(a + 3 * PAGE as u64, 2 * PAGE, 0, physical, 0),
        map(a, 2 * PAGE, 0, physical + 1, 0),
        set_access(a, PAGE, 0, READ_WRITE),
        unmap(a, PAGE),
        free_addresses(a, PAGE),
    ];
    assert_eq!(refusals, [Err(1); 9]);
    let parts = [map(a, PAGE, 0, physical, 0), map(a, PAGE, PAGE, physical, 0), map(a, 2 * PAGE, PAGE, physical, 0)];
    assert_eq!(parts, [Err(801); 3]);
    assert_eq!(create_physical(PAGE, 2), Err(101));
    assert_eq!(create_physical(4 * MEMORY as usize, 0), Err(2));
    map(a, 2 * PAGE, 0, physical, 0).unwrap();
    let refusals = [
        map(a + PAGE as u64, 2 * PAGE, 0, physical, 0),
        unmap(a, PAGE),
        unmap(a + PAGE as u64, PAGE),
        set_access(a, 3 * PAGE, 0, READ_WRITE),
        free_addresses(a, 4 * PAGE),
        free(a),
    ];
    assert_eq!(refusals, [Err(1); 6]);
    unmap(a, 2 * PAGE).unwrap();
    release_physical(physical).unwrap();
    free_addresses(a, 4 * PAGE).unwrap();
    assert_eq!((memory().0, driver.violations()), (before, 0));
}
