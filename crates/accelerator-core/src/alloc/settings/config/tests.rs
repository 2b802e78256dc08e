use super::*;

fn read(text: &str) -> AllocatorConfig {
    AllocatorConfig::default().updated(text).unwrap()
}

#[test]
fn errors_say_what_was_expected_and_what_was_found() {
    for (text, expected) in [
        ("caching", "expected `:` and a value after `caching`, but the text ends there"),
        ("caching,policy:compact", "expected `:` and a value after `caching`, but found `,`"),
        (":1", "expected a key, but found `:`"),
        (",", "expected a key, but found `,`"),
        ("caching:", "expected a value for `caching`, but the text ends there"),
        ("caching:True:False", "expected `,` between settings, but found `:`"),
        (
            "roundup_power2_divisions:[1:2",
            "expected `,` or `]` in the table of `roundup_power2_divisions`, but the text ends there",
        ),
        ("caching:true", "`caching` must be `True` or `False`, not `true`"),
        ("caching:[a:1]", "`caching` must be `True` or `False`, not a table"),
        ("max_split_size_mb:-1", "`max_split_size_mb` must be a whole number, not `-1`"),
        ("garbage_collection_threshold:x", "`garbage_collection_threshold` must be a number, not `x`"),
        ("policy:best", "`policy` must be `pytorch` or `compact`, not `best`"),
        ("roundup_power2_divisions:3", "the numbers of `roundup_power2_divisions` must be powers of two, not 3"),
        ("roundup_power2_divisions:[3:4]", "the numbers of `roundup_power2_divisions` must be powers of two, not 3"),
        ("roundup_power2_divisions:[4:3]", "the numbers of `roundup_power2_divisions` must be powers of two, not 3"),
        ("large_segment_size_mb:10", "`large_segment_size_mb` must be more than 10"),
        ("garbage_collection_threshold:0", "`garbage_collection_threshold` must be more than 0 and less than 1"),
        ("garbage_collection_threshold:1", "`garbage_collection_threshold` must be more than 0 and less than 1"),
        ("per_process_memory_fraction:1.1", "`per_process_memory_fraction` must be between 0 and 1"),
        ("max_split_size_mb:19", "`max_split_size_mb` must be at least large_segment_size_mb, which is 20"),
        (
            "max_non_split_rounding_mb:29,large_segment_size_mb:30",
            "`max_non_split_rounding_mb` must be at least large_segment_size_mb, which is 30",
        ),
    ] {
        let refused = AllocatorConfig::default().updated(text).unwrap_err();
        let Error::InvalidSetting { variable: None, settings, reason } = refused else { panic!("{text}: {refused}") };
        assert_eq!((&*settings, &*reason), (text, expected));
    }
    let unknown = AllocatorConfig::default().updated("nonsense:1").unwrap_err().to_string();
    assert!(unknown.contains("unknown key `nonsense`: expected one of max_split_size_mb, "), "{unknown}");
}

#[test]
fn the_values_at_the_limits_are_taken() {
    let config = read("large_segment_size_mb:11,max_split_size_mb:11,max_non_split_rounding_mb:11");
    let sizes = [config.large_segment_size, config.max_split_size, config.max_non_split_rounding];
    assert_eq!(sizes, [11 * MIB; 3]);
    assert_eq!(read("large_segment_size_mb:30").max_non_split_rounding, 30 * MIB, "unless it is given");
    assert_eq!(read("large_segment_size_mb:30").to_string(), "large_segment_size_mb:30");
    assert_eq!(["0", "1"].map(|text| read(&format!("per_process_memory_fraction:{text}")).memory_fraction), [0.0, 1.0]);
    assert_eq!(read("garbage_collection_threshold:0.999").garbage_collection_threshold, 0.999);
}

#[test]
fn a_string_resets_three_settings_and_no_others() {
    let before = "max_split_size_mb:64,roundup_power2_divisions:4,garbage_collection_threshold:0.5,caching:False";
    let after = read(before).updated("policy:compact").unwrap();
    assert_eq!(after, AllocatorConfig { caching: false, policy: Policy::Compact, ..AllocatorConfig::default() });
    assert_eq!(after.to_string(), "policy:compact,caching:False");
}

#[test]
fn a_division_applies_from_its_size_to_the_next_one_that_is_given() {
    let of =
        |text: &str, mib: u64| read(&format!("roundup_power2_divisions:{text}")).roundup_power2_divisions.of(mib * MIB);
    let sizes = [0, 1, 2, 4, 8, 15, 16, 1 << 15, 1 << 20];
    assert_eq!(sizes.map(|mib| of("4", mib)), [4; 9]);
    assert_eq!(sizes.map(|mib| of("[4:8,8:2,>:16]", mib)), [8, 8, 8, 8, 2, 2, 16, 16, 16]);
    assert_eq!(sizes.map(|mib| of("[4:8,16:2]", mib)), [8, 8, 8, 8, 0, 0, 2, 0, 0], "none in between");
    assert_eq!(sizes.map(|mib| of("[>:4]", mib)), [0, 0, 4, 4, 4, 4, 4, 4, 4]);
    assert_eq!(sizes.map(|mib| of("[1:0,>:2]", mib)), [0, 0, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(sizes.map(|mib| of("[1048576:2]", mib)), [2; 9]);
}

#[test]
fn best_fit_is_plain_unless_a_setting_says_otherwise() {
    for (text, is_plain, splits_plainly) in [
        ("", true, true),
        ("large_segment_size_mb:32,caching:False,device_side_reuse:True", true, true),
        ("expandable_segments:True", false, true),
        ("policy:compact", false, true),
        ("max_split_size_mb:64", false, false),
        ("garbage_collection_threshold:0.5", false, false),
        ("roundup_power2_divisions:4", false, false),
    ] {
        let config = read(text);
        assert_eq!((config.is_plain(), config.splits_plainly()), (is_plain, splits_plainly), "{text}");
    }
}

#[test]
fn requests_are_rounded_to_blocks_or_to_steps_of_a_power_of_two() {
    let blocks = [0, 1, 512, 513, 1 << 30, u64::MAX].map(|bytes| AllocatorConfig::default().rounded(bytes));
    assert_eq!(blocks, [512, 512, 512, 1024, 1 << 30, 1 << 60]);
    let steps = [1, 2048, 2049, 2560, 2561, 1_100_000].map(|bytes| read("roundup_power2_divisions:4").rounded(bytes));
    assert_eq!(steps, [512, 2048, 2560, 2560, 3072, 1_310_720]);
}

/// The stack overflowed, which ends the process.
#[test]
fn tables_within_tables_are_refused() {
    let read = |text: &str| AllocatorConfig::default().updated(text);
    assert!(read("caching:[a:[b:[c:[d:1]]]]").unwrap_err().to_string().contains("`caching` must be `True` or `False`"));
    for text in ["a:[".repeat(100_000), "a:[b:[c:[d:[e:[f:1]]]]]".to_owned()] {
        assert!(read(&text).unwrap_err().to_string().contains("the tables around `"), "{text:.20}");
    }
}
