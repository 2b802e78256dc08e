//! `accel bench`.

use crate::accel::run;

const HEADER: &str =
    "# scenario threads ns_per_op  min max  cpu_ns thread_ns  device_allocs ops_per_rep  (api core, 2 reps)";

#[test]
fn a_line_for_each_scenario_and_number_of_threads() {
    let ended = run(&["bench", "small", "stats", "--threads", "2,1", "--reps", "2", "--milliseconds", "1"]);
    assert_eq!(ended.status, Some(0), "{}", ended.error);
    let mut lines = ended.out.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let lines: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
    let measured: Vec<_> = lines.iter().map(|line| (line[0], line[1])).collect();
    assert_eq!(measured, [("small", "2"), ("small", "1"), ("stats", "2"), ("stats", "1")]);
    for line in &lines {
        let numbers: Vec<f64> = line[1..].iter().map(|number| number.parse().unwrap()).collect();
        let [threads, per_op, least, most, _, of_thread, _, ops] = numbers[..] else {
            panic!("eight numbers expected in {line:?}")
        };
        assert!(0.0 < least && least <= per_op && per_op <= most, "{line:?}");
        assert!((of_thread - threads * per_op).abs() <= 0.1 * threads, "{line:?}");
        assert!(ops >= 64.0 * threads && ops % (64.0 * threads) == 0.0, "{line:?}");
    }
}

#[test]
fn a_count_does_as_many_operations_as_it_says() {
    assert_eq!(run(&["bench", "-c", "small", "100"]).out, "small ops 100\n");
    assert_eq!(run(&["bench", "--count", "stats", "1"]).out, "stats ops 1\n");
}

#[test]
fn counted_operations_have_the_symbol_that_the_help_tells() {
    assert!(run(&["bench", "--help"]).out.contains("--toggle-collect='*bench::counted*'"));
    let program = std::fs::read(env!("CARGO_BIN_EXE_accel")).unwrap();
    // Symbols contain paths in this form: the length of each name before the name.
    let symbol = "15accelerator_cli5bench7counted";
    assert!(String::from_utf8_lossy(&program).contains(symbol));
}

#[test]
fn wrong_usage_says_what_is_expected() {
    let all = "small, large, lifo, random, xstream, shared, stats";
    for (arguments, message) in [
        (&["medium"][..], all),
        (&["--threads", "0"], "expected numbers of threads from 1 to 256, such as 1,2,4"),
        (&["--threads", "257"], "expected numbers of threads from 1 to 256"),
        (&["--threads", ""], "expected numbers of threads"),
        (&["--threads", "1,x"], "invalid value 'x' for '--threads <THREADS>': expected numbers of threads"),
        (&["--threads", "1,"], "expected numbers of threads"),
        (&["--reps", "0"], "invalid value '0' for '--reps <REPS>': expected a whole number of at least 1"),
        (&["--milliseconds", "0"], "'0' for '--milliseconds <MILLISECONDS>': expected a whole number of at least 1"),
        (&["--milliseconds", "-1"], "'-1'"),
        (&["-c", "small"], "2 values required for '--count <SCENARIO> <OPS>'"),
        (&["-c", "medium", "10"], all),
        (&["-c", "small", "0"], "'0' for '--count <SCENARIO> <OPS>': expected a whole number of at least 1"),
        (&["-c", "small", "many"], "invalid value 'many' for '--count <SCENARIO> <OPS>'"),
        (&["-c", "small", "10", "large"], "cannot be used with"),
        (&["large", "-c", "small", "10"], "cannot be used with"),
        (&["-c", "small", "10", "--threads", "1"], "cannot be used with"),
        (&["-c", "small", "10", "--reps", "1"], "cannot be used with"),
        (&["-c", "small", "10", "--milliseconds", "1"], "cannot be used with"),
        (&["-c", "small", "10", "-c", "large", "10"], "cannot be used multiple times"),
    ] {
        run(&[&["bench"], arguments].concat()).fails(2, message);
    }
}
