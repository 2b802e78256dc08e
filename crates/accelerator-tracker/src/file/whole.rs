//! Writes files completely or not at all.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::FileError;
use super::temporary::{Temporary, folder_of};

/// Writes a file completely or not at all. It gets its name when it is complete, and an existing file stays until then.
///
/// The new file has the mode of the file that it replaces and, if the system allows it, the owner. A file without write
/// permission is not replaced. A symbolic link is kept, and the file that it points to is written. Other hard links
/// keep the old contents. Anything that is not a regular file, such as a pipe, `/dev/null` or `/dev/stdout`, is written
/// to directly.
///
/// # Errors
/// [`FileError::Io`], also for an error of `write`.
pub fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), FileError> {
    let written = destination(path).and_then(|destination| match destination {
        Destination::Stream(mut stream) => write_to(&mut *stream, write),
        Destination::File { path, replaced } => put(&path, replaced.as_ref(), write),
    });
    written.map_err(|source| FileError::io(path, "written", source))
}

enum Destination {
    Stream(Box<dyn Write>),
    File { path: PathBuf, replaced: Option<Metadata> },
}

/// Decides how to write to a path: as a stream, or by replacing a file.
fn destination(path: &Path) -> io::Result<Destination> {
    // If it is a file, everything written to it before must stay.
    if is_standard_output(path) {
        return Ok(Destination::Stream(Box::new(io::stdout())));
    }
    let there = match OpenOptions::new().write(true).open(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Destination::File { path: end_of_links(path), replaced: None });
        }
        Err(error) => return Err(error),
    };
    let found = there.metadata()?;
    Ok(match found.is_file() {
        true => Destination::File { path: fs::canonicalize(path)?, replaced: Some(found) },
        false => Destination::Stream(Box::new(there)),
    })
}

/// Returns whether this path is one of the system's names for standard output.
pub fn is_standard_output(path: &Path) -> bool {
    ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// Returns the missing file that symbolic links lead to.
fn end_of_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    while let Ok(target) = fs::read_link(&path) {
        path = folder_of(&path).join(target);
    }
    path
}

fn put(
    path: &Path,
    replaced: Option<&Metadata>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let folder = folder_of(path);
    let temporary = Temporary::new(folder, replaced.is_some())?;
    write_to(temporary.file(), write)?;
    if let Some(replaced) = replaced {
        take_over_rights(temporary.file(), replaced);
    }
    temporary.file().sync_all()?;
    temporary.move_to(path)?;
    // On systems where a folder can be synced, this also writes the name to the disk.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

fn write_to(out: impl Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    write(&mut out)?;
    out.flush()
}

/// Gives a new file the owner, the group and the mode of the file that it replaces. Until then it is accessible only to
/// its owner, and stays so on a file system without modes.
#[cfg(unix)]
fn take_over_rights(file: &File, replaced: &Metadata) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

    let mut mode = replaced.mode() & 0o777;
    let (owner, group) = (Some(replaced.uid()), Some(replaced.gid()));
    let is_of_group = fchown(file, owner, group).or_else(|_| fchown(file, None, group)).is_ok();
    if !is_of_group {
        mode = mode & 0o707 | (mode & 0o007) << 3; // another group must not get the permissions of the old one
    }
    let _ = file.set_permissions(PermissionsExt::from_mode(mode));
}

#[cfg(not(unix))]
fn take_over_rights(file: &File, replaced: &Metadata) {
    let _ = file.set_permissions(replaced.permissions());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_and_the_folder_that_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no/such/file");
        let error = write_whole(&path, |_| Ok(())).unwrap_err().to_string();
        let missing = folder.path().join("no/such");
        let expected =
            format!("{}: cannot be written: the folder {} does not exist", path.display(), missing.display());
        assert_eq!(error, expected);
    }
}
