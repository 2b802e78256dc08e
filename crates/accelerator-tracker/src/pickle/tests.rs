#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::Path;

use super::machine::Machine;
use super::read::Whole;
use super::stream::ReadError;
use super::*;
use crate::limits::Limits;

/// Returns the contents of a pickle, as Python would print them.
fn shown(bytes: &[u8]) -> Result<String, String> {
    match read(&mut &bytes[..], Path::new("file"), Limits::default()) {
        Ok(pickle) => Ok(show(pickle.root())),
        Err(error) => Err(error.to_string().trim_start_matches("file: ").to_owned()),
    }
}

fn show(view: View<'_>) -> String {
    let join = |parts: Vec<String>| parts.join(", ");
    if let Some(pairs) = view.pairs() {
        return format!("{{{}}}", join(pairs.map(|(key, value)| show(key) + ": " + &show(value)).collect()));
    }
    if let Some(items) = view.items() {
        return format!("[{}]", join(items.map(show).collect()));
    }
    let text = view.text().map(|text| format!("{text:?}"));
    let number = view.integer().map(|integer| integer.to_string());
    let unsigned = view.unsigned().map(|unsigned| unsigned.to_string());
    let float = view.float().map(|float| format!("{float:?}"));
    let flag = view.flag().map(|flag| flag.to_string());
    text.or(number).or(unsigned).or(float).or(flag).unwrap_or(view.type_name().to_owned())
}

/// Pickles that Python 3.11 writes for `{"a": [1, -300, 70000, 2**63, 1.5, None, True, "é"], ("b", 2): {}}`, and for a
/// list that contains one list twice.
const OF_PYTHON: [&[u8]; 4] = [
    b"(dp0\nVa\np1\n(lp2\nI1\naI-300\naI70000\naL9223372036854775808L\naF1.5\naNaI01\naV\xe9\np3\nas(Vb\np4\nI2\ntp5\n(dp6\ns.",
    b"}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xd4\xfe\xff\xffJp\x11\x01\x00L9223372036854775808L\n\
      G?\xf8\x00\x00\x00\x00\x00\x00NI01\nX\x02\x00\x00\x00\xc3\xa9q\x03e(X\x01\x00\x00\x00bq\x04K\x02tq\x05}q\x06u.",
    b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xd4\xfe\xff\xffJp\x11\x01\x00\
      \x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00G?\xf8\x00\x00\x00\x00\x00\x00N\x88X\x02\x00\x00\x00\xc3\xa9q\x03e\
      X\x01\x00\x00\x00bq\x04K\x02\x86q\x05}q\x06u.",
    b"\x80\x04\x95\x3b\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xd4\xfe\xff\xffJp\x11\x01\x00\
      \x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00G?\xf8\x00\x00\x00\x00\x00\x00N\x88\x8c\x02\xc3\xa9\x94e\
      \x8c\x01b\x94K\x02\x86\x94}\x94u.",
];
const SHOWN: &str = r#"{"a": [1, -300, 70000, 9223372036854775808, 1.5, None, true, "é"], ["b", 2]: {}}"#;

#[test]
fn every_protocol_is_read() {
    for bytes in OF_PYTHON {
        assert_eq!(shown(bytes).unwrap(), SHOWN, "{}", bytes.escape_ascii());
    }
    for (bytes, expected) in [
        (&b"\x8f(K\x01K\x02\x90."[..], "a set"),
        (b"(K\x01K\x02\x91.", "a set"),
        (b"K\x01K\x02K\x03\x87.", "[1, 2, 3]"),
        (b"C\x02ab.", "bytes"),
        (b"B\x02\x00\x00\x00ab.", "bytes"),
        (b"\x8e\x02\x00\x00\x00\x00\x00\x00\x00ab.", "bytes"),
        (b"\x96\x02\x00\x00\x00\x00\x00\x00\x00ab.", "bytes"),
        (b"U\x01a.", "\"a\""),
        (b"T\x01\x00\x00\x00a.", "\"a\""),
        (b"\x8d\x01\x00\x00\x00\x00\x00\x00\x00a.", "\"a\""),
        (b"\x8b\x02\x00\x00\x00\x00\x01.", "256"),
        (b"M\x00\x01.", "256"),
    ] {
        let pickle = [b"\x80\x05", bytes].concat();
        assert_eq!(shown(&pickle).unwrap(), expected, "{}", bytes.escape_ascii());
    }
    assert_eq!(shown(b"(0N.").unwrap(), "None", "POP takes a mark, too");
}

#[test]
fn a_truncated_pickle_is_refused_where_it_ends() {
    for bytes in OF_PYTHON {
        for length in 0..bytes.len() {
            let error = shown(&bytes[..length]).unwrap_err();
            assert!(error.starts_with(&format!("at byte {length}: the pickle ends in the middle of")), "{error}");
        }
    }
}

#[test]
fn a_truncated_operation_is_named() {
    for (bytes, name) in [(&b"X\x05\x00\x00\x00ab"[..], "BINUNICODE"), (b"NK", "BININT1"), (b"N", "an operation")] {
        let error = shown(bytes).unwrap_err();
        assert!(error.ends_with(&format!("in the middle of {name}: the file is truncated")), "{error}");
    }
}

#[test]
fn data_after_the_end_is_refused() {
    assert_eq!(shown(b"N.N.").unwrap_err(), "at byte 2: the pickle ends before this byte, but the file continues");
}

#[test]
fn dictionaries_of_known_classes_are_dictionaries() {
    for (bytes, expected) in [
        (&b"\x80\x04\x8c\x0bcollections\x94\x8c\x0bdefaultdict\x94\x93\x94)R\x94K\x01K\x02s."[..], "{1: 2}"),
        (b"ccollections\ndefaultdict\np0\n(c__builtin__\nint\np1\ntp2\nRp3\nI1\nI2\ns.", "{1: 2}"),
        (b"\x80\x02ccollections\ndefaultdict\nN\x85R.", "{}"),
        (
            b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(K\x02K\x03K\x01Nu}X\x01\x00\x00\x00aK\x01sb.",
            "{2: 3, 1: None}",
        ),
        (b"ccollections\nOrderedDict\n((l(lI1\naI2\natR.", "unfit"),
        (b"ccollections\nOrderedDict\n((l(lI1\naI2\naatR.", "{1: 2}"),
    ] {
        match shown(bytes) {
            Ok(shown) => assert_eq!(shown, expected),
            Err(error) => assert_eq!(expected, "unfit", "{error}"),
        }
    }
}

#[test]
fn code_is_refused_by_name_and_place() {
    for (bytes, expected) in [
        (&b"cos\nsystem\n(S'id'\ntR."[..], "at byte 0: refused GLOBAL of `os.system`: a pickle may only hold data"),
        (b"\x80\x04N0\x8c\x02os\x8c\x06system\x93.", "at byte 16: refused STACK_GLOBAL of `os.system`"),
        (b"(S'id'\nios\nsystem\n.", "at byte 7: refused INST of `os.system`"),
        (b"Pfile\n.", "at byte 0: refused PERSID of `persistent object file`"),
        (b"NQ.", "at byte 1: refused BINPERSID of `a persistent object`"),
        (b"\x80\x02\x82\x05.", "at byte 2: refused EXT1 of `extension 5`"),
        (b"\x83\x05\x01.", "at byte 0: refused EXT2 of `extension 261`"),
        (b"\x84\x05\x00\x00\x01.", "at byte 0: refused EXT4 of `extension 16777221`"),
        (b"(o.", "at byte 1: refused OBJ of `an object`"),
        (b"N)\x81.", "at byte 2: refused NEWOBJ of `an object`"),
        (b"N)}\x92.", "at byte 3: refused NEWOBJ_EX of `an object`"),
        (b"}}b.", "at byte 2: refused BUILD of `a dict`"),
        (b"\x97.", "at byte 0: refused NEXT_BUFFER of `a buffer outside the file`"),
        (b"cbuiltins\neval\n.", "at byte 0: refused GLOBAL of `builtins.eval`"),
        (b"ccollections\nCounter\n.", "at byte 0: refused GLOBAL of `collections.Counter`"),
        (b"ccollections\ndefaultdict\n(cbuiltins\nint\n(NtR.", "at byte 43: REDUCE cannot be applied to None"),
        (b"cbuiltins\nint\n)R.", "at byte 15: REDUCE cannot be applied to a class"),
        (b"N)R.", "at byte 2: REDUCE cannot be applied to None"),
    ] {
        let error = shown(bytes).unwrap_err();
        assert!(error.starts_with(expected), "{error}\n{expected}");
    }
}

#[test]
fn damage_is_told() {
    for (bytes, expected) in [
        (&b"\x00"[..], "at byte 0: 0x00 is not a pickle opcode"),
        (b"\x80\x06N.", "at byte 0: unknown pickle protocol 6: only 0 to 5 are supported"),
        (b".", "at byte 0: STOP lacks an operand"),
        (b"NN.", "at byte 2: STOP cannot be applied to more than one value"),
        (b"(.", "at byte 1: STOP lacks an operand"),
        (b"Na.", "at byte 1: APPEND lacks an operand"),
        (b"NNa.", "at byte 2: APPEND cannot be applied to None"),
        (b"](Na.", "at byte 3: APPEND lacks an operand"),
        (b"e.", "at byte 0: APPENDS lacks an operand"),
        (b"(e.", "at byte 1: APPENDS lacks an operand"),
        (b"}(Nu.", "at byte 3: SETITEMS lacks an operand"),
        (b"}]Ns.", "at byte 3: SETITEM cannot be applied to a list or tuple"),
        (b"h\x00.", "at byte 0: the pickle refers to memo entry 0, which does not exist"),
        (b"I1x\n.", "at byte 0: INT: not a whole number"),
        (b"X\x01\x00\x00\x00\xff.", "at byte 0: BINUNICODE: not UTF-8"),
        (b"g-1\n.", "at byte 0: GET: not the number of a memo entry"),
        (b"\x85.", "at byte 0: TUPLE1 lacks an operand"),
        (b"1.", "at byte 0: POP_MARK lacks an operand"),
        (b"K\x01N\x93.", "at byte 3: STACK_GLOBAL cannot be applied to an int"),
    ] {
        let error = shown(bytes).unwrap_err();
        assert!(error.starts_with(expected), "{}: {error}", bytes.escape_ascii());
    }
}

#[test]
fn a_length_alone_takes_no_memory() {
    for bytes in [
        &b"X\xff\xff\xff\xffabc"[..],
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc",
        b"\x8b\xff\xff\xff\xffabc",
    ] {
        assert!(shown(bytes).unwrap_err().contains("truncated"));
    }
}

#[test]
fn an_object_that_contains_itself_is_read_once() {
    let pickle = read(&mut &b"\x80\x04]\x94(h\x00K\x01e."[..], Path::new("file"), Limits::default()).unwrap();
    let first = pickle.root().items().unwrap().next().unwrap();
    assert_eq!(first.items().unwrap().len(), 2);
    let deep = [vec![b']'; 200_000], vec![b'a'; 199_999], vec![b'.']].concat();
    assert!(read(&mut &*deep, Path::new("file"), Limits::default()).is_ok());
    let marks = vec![b'('; 1 << 20];
    assert!(shown(&marks).unwrap_err().contains("more than 65536 levels"));
}

#[test]
fn memory_is_limited() {
    let limited =
        |mut bytes: &[u8]| match Machine::new(&mut bytes, &mut Whole, Limits { memory: 1 << 20, ..Limits::default() })
            .run()
        {
            Ok(_) => panic!("it fits"),
            Err(ReadError::Pickle(error)) => error.fault.to_string(),
        };
    for opcodes in ["}", "]", "N", ")", "(lN", "]N\x61", "}NN\x73", "\u{5d}2\u{61}"] {
        let many = opcodes.repeat(100_000);
        assert!(limited(many.as_bytes()).contains("more than 1.00 MiB of memory"), "{opcodes}");
    }
    let text = [&b"X\x00\x00\x20\x00"[..], &[b'a'; 1 << 21], b"."].concat();
    assert!(limited(&text).contains("more than 1.00 MiB of memory"));
    // One value, memorised again and again, in order and out of order.
    let in_order = [&b"N"[..], &[0x94; 300_000]].concat();
    let falling = (0..100_000_u32).rev().flat_map(|number| [&b"r"[..], &number.to_le_bytes()].concat());
    let falling: Vec<_> = b"N".iter().copied().chain(falling).collect();
    for many in [in_order, falling] {
        assert!(limited(&many).contains("more than 1.00 MiB of memory"));
    }
}

#[test]
fn parts_may_have_any_numbers() {
    assert_eq!(shown(b"(K\x01q\x07Nq\x03h\x07h\x03t.").unwrap(), "[1, None, 1, None]");
    assert_eq!(shown(b"(K\x01p4000000000\nK\x02p1\nK\x03p0\ng4000000000\ng1\ng0\nt.").unwrap(), "[1, 2, 3, 1, 2, 3]");
    // `MEMOIZE` uses the number of entries as the next number.
    assert_eq!(shown(b"(K\x01q\x01K\x02q\x00K\x03\x94h\x02t.").unwrap(), "[1, 2, 3, 3]");
    assert_eq!(shown(b"(K\x01q\x02K\x02\x94h\x01t.").unwrap(), "[1, 2, 2]");
}

#[test]
fn what_is_written_is_read() {
    let mut bytes = Vec::new();
    let mut out = Writer::new(&mut bytes).unwrap();
    let numbers = [0, -1, 255, 256, 65536, -65536, i128::from(i64::MIN), i128::from(u64::MAX), 1 << 31, 1 << 39];
    out.open_dict().unwrap();
    out.text("numbers").unwrap();
    out.list(numbers, |out, number| out.integer(number)).unwrap();
    out.text(&"long ".repeat(60)).unwrap();
    out.list(0..2500, |out, _| out.text("same")).unwrap();
    out.text("numbers").unwrap();
    out.float(0.1).unwrap();
    out.close_dict().unwrap();
    out.finish().unwrap();
    let pickle = read(&mut &*bytes, Path::new("file"), Limits::default()).unwrap();
    let read: Vec<_> = pickle.root().pairs().unwrap().collect();
    let integers = read[0].1.items().unwrap();
    let integers = integers.map(|item| item.integer().map_or_else(|| item.unsigned().unwrap().into(), i128::from));
    assert_eq!(integers.collect::<Vec<_>>(), numbers);
    assert_eq!(read[1].0.text().unwrap().len(), 300);
    let same = read[1].1.items().unwrap();
    assert_eq!(same.len(), 2500);
    assert!(same.map(|item| &**item.text().unwrap()).all(|text| text == "same"));
    assert_eq!(read[2].1.float(), Some(0.1));
}

/// What Python 3.11 writes for these numbers, with `pickle.dumps(number, 2)`.
#[test]
fn integers_are_as_short_as_pythons() {
    for (number, expected) in [
        (255_i128, &b"K\xff"[..]),
        (256, b"M\x00\x01"),
        (65535, b"M\xff\xff"),
        (65536, b"J\x00\x00\x01\x00"),
        (-1, b"J\xff\xff\xff\xff"),
        (-(1 << 31), b"J\x00\x00\x00\x80"),
        (1 << 31, b"\x8a\x05\x00\x00\x00\x80\x00"),
        (-(1 << 31) - 1, b"\x8a\x05\xff\xff\xff\x7f\xff"),
        ((1 << 39) - 1, b"\x8a\x05\xff\xff\xff\xff\x7f"),
        (1 << 39, b"\x8a\x06\x00\x00\x00\x00\x80\x00"),
        (-(1 << 39), b"\x8a\x05\x00\x00\x00\x00\x80"),
        (-(1 << 39) - 1, b"\x8a\x06\xff\xff\xff\xff\x7f\xff"),
        (i128::from(u64::MAX), b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"),
    ] {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).unwrap().integer(number).unwrap();
        assert!(bytes.ends_with(expected), "{number}: {}", bytes.escape_ascii());
        assert_eq!(bytes.len(), expected.len() + 2, "{number}: {}", bytes.escape_ascii());
    }
}

#[test]
fn lengths_of_texts_are_as_short_as_pythons() {
    for (length, expected) in [(255, &b"\x8c\xff"[..]), (256, b"X\x00\x01\x00\x00")] {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).unwrap().text_once(&"a".repeat(length)).unwrap();
        assert!(bytes[2..].starts_with(expected), "{}", bytes[..9].escape_ascii());
        assert_eq!(bytes.len(), 2 + expected.len() + length);
    }
}
