//! Handmade pickles.

/// A value to pickle.
pub(crate) enum Made {
    None,
    Flag(bool),
    Integer(i64),
    Text(&'static str),
    List(Vec<Made>),
    Pair(Box<(Made, Made)>),
    Dict(Vec<(&'static str, Made)>),
    /// Raw operations.
    Raw(&'static [u8]),
}

pub(crate) use Made::{Dict, Flag, Integer, List, Raw, Text};

pub(crate) fn pair(first: i64, second: i64) -> Made {
    Made::Pair(Box::new((Integer(first), Integer(second))))
}

/// Pickles a value without memorising anything.
pub(crate) fn pickle(value: &Made) -> Vec<u8> {
    let mut bytes = vec![0x80, 2];
    put(value, &mut bytes);
    bytes.push(b'.');
    bytes
}

fn put(value: &Made, out: &mut Vec<u8>) {
    match value {
        Made::None => out.push(b'N'),
        Flag(flag) => out.push(if *flag { 0x88 } else { 0x89 }),
        Integer(integer) => {
            out.extend([0x8a, 8]);
            out.extend(integer.to_le_bytes());
        }
        Text(text) => {
            out.push(b'X');
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.bytes());
        }
        List(items) => {
            out.extend(b"](");
            items.iter().for_each(|item| put(item, out));
            out.push(b'e');
        }
        Made::Pair(pair) => {
            put(&pair.0, out);
            put(&pair.1, out);
            out.push(0x86);
        }
        Dict(pairs) => {
            out.extend(b"}(");
            for (key, value) in pairs {
                put(&Text(key), out);
                put(value, out);
            }
            out.push(b'u');
        }
        Raw(bytes) => out.extend(*bytes),
    }
}
