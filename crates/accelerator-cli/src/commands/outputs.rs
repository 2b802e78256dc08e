//! Checks that output files are not the input.

use std::fs::{self, Metadata};
use std::path::Path;

use crate::failure::Failure;

/// Refuses outputs that would replace the input, even under another name. As `input`, `-` is standard input, and `None`
/// means that the input is not a file.
pub(super) fn check<'a>(outputs: impl IntoIterator<Item = &'a Path>, input: Option<&Path>) -> Result<(), Failure> {
    let Some(input) = input else { return Ok(()) };
    let file = if input.as_os_str() == "-" { Path::new("/dev/stdin") } else { input };
    match outputs.into_iter().find(|output| is_same_file(output, file)) {
        Some(output) => Err(Failure::IsInput(output.to_owned())),
        None => Ok(()),
    }
}

/// Returns whether both paths lead to the same regular file. Devices and pipes can be read and written at once.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let file = |path| fs::metadata(path).ok().filter(Metadata::is_file);
    match (file(one), file(other)) {
        (Some(first), Some(second)) => is_same((one, &first), (other, &second)),
        _ => false,
    }
}

#[cfg(unix)]
fn is_same((_, one): (&Path, &Metadata), (_, other): (&Path, &Metadata)) -> bool {
    use std::os::unix::fs::MetadataExt;

    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same((one, _): (&Path, &Metadata), (other, _): (&Path, &Metadata)) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
