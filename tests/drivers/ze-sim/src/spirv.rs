//! Reads the entry points of a SPIR-V module. Its code is never executed.

/// The first word of every module.
const MAGIC: u32 = 0x0723_0203;

/// The number of words before the first instruction.
const HEADER: usize = 5;

/// `OpEntryPoint`
const ENTRY_POINT: u32 = 15;

/// Returns the names of a module's entry points, or what is wrong with the module.
pub(crate) fn entry_points(module: &[u8]) -> Result<Vec<String>, &'static str> {
    let words: Vec<u32> = module.chunks_exact(4).map(word).collect();
    if words.first() != Some(&MAGIC) {
        return Err("the module does not begin with SPIR-V's magic number");
    }
    if !module.len().is_multiple_of(4) || words.len() < HEADER {
        return Err("the module ends in the middle of a word, or of its header");
    }
    let mut rest = &words[HEADER..];
    let mut names = Vec::new();
    while let Some(first) = rest.first() {
        let (length, operation) = ((first >> 16) as usize, first & 0xffff);
        if length == 0 || length > rest.len() {
            return Err("the module ends in the middle of an instruction");
        }
        let (instruction, later) = rest.split_at(length);
        if operation == ENTRY_POINT {
            // The name follows the execution model and the function's number.
            names.push(text(instruction.get(3..).unwrap_or_default()).ok_or("an entry point has no name")?);
        }
        rest = later;
    }
    Ok(names)
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Decodes a zero-terminated string, four characters per word.
fn text(words: &[u32]) -> Option<String> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0)?;
    String::from_utf8(bytes[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(instructions: &[&[u32]]) -> Vec<u8> {
        let header = [MAGIC, 0x1_0000, 0, 8, 0];
        let words = header.iter().chain(instructions.iter().copied().flatten());
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn entry_points_are_found_among_other_instructions() {
        let (capability, saxpy) = ([2 << 16 | 17, 4], [5 << 16 | ENTRY_POINT, 6, 1, 0x7078_6173, 0x79]);
        let spin = [6 << 16 | ENTRY_POINT, 6, 2, 0x6e69_7073, 0, 7];
        let names = entry_points(&module(&[&capability, &saxpy, &spin]));
        assert_eq!(names, Ok(vec!["saxpy".to_owned(), "spin".to_owned()]));
        assert_eq!(entry_points(&module(&[])), Ok(vec![]));
    }

    #[test]
    fn what_is_no_module_is_told() {
        let whole = module(&[&[2 << 16 | 17, 4]]);
        assert!(entry_points(&whole).is_ok());
        for wrong in [&whole[1..], &whole[..4], &whole[..22], &whole[..24], &[]] {
            assert!(entry_points(wrong).is_err(), "{wrong:?}");
        }
        assert!(entry_points(&module(&[&[0]])).is_err(), "an instruction of no words");
        assert!(entry_points(&module(&[&[4 << 16 | ENTRY_POINT, 6, 1, 0x7078_6173]])).is_err());
    }
}
