//! Graphs: what a launch does, when, and what captured work it is made of.
#![allow(clippy::unwrap_used, reason = "helpers, too, which clippy does not treat as tests")]

mod common;

use common::*;

const RELAXED: u32 = 2;

/// Captures what `work` submits.
fn captured(stream: Handle, work: impl FnOnce()) -> Handle {
    begin_capture(stream, RELAXED).unwrap();
    work();
    let graph = end_capture(stream).unwrap();
    let executable = instantiate(graph, 1).unwrap();
    destroy_graph(graph).unwrap();
    executable
}

#[test]
fn a_launch_does_the_work_again() {
    let driver = Exclusive::new();
    let [own, other] = [NON_BLOCKING; 2].map(|flags| stream(flags).unwrap());
    let (a, b, pinned) = (alloc(8).unwrap(), alloc(8).unwrap(), alloc_pinned(8, 0).unwrap());
    set_pinned_byte(pinned, 5);
    let mut pageable = [7_u8, 8];
    let source = pageable.as_mut_ptr().expose_provenance() as u64;
    let executable = captured(own, || {
        fill(a, 1, 8, own).unwrap();
        copy_async(a, pinned, 1, own).unwrap();
        copy_async(a + 1, source, 2, own).unwrap();
        copy_on_device(b, a, 8, own).unwrap();
    });
    for (first, second) in [(5, 7), (6, 9)] {
        set_pinned_byte(pinned, first);
        pageable[0] = second;
        fill(b, 0, 8, other).unwrap();
        upload_graph(executable, other).unwrap();
        launch_graph(executable, other).unwrap();
        synchronize_stream(other).unwrap();
        assert_eq!(download(b, 8).unwrap(), [first, second, 8, 1, 1, 1, 1, 1]);
    }
    let live = (cuda_sim::cuda_sim_live_graphs(), cuda_sim::cuda_sim_live_executables());
    assert_eq!(live, (0, 1));
    destroy_executable(executable).unwrap();
    assert_eq!(destroy_executable(executable), Err(1));
    assert_eq!([launch_graph(executable, own), upload_graph(executable, own)], [Err(1); 2]);
    assert_eq!(instantiate(own, 0), Err(1));
    [a, b].into_iter().for_each(|address| free(address).unwrap());
    free_pinned(pinned).unwrap();
    assert_eq!(driver.violations(), 0);
}

#[test]
fn a_launch_is_work_of_its_stream() {
    let _driver = Exclusive::new();
    let [own, other] = [NON_BLOCKING; 2].map(|flags| stream(flags).unwrap());
    let (a, b, done) = (alloc(1 << 20).unwrap(), alloc(1 << 20).unwrap(), event(NO_TIMING).unwrap());
    let executable = captured(own, || copy_on_device(b, a, 1 << 20, own).unwrap());
    for seed in 0..20 {
        cuda_sim::cuda_sim_seed(seed);
        let value = seed as u8;
        fill(a, value, 1 << 20, own).unwrap();
        launch_graph(executable, own).unwrap();
        fill(a, 99, 1 << 20, own).unwrap();
        record(done, own).unwrap();
        synchronize_event(done).unwrap();
        assert_eq!(download(b, 1).unwrap(), [value]);
        // Launches of one graph run one after another, also on two streams.
        launch_graph(executable, own).unwrap();
        cuda_sim::cuda_sim_hold(own);
        launch_graph(executable, other).unwrap();
        (0..10).for_each(|_| assert_eq!(query_stream(other), Err(NOT_READY)));
        cuda_sim::cuda_sim_release(own);
        synchronize_stream(other).unwrap();
    }
    launch_graph(executable, own).unwrap();
    destroy_executable(executable).unwrap(); // launched work still happens
    fill(a, 5, 1 << 20, own).unwrap();
    synchronize().unwrap();
    assert_eq!(download(b, 1).unwrap(), [99]);
    [a, b].into_iter().for_each(|address| free(address).unwrap());
}

#[test]
fn branches_of_a_graph_run_in_any_order_between_fork_and_join() {
    let driver = Exclusive::new();
    let [own, side] = [NON_BLOCKING; 2].map(|flags| stream(flags).unwrap());
    let [fork, join] = [NO_TIMING; 2].map(|flags| event(flags).unwrap());
    let a = alloc(4).unwrap();
    let branches = |joins: bool| {
        captured(own, || {
            fill(a, 0, 4, own).unwrap();
            record(fork, own).unwrap();
            wait_event(side, fork, 0).unwrap();
            fill(a, 1, 2, own).unwrap();
            fill(a + joins as u64 * 2, 2, 2, side).unwrap();
            record(join, side).unwrap();
            wait_event(own, join, 0).unwrap();
            copy_on_device(a + 3, a, 1, own).unwrap();
        })
    };
    let mut seen = std::collections::BTreeSet::new();
    let (ordered, racing) = (branches(true), branches(false));
    for seed in 0..50 {
        cuda_sim::cuda_sim_seed(seed);
        launch_graph(ordered, own).unwrap();
        synchronize_stream(own).unwrap();
        assert_eq!(download(a, 4).unwrap(), [1, 1, 2, 1]);
        launch_graph(racing, own).unwrap();
        synchronize_stream(own).unwrap();
        seen.insert(download(a, 1).unwrap());
    }
    assert_eq!(seen.len(), 2, "which of the two fills is last");
    [ordered, racing].into_iter().for_each(|executable| destroy_executable(executable).unwrap());
    free(a).unwrap();
    assert_eq!(driver.violations(), 0);
}

#[test]
fn a_launch_after_its_memory_is_freed_is_a_violation() {
    let driver = Exclusive::new();
    let own = stream(NON_BLOCKING).unwrap();
    let a = alloc(4).unwrap();
    let executable = captured(own, || fill(a, 0, 4, own).unwrap());
    free(a).unwrap();
    launch_graph(executable, own).unwrap();
    assert_eq!(synchronize_stream(own), Err(ILLEGAL_ADDRESS));
    assert_eq!(driver.violations(), 1);
    cuda_sim::cuda_sim_reset_sticky();
    destroy_executable(executable).unwrap();
}

#[test]
fn a_capture_reports_its_graph() {
    let _driver = Exclusive::new();
    let [own, side] = [NON_BLOCKING; 2].map(|flags| stream(flags).unwrap());
    let (fork, a) = (event(NO_TIMING).unwrap(), alloc(4).unwrap());
    assert_eq!(capture_info(own), Ok(None));
    begin_capture(own, RELAXED).unwrap();
    let (id, graph, nodes) = capture_info(own).unwrap().unwrap();
    assert_eq!(nodes, []);
    fill(a, 0, 4, own).unwrap();
    record(fork, own).unwrap();
    wait_event(side, fork, 0).unwrap();
    let (same, _, first) = capture_info(side).unwrap().unwrap();
    assert_eq!((same, first.len()), (id, 1));
    fill(a, 0, 4, own).unwrap();
    let second = capture_info(own).unwrap().unwrap().2;
    wait_event(own, fork, 0).unwrap();
    let mut both = [first.clone(), second.clone()].concat();
    both.sort_unstable();
    assert_eq!(capture_info(own).unwrap().unwrap().2, both);
    let added = add_empty_node(graph, &both).unwrap();
    assert_eq!(add_empty_node(graph, &[own]), Err(1));
    let mut expected = vec![(first[0], second[0]), (first[0], added), (second[0], added)];
    expected.sort_unstable();
    let (count, mut all) = edges(graph, 3).unwrap();
    all.sort_unstable();
    assert_eq!((count, all), (3, expected));
    assert_eq!(edges(graph, 5).unwrap().1[3..], [(0, 0); 2]);
    assert_eq!(edges(graph, 5).unwrap().0, 3);
    assert_eq!(edges(graph, 1).unwrap().0, 1);
    assert_eq!([destroy_graph(graph), instantiate(graph, 0).map(drop)], [Err(1); 2], "while it is being captured");
    let ended = end_capture(own).unwrap(); // the added node needs no join
    assert_eq!(ended, graph);
    destroy_graph(graph).unwrap();

    begin_capture(own, RELAXED).unwrap();
    let (next, broken, _) = capture_info(own).unwrap().unwrap();
    assert_ne!(next, id);
    assert_eq!(synchronize_stream(own), Err(900));
    assert_eq!(capture_info(own), Ok(None), "only the status of a broken capture");
    assert_eq!(end_capture(own), Err(901));
    assert_eq!(edges(broken, 1), Err(1), "its graph is gone");
    assert_eq!((cuda_sim::cuda_sim_live_graphs(), cuda_sim::cuda_sim_live_captures()), (0, 0));
    free(a).unwrap();
}
