//! Traces with private pools, graphs and checkpoints.

use crate::accel::{Ended, file, run, run_with_input};

fn replayed(trace: &str) -> Ended {
    run_with_input(&["replay", "--plain", "-"], trace.as_bytes())
}

/// A trace with a pool that outlives a graph, and a checkpoint of it.
pub(crate) const TRACE: &str = "pool_create 1 no_split\npool_begin 1\nalloc 1 3000000 0\npool_end 1\n\
                                checkpoint 1 before\nfree 1\npool_live 1\nrestore 1 before\npool_live 1 1\n\
                                capture_begin 1 1 1\nlaunch 1\nalloc 2 1000 1\npool_uses 1\ncapture_end 1\n\
                                free 2\ngraph_reset 1\npool_release 1\npool_uses 1\nfree 1\n";

#[test]
fn pools_are_replayed() {
    let expected = "@7 pool_live 0_1 true\n@8 restore 0_1 before\nallocated 1\nend\n@9 pool_live 0_1 true\n\
                    @13 pool_uses 0_1 2\n@18 pool_uses 0_1 0\n";
    let ended = replayed(TRACE);
    assert_eq!((ended.status, ended.out.as_str(), ended.error.as_str()), (Some(0), expected, ""));
}

#[test]
fn a_wrong_line_says_what_to_do() {
    let graph = "capture_begin 1 1\nalloc 1 512 1\ncapture_end 1\n";
    let cases = [
        ("pool_end 1\n".to_owned(), "1: no requests are sent to pool 1: `pool_begin 1` is missing"),
        (
            "pool_begin g3\npool_begin g3\n".to_owned(),
            "2: requests go to pool g3 already: end that with `pool_end g3` first",
        ),
        ("pool_release 1\n".to_owned(), "1: sim:0: memory pool 0_1 does not exist, or is not in use any more"),
        ("capture_end 2\n".to_owned(), "1: no capture began on stream 2: name the stream of `capture_begin`"),
        (
            "capture_begin 1 4\ngraph_reset 4\n".to_owned(),
            "2: graph 4 is not there to be reset: capture it first, from `capture_begin` to `capture_end`",
        ),
        (
            format!("{graph}graph_reset 1\ncapture_begin 1 1\n"),
            "5: graph 1 was captured already: give each graph a number of its own, also after `graph_reset`",
        ),
        ("restore 1 a\n".to_owned(), "1: pool 1 has no checkpoint `a`: `checkpoint 1 a` is missing"),
        (format!("{graph}checkpoint g1 a\nfree 1\nalloc 1 512 0\nrestore g1 a\n"), "7: allocation 1 is already live"),
    ];
    for (trace, message) in cases {
        replayed(&trace).fails(1, &format!("accel: standard input:{message}\n"));
    }
}

#[test]
fn other_commands_take_traces_with_pools() {
    let path = file("pools.trace", format!("{TRACE}alloc_at 3 1000 0x0 0\n").as_bytes());
    let trace = path.to_str().unwrap();
    let page = file("pools.html", b"");
    for arguments in [
        &["replay", trace][..],
        &["replay", trace, "--compare"],
        &["advise", trace],
        &["report", trace, "-o", page.to_str().unwrap()],
    ] {
        let ended = run(arguments);
        assert_eq!((ended.status, ended.error.as_str()), (Some(0), ""), "{arguments:?}");
    }
    assert!(std::fs::read_to_string(page).unwrap().contains("0_1"), "it names the pool");
}
