//! Small pickles that would expand beyond any machine's memory, never end, or refer to objects that were forgotten.

use std::time::{Duration, Instant};

use accelerator_tracker::snapshot::{MemorySnapshot, Setting, TraceAction};
use accelerator_tracker::tracker::TrackerStats;
use libtest_mimic::{Failed, Trial};

use crate::ages::read;
use crate::foreign::refusal;
use crate::operations::operations;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("hostile::shared_parts_do_not_unfold", bombs),
        Trial::test("hostile::long_texts_are_not_copied", long_texts),
        Trial::test("hostile::long_names_are_not_copied", long_names),
        Trial::test("hostile::an_action_too_long_to_be_kept_was_another_one_when_read_again", long_action),
        Trial::test("hostile::long_names_of_a_tracker_are_not_copied", long_names_of_a_tracker),
        Trial::test("hostile::large_parts_are_looked_at_once", large),
        Trial::test("hostile::pairs_are_not_copied_again_and_again", copied_pairs),
        Trial::test("hostile::parts_in_themselves", cycles),
        Trial::test("hostile::lists_nested_too_deep_to_be_kept", nested),
        Trial::test("hostile::what_was_handed_over_is_gone", gone),
        Trial::test("hostile::what_is_complete_does_not_change", changed),
        Trial::test("hostile::empty_lists_may_be_shared", shared_histories),
        Trial::test("hostile::frames_may_be_shared", shared_frames),
        Trial::test("hostile::frames_of_unknown_fields_may_be_shared", unknown_frames),
    ]
}

fn pickle(parts: &[&[u8]]) -> Vec<u8> {
    [&[&b"\x80\x04"[..]], parts, &[b"."]].concat().concat()
}

fn written(text: &str) -> Vec<u8> {
    pickle(&[&operations(text)])
}

/// Lists of a hundred thousand elements, repeated a thousand times.
fn bombs() -> Result<(), Failed> {
    let start = Instant::now();
    let (block, many_blocks) = (operations("}('size'K1'state''inactive'uqb"), b"hb".repeat(100_000));
    // A list of blocks in many segments; a block in many segments; a segment repeated; a block repeated.
    let list = [&operations("('x'}('y']q0("), &*block, b"eu"].concat();
    let segment = |blocks: &str| operations(&format!("}}('address'K1'total_size'K2'blocks'{blocks}u"));
    let segments = |segment: &[u8]| [&operations("'segments']("), &*segment.repeat(1000), b"eu"].concat();
    let segment_again = [segment("]"), b"q0".to_vec(), b"h0".repeat(1000)].concat();
    let all_in_one = [&operations("}('address'K1'total_size'K2'blocks']("), &*block, &many_blocks, b"eu"].concat();
    for segments in [
        segments(&segment("h0")),
        segments(&segment("](hbe")),
        [&operations("'segments']("), &*segment_again, b"eu"].concat(),
        [&operations("'segments']("), &*all_in_one, b"eu"].concat(),
    ] {
        let refused = refusal(&pickle(&[b"}", &list, &segments]));
        assert!(refused.contains("an object that was already read"), "{refused}");
    }
    assert!(start.elapsed() < Duration::from_secs(60));
    Ok(())
}

/// Returns a string of a megabyte, memorised for `h0`.
fn megabyte() -> Vec<u8> {
    [&b"X\x00\x00\x10\x00"[..], &vec![b'a'; 1 << 20], b"q0"].concat()
}

fn long_texts() -> Result<(), Failed> {
    let megabyte = megabyte();
    let entries = operations("}('action''snapshot''other'h0u").repeat(10_000);
    let before = operations("}('segments']'device_traces'](](");
    let snapshot = read(&pickle(&[&megabyte, b"0", &before, &entries, b"eeu"]))?;
    assert_eq!((snapshot.device_traces[0].len(), snapshot.device_traces[0][0].other.len()), (10_000, 0));
    let notes = operations("}('before'K1'kind''settings''value'h0u").repeat(10_000);
    let before = operations("}('accelerator'}('version'K\u{1}'devices'](}('notes'](");
    let refused = refusal(&pickle(&[&megabyte, b"0", &before, &notes, &operations("eueu'segments']u")]));
    assert!(refused.contains("its contents take more than 107."), "{refused}");
    Ok(())
}

fn long_action() -> Result<(), Failed> {
    let before = operations("}('segments']'device_traces'](](");
    let snapshot = read(&pickle(&[&megabyte(), b"0", &before, &operations("}('action'h0u"), b"eeu"]))?;
    let mut bytes = Vec::new();
    snapshot.write_to(&mut bytes)?;
    assert_eq!(read(&bytes)?, snapshot);
    Ok(())
}

/// A long name as an action, which entries keep if it is unknown; as the name of a setting; as a row of a table.
fn long_names() -> Result<(), Failed> {
    let entries = operations("}('action'h0u").repeat(10_000);
    let before = operations("}('segments']'device_traces'](](");
    let snapshot = read(&pickle(&[&megabyte(), b"0", &before, &entries, b"eeu"]))?;
    let history = &snapshot.device_traces[0];
    assert_eq!((history.len(), history[0].action, history[0].other.len()), (10_000, TraceAction::Other, 0));
    // A shorter name is kept, and all entries share it.
    let entries = operations("}('action''newer'q1u}('action'h1u");
    let snapshot = read(&pickle(&[&before, &entries, b"eeu"]))?;
    let words: Vec<_> = snapshot.device_traces[0].iter().map(|entry| &entry.other[0].1).collect();
    let [Setting::Text(first), Setting::Text(second)] = words[..] else {
        return Err(format!("{words:?}").into());
    };
    assert!(&**first == "newer" && std::sync::Arc::ptr_eq(first, second));
    // The file that is written has the same words.
    let entry = operations("}('extra''x''action''newer'u");
    let snapshot = read(&pickle(&[&before, &entry, b"eeu"]))?;
    let folder = tempfile::tempdir()?;
    snapshot.write(folder.path().join("words.pickle"))?;
    assert_eq!(MemorySnapshot::read(folder.path().join("words.pickle"))?, snapshot);
    let [settings, table] = [1000, 64].map(|count| operations("h0K1").repeat(count));
    let table = [&operations("'table'}(")[..], &table, b"u"].concat();
    let before = operations("}('segments']'allocator_settings'}(");
    for lines in [settings, table] {
        let snapshot = read(&pickle(&[&megabyte(), b"0", &before, &lines, b"uu"]))?;
        assert_eq!(snapshot.settings, []);
    }
    Ok(())
}

/// A long name of operators, and of markers.
fn long_names_of_a_tracker() -> Result<(), Failed> {
    let amount = |count: u32| {
        let entry = |index: u32| [&b"J"[..], &index.to_le_bytes(), b"h0K\x01\x86"].concat();
        [b"}(".to_vec(), (0..count).flat_map(entry).collect(), b"uq1".to_vec()].concat()
    };
    let file = |operators: u32, markers: usize| {
        pickle(&[
            &megabyte(),
            &operations("0}('memories_allocated'"),
            &amount(operators),
            &operations("'memories_active'h1'memories_reserved'h1'num_alloc_retries'K\u{0}'markers'}("),
            &operations("h0K\u{0}").repeat(markers),
            b"uu",
        ])
    };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("run.pickle");
    for (operators, markers) in [(1000, 0), (1, 1000)] {
        std::fs::write(&path, file(operators, markers))?;
        let refused = TrackerStats::load(&path).unwrap_err().to_string();
        let expected = "at byte 1048586: its contents take more than 96.";
        assert!(refused.starts_with(&format!("{}: {expected}", path.display())), "{refused}");
    }
    std::fs::write(&path, file(2, 3))?;
    let stats = TrackerStats::load(&path)?;
    assert_eq!((stats.operators.len(), stats.markers.len(), stats.operators[1].name.len()), (2, 3, 1 << 20));
    Ok(())
}

/// Large objects, whether or not they can be kept for later elements.
fn large() -> Result<(), Failed> {
    let start = Instant::now();
    // A dictionary of 100,000 keys, memorised 100,000 times.
    let keys = [&b"}("[..], &operations("K1N").repeat(100_000), b"u"].concat();
    let entry = [&operations("}('action''snapshot''x'"), &*keys, &b"\x94".repeat(100_000), b"u"].concat();
    let before = operations("}('segments']'device_traces'](](");
    assert_eq!(read(&pickle(&[&before, &entry, b"eeu"]))?.device_traces[0].len(), 1);
    // Frames that cannot be kept, because of a value in one of them, in 10,000 entries.
    let frames = [&operations("](}('filename''f''x'\u{8f}uqb")[..], &b"hb".repeat(10_000), b"eqa"].concat();
    let first = [&operations("}('action''snapshot''frames'"), &*frames, b"u"].concat();
    let others = operations("}('action''snapshot''frames'hau").repeat(10_000);
    let refused = refusal(&pickle(&[&before, &first, &others, b"eeu"]));
    assert!(refused.contains("an object that was already read"), "{refused}");
    // An object kept as a frame cannot be a segment.
    let frame = operations("](}('filename''f'u}q0('address'K1'total_size'K2ue");
    let entry = [&operations("}('action''snapshot''frames'"), &*frame, b"u"].concat();
    let refused =
        refusal(&pickle(&[&operations("}('device_traces'](]("), &entry, &operations("ee'segments'](h0h0eu")]));
    assert!(refused.contains("a segment is also part of another object"), "{refused}");
    assert!(start.elapsed() < Duration::from_secs(60));
    Ok(())
}

fn cycles() -> Result<(), Failed> {
    let segment = "}('address'K1'total_size'K2";
    for (text, expected) in [
        ("}q0('segments'](h0eu", "a segment has no `address`"),
        ("}('segments']q0(h0eu", "a segment is a list or tuple, but should be a dict"),
        ("}('segments']'device_traces']q0(h0eu", "an entry of the history is an object that was already read"),
        (&format!("}}('segments']({segment}'blocks']q0(h0eueu"), "a block is a list"),
        (&format!("}}('segments']({segment}'frames']q0(h0eueu"), "a frame is a list"),
        ("}('segments'](}q0('address'K1'total_size'K2'blocks'](h0eueu", "a block is an object that was already read"),
        ("]q0(h0e", "a segment is a list or tuple"),
        ("}q0('segments']'allocator_settings'h0u", ""),
    ] {
        match read(&written(text)) {
            Ok(_) => assert_eq!(expected, "", "{text}"),
            Err(error) => assert!(error.message().unwrap().contains(expected), "{text}: {error:?}"),
        }
    }
    Ok(())
}

/// Each list contains the next one. What reads all of them must not recurse into each.
fn nested() -> Result<(), Failed> {
    const LEVELS: usize = 100_000;
    let list = [b"]".repeat(LEVELS), b"a".repeat(LEVELS - 1)].concat();
    let before = operations("}('segments']'device_traces'](](}('action''snapshot''frames'");
    let refused = refusal(&pickle(&[&before, &list, &operations("ueeu")]));
    assert!(refused.contains("a frame"), "{refused}");
    Ok(())
}

/// Pairs that many ordered dictionaries ask for, in a tuple, which is not handed over. Python passes a list.
fn copied_pairs() -> Result<(), Failed> {
    let dictionary = "h1h2\u{85}R";
    let pairs = "(".to_owned() + &"K1K1\u{86}".repeat(20_000) + "tq2";
    let class = "\u{8c}\u{0b}collections\u{8c}\u{0b}OrderedDict\u{93}q10";
    let text = format!("{class}}}('a'{pairs}'b']({}eu", dictionary.repeat(20_000));
    let began = Instant::now();
    let refused = refusal(&written(&text));
    assert!(refused.contains("REDUCE cannot be applied to a list or tuple"), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    Ok(())
}

/// Elements are not kept, although the pickle may refer to them. A reference in an ignored field does no harm.
fn gone() -> Result<(), Failed> {
    let entry = "}('action''snapshot''x']q1(K1eu q0";
    let again = |reference: &str| format!("}}('segments']'device_traces'](]({entry}e]({reference}eeu");
    let refused = refusal(&written(&again("h0")));
    let expected = "an entry of the history is an object that was already read and is not kept";
    assert!(refused.contains(expected), "{refused}");
    let refused = refusal(&written(&again("}('action''alloc''frames'h1u")));
    assert!(
        refused.contains("`frames` of an entry of the history is an object that was already read")
            || refused.contains("has no `addr`"),
        "{refused}"
    );
    assert_eq!(read(&written(&again("}('action''snapshot''new'h1u")))?.device_traces[1].len(), 1);
    Ok(())
}

fn changed() -> Result<(), Failed> {
    // An element modifies the snapshot, its own list, or frames that were already complete.
    for text in [
        "}q0('segments'](h0'x'K1su",
        "}('segments']q0(h0K1aeu",
        "}('segments']'device_traces'](](}('action''snapshot''frames']q0(}('filename''f'ueu}('action'h0K1aueeu",
    ] {
        let refused = refusal(&written(text));
        assert!(refused.contains("changes an object that was already complete"), "{text}: {refused}");
    }
    Ok(())
}

/// Like `[[]] * 3` in Python.
fn shared_histories() -> Result<(), Failed> {
    let snapshot = read(&written("}('segments']'device_traces'](]q0h0h0eu"))?;
    assert_eq!(snapshot.device_traces, vec![vec![]; 3]);
    let entry = "}('action''snapshot'u";
    let refused = refusal(&written(&format!("}}('segments']'device_traces'](]q0({entry}eh0eu")));
    assert!(refused.contains("an object that was already read"), "{refused}");
    Ok(())
}

/// Frames of unknown fields can be shared as well.
fn unknown_frames() -> Result<(), Failed> {
    let first = "}('action''snapshot''forward_frames']q0(}('filename''a.py'ueu";
    let second = "}('action''snapshot''frames'h0u";
    let snapshot = read(&written(&format!("}}('segments']'device_traces'](]({first}{second}eeu")))?;
    assert_eq!(&*snapshot.device_traces[0][1].frames[0].filename, "a.py");
    Ok(())
}

/// Lists and single frames, memorised or equal, are in memory only once.
fn shared_frames() -> Result<(), Failed> {
    let frame = "}('name''f''filename''a.py''line'K1u";
    let entry = |frames: &str| format!("}}('action''snapshot''frames'{frames}u");
    let entries = [
        entry(&format!("](({frame}q0eq1").replace("((", "(")),
        entry("h1"),
        entry("](h0e"),
        entry(&format!("]({frame}e")),
        entry(&format!("]({frame}h0e")),
    ];
    let snapshot = read(&written(&format!("}}('segments']'device_traces'](]({}eeu", entries.concat())))?;
    let history = &snapshot.device_traces[0];
    let same = |a: usize, b: usize| std::sync::Arc::ptr_eq(&history[a].frames, &history[b].frames);
    assert!(same(0, 1) && same(0, 2) && same(0, 3) && !same(0, 4));
    assert!(std::sync::Arc::ptr_eq(&history[0].frames[0], &history[4].frames[1]));
    assert_eq!((&*history[4].frames[0].filename, history[4].frames[0].line), ("a.py", 49));
    Ok(())
}
