"""What `run.py` makes mutants of, and which tests look at them."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Subject:
    package: str
    # The options of cargo for tests that compile soon, and those tests, that which catches most in little time first.
    built: list
    tests: list
    # Tests in the package `accelerator-tests`, for what the first ones miss.
    further: list
    # Of these suites, only the tests whose names have one of these parts.
    parts: dict = dataclasses.field(default_factory=dict)
    skipped: tuple = ()

    @property
    def sources(self):
        return f"crates/{self.package}/src/"


SUBJECTS = {
    "core": Subject(
        package="accelerator-core",
        built=["--package", "accelerator-core", "--package", "accelerator-mutants", "--lib", "--test", "mutants_*"],
        tests=["accelerator_core", "adversary", "property", "limits", "sim", "host", "concurrency"],
        further=["regressions", "recording", "facade", "conformance", "parity", "history", "snapshot", "compact"],
        # Of the jobs, only the small ones.
        parts={"conformance": ["sim::", "host::"], "compact": ["models"]},
        # Four do not fit into the limits, and one needs shrinking, which is off. The others take most of the time.
        skipped=(
            "a_large_reservation_costs_nothing",
            "a_request_fails_only",
            "an_input_that_fails_is_shrunk",
            "any_single_failing_call_leaks_nothing_and_drifts_no_statistic",
            "any_single_failing_call_leaks_nothing_where",
            "a_thousand_cycles",
            "compact::failing_twice",
            "compact::streams_that_are_too_many",
            "host::M135_memory_runs_out",
            "nothing_is_lost_when_ownership",
            "nothing_is_lost_with_more_threads",
            "paused_memory_is_not_resident",
            "streams_of_devices_that_are_gone",
            "threads_that_come_and_go",
            "too_many_streams",
        ),
    ),
    "readers": Subject(
        package="accelerator-tracker",
        built=["--package", "accelerator-tracker", "--lib"],
        tests=["accelerator_tracker"],
        further=["snapshot", "tracker", "fuzz", "snapshot_memory", "pytorch_files"],
    ),
}
