//! The kernels that the driver knows, and what they may touch.
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

mod common;

use common::*;

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn floats(address: u64, count: usize) -> Vec<f32> {
    let bytes = download(address, 4 * count).unwrap();
    bytes.chunks_exact(4).map(|word| f32::from_ne_bytes(word.try_into().unwrap())).collect()
}

fn saxpy(n: u32, a: f32, x: u64, y: u64, blocks: u32, stream: Handle) -> Outcome {
    let function = function("saxpy").unwrap();
    let arguments = [&n.to_ne_bytes()[..], &a.to_ne_bytes(), &x.to_ne_bytes(), &y.to_ne_bytes()];
    launch(function, blocks, stream, &arguments)
}

#[test]
fn saxpy_and_scale_compute() {
    let driver = Exclusive::new();
    let count = 1000;
    let xs: Vec<f32> = (0..count).map(|index| index as f32 / 3.0).collect();
    let ys: Vec<f32> = (0..count).map(|index| 7.0 - index as f32).collect();
    let [x, y] = [4 * count; 2].map(|bytes| alloc(bytes).unwrap());
    upload(x, &bytes(&xs)).unwrap();
    upload(y, &bytes(&ys)).unwrap();
    let own = stream(NON_BLOCKING).unwrap();
    saxpy(900, 2.5, x, y, 4, own).unwrap();
    synchronize_stream(own).unwrap();
    let expected: Vec<f32> = (0..count).map(|i| if i < 900 { 2.5 * xs[i] + ys[i] } else { ys[i] }).collect();
    assert_eq!(floats(y, count), expected);
    assert_eq!(floats(x, count), xs);
    // One thread computes one element, so two blocks reach 512 of them.
    let n = 1000u32;
    let arguments = [&n.to_ne_bytes()[..], &3f32.to_ne_bytes(), &x.to_ne_bytes()];
    launch(function("scale").unwrap(), 2, own, &arguments).unwrap();
    synchronize_stream(own).unwrap();
    let expected: Vec<f32> = xs.iter().enumerate().map(|(i, x)| if i < 512 { 3.0 * x } else { *x }).collect();
    assert_eq!(floats(x, count), expected);
    for address in [x, y] {
        free(address).unwrap();
    }
    assert_eq!(driver.violations(), 0);
}

#[test]
fn kernels_see_pinned_memory() {
    let _driver = Exclusive::new();
    let (x, y) = (alloc_pinned(4, 2).unwrap(), alloc(4).unwrap());
    for (index, byte) in 1.5f32.to_ne_bytes().into_iter().enumerate() {
        set_pinned_byte(x + index as u64, byte);
    }
    upload(y, &bytes(&[0.25])).unwrap();
    saxpy(1, 2.0, x, y, 1, 0).unwrap();
    assert_eq!(floats(y, 1), [3.25]);
    free(y).unwrap();
    free_pinned(x).unwrap();
}

#[test]
fn a_kernel_that_goes_too_far_is_found() {
    let driver = Exclusive::new();
    let [x, y] = [400; 2].map(|bytes| alloc(bytes).unwrap());
    let on_the_stack = [0f32; 100];
    for (index, (n, x, y, code)) in [
        (101, x, y, ILLEGAL_ADDRESS),
        (1, x + 400, y, ILLEGAL_ADDRESS),
        (1, x, y + 2, 716),
        (1, 0, y, ILLEGAL_ADDRESS),
        (1, on_the_stack.as_ptr() as u64, y, ILLEGAL_ADDRESS),
    ]
    .into_iter()
    .enumerate()
    {
        saxpy(n, 1.0, x, y, 1, 0).unwrap();
        assert_eq!(synchronize(), Err(code), "{index}");
        assert_eq!(driver.violations(), index as u64 + 1);
        cuda_sim::cuda_sim_reset_sticky();
    }
    saxpy(100, 1.0, x, y, 1, 0).unwrap();
    synchronize().unwrap();
    for address in [x, y] {
        free(address).unwrap();
    }
}

#[test]
fn kernels_reach_other_devices_only_as_peers() {
    let driver = Exclusive::new();
    let second = use_device(1);
    let x = alloc(4).unwrap();
    upload(x, &bytes(&[4.0])).unwrap();
    let first = use_device(0);
    let y = alloc(4).unwrap();
    upload(y, &bytes(&[1.0])).unwrap();
    assert_eq!(enable_peer(first, 0), Err(201), "to itself");
    assert_eq!(disable_peer(second), Err(705));
    let own = stream(NON_BLOCKING).unwrap();
    // Copies need no peer access.
    copy_on_device(y, x, 4, own).unwrap();
    synchronize_stream(own).unwrap();
    assert_eq!(floats(y, 1), [4.0]);
    saxpy(1, 2.0, x, y, 1, own).unwrap();
    assert_eq!((synchronize(), driver.violations()), (Err(ILLEGAL_ADDRESS), 1));
    cuda_sim::cuda_sim_reset_sticky();
    enable_peer(second, 0).unwrap();
    assert_eq!(enable_peer(second, 0), Err(704));
    saxpy(1, 2.0, x, y, 1, own).unwrap();
    synchronize().unwrap();
    assert_eq!(floats(y, 1), [12.0]);
    disable_peer(second).unwrap();
    // A kernel can only be launched in a stream of its own context.
    use_device(1);
    assert_eq!(saxpy(1, 2.0, x, y, 1, own), Err(400));
    for address in [x, y] {
        free(address).unwrap();
    }
}

#[test]
fn copies_between_devices_name_whose_the_memory_is() {
    let driver = Exclusive::new();
    let second = use_device(1);
    let x = alloc(4).unwrap();
    upload(x, &bytes(&[4.0])).unwrap();
    let first = use_device(0);
    let (y, pinned, own) = (alloc(4).unwrap(), alloc_pinned(4, 0).unwrap(), stream(NON_BLOCKING).unwrap());
    let staged = cuda_sim::cuda_sim_staged_copies();
    copy_peer(y, first, x, second, 4, own).unwrap();
    synchronize().unwrap();
    assert_eq!((floats(y, 1), cuda_sim::cuda_sim_staged_copies()), (vec![4.0], staged + 1));
    enable_peer(second, 0).unwrap();
    copy_peer(y, first, x, second, 4, own).unwrap();
    synchronize().unwrap();
    assert_eq!(cuda_sim::cuda_sim_staged_copies(), staged + 1, "it no longer needs the host");
    disable_peer(second).unwrap();
    for (on, of) in [(second, first), (first, first), (second, second)] {
        assert_eq!(copy_peer(y, on, x, of, 4, own), Err(1));
    }
    assert_eq!([copy_peer(pinned, first, x, second, 4, own), copy_peer(y, 7, x, second, 4, own)], [Err(1), Err(201)]);
    synchronize().unwrap();
    assert_eq!(driver.violations(), 0);
    free_pinned(pinned).unwrap();
    for address in [x, y] {
        free(address).unwrap();
    }
}

#[test]
fn only_known_kernels_are_found() {
    let _driver = Exclusive::new();
    assert_eq!([function("other"), function("none")], [Err(500); 2]);
    let spin = function("spin").unwrap();
    assert_eq!([launch(spin, 0, 0, &[]), launch(spin + 0x10, 1, 0, &[])], [Err(1), Err(400)]);
    let [start, end] = [0; 2].map(|flags| event(flags).unwrap());
    record(start, 0).unwrap();
    launch(spin, 1, 0, &[]).unwrap();
    record(end, 0).unwrap();
    synchronize().unwrap();
    assert!(elapsed(start, end).unwrap() >= 10.0);
    assert_eq!(unload(spin), Err(400));
}
