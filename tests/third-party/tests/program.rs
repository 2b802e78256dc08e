//! The program with this backend: each command works on it as on a built-in one, and says what is wrong.
#![allow(clippy::unwrap_used, reason = "a test stops at anything unexpected")]

use std::process::{Command, Output};

struct Ended {
    status: Option<i32>,
    out: String,
    error: String,
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sample-accel"));
    command.args(arguments).env_remove("SAMPLE_DEVICES");
    command
}

fn run(arguments: &[&str]) -> Ended {
    ended(program(arguments))
}

fn run_without_devices(arguments: &[&str]) -> Ended {
    let mut command = program(arguments);
    command.env("SAMPLE_DEVICES", "0");
    ended(command)
}

fn ended(mut command: Command) -> Ended {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { status: status.code(), out: text(stdout), error: text(stderr) }
}

impl Ended {
    #[track_caller]
    fn succeeds(self) -> String {
        assert_eq!(self.status, Some(0), "{}\n{}", self.out, self.error);
        self.out
    }

    #[track_caller]
    fn fails(self, status: i32, message: &str) {
        assert_eq!(self.status, Some(status), "{}\n{}", self.out, self.error);
        assert!(self.error.contains(message), "{}", self.error);
    }
}

#[test]
fn info_lists_its_devices_beside_those_of_other_backends() {
    let all = run(&["info"]).succeeds();
    for part in
        ["sample:0", "Sample device 0", "8.00 GiB, counting only this process", "sample-backend 0.1.0", "host:0"]
    {
        assert!(all.contains(part), "`{part}` in {all}");
    }
    let mut two = program(&["info", "--backend", "sample"]);
    two.env("SAMPLE_DEVICES", "2");
    let own = ended(two).succeeds();
    assert!(own.contains("sample:1") && !own.contains("host:0"), "{own}");
}

#[test]
fn a_replay_on_it_has_the_statistics_of_the_simulated_device() {
    let on = |backend| run(&["replay", "--backend", backend, "--capacity", "4GiB", "--plain"]).succeeds();
    let (sample, simulated) = (on("sample"), on("sim"));
    assert!(sample.contains("\noom ") || sample.starts_with("oom "), "4 GiB are not enough:\n{sample}");
    assert_eq!(sample, simulated);
    let summary = run(&["replay", "--backend", "sample"]).succeeds();
    assert!(summary.contains("on sample:0 (Sample device 0)"), "{summary}");
    assert!(summary.contains("peak requested                 7.00 GiB"), "{summary}");
}

#[test]
fn the_suite_runs_on_it() {
    let passed = run(&["conformance", "--backend", "sample", "B1"]).succeeds();
    assert!(passed.contains("test sample::B18_alignment ") && passed.contains("result: ok. "), "{passed}");
    assert!(passed.contains("on sample:0: Sample device 0 (sample-backend 0.1.0)"), "{passed}");
}

#[test]
fn the_benchmark_runs_on_it() {
    let measured = run(&["bench", "small", "xstream", "-t", "1,2", "-r", "1", "-m", "5", "--backend", "sample"]);
    let lines: Vec<_> = measured.succeeds().lines().map(|line| line.chars().take(9).collect::<String>()).collect();
    assert_eq!(lines, ["# scenari", "small    ", "small    ", "xstream  ", "xstream  "].map(|line| line.to_owned()));
}

#[test]
#[ignore = "takes two minutes"]
fn the_report_on_it_passes() {
    let report = run(&["verify", "--backend", "sample", "--quick"]).succeeds();
    assert!(report.starts_with("# accel verify on sample:0 (Sample device 0): all passed\n"), "{report}");
    for section in ["Conformance", "Kernel", "Replays", "Bandwidth", "Cost of calls"] {
        assert!(report.contains(&format!("\n## {section}: passed\n")), "{report}");
    }
}

#[test]
fn the_help_names_it_and_a_wrong_name_is_answered_with_the_right_ones() {
    let help = run(&["replay", "--help"]).succeeds();
    assert!(help.contains("- sample: A sample device with threads as streams"), "{help}");
    let names = "host, sample, sim]";
    for command in ["info", "replay", "conformance", "bench", "verify"] {
        run(&[command, "--backend", "simple"]).fails(2, names);
        run(&[command, "--backend", "sampel"]).fails(2, "a similar value exists: 'sample'");
    }
}

#[test]
fn without_a_device_each_command_says_so() {
    let info = run_without_devices(&["info", "--backend", "sample"]).succeeds();
    assert_eq!(info, "sample is not available: there is no device\n");
    for command in ["replay", "bench", "verify"] {
        let ended = run_without_devices(&[command, "--backend", "sample"]);
        ended.fails(1, "accel: no accelerator is available: sample: there is no device\n");
    }
    let suite = run_without_devices(&["conformance", "--backend", "sample", "B1"]).succeeds();
    assert!(suite.contains("ignored (not available: there is no device)"), "{suite}");
}
