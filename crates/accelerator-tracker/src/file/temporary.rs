//! Temporary files that do not stay behind, however the program ends.
//!
//! On Linux they have no name while they are written, so they vanish with the program. A new file needs a temporary
//! name only if it replaces another one, and only for the moment of the move, since no system can replace a file with a
//! nameless one. On other systems, and on file systems without nameless files, temporary files have names. A program
//! that a signal ends removes them with [`remove_temporary_files`].

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use accelerator_core::backend_kit::lock;
use tempfile::{NamedTempFile, TempPath};

/// The temporary names in use. A thread that creates a name holds the lock until the name is in the set or removed.
static NAMES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Creates a file in the system's folder for temporary files. It vanishes when it is closed.
///
/// # Errors
/// Errors of the system.
pub fn temporary_file() -> io::Result<File> {
    let _names = names(); // if it cannot be created without a name, it has one for a moment
    tempfile::tempfile()
}

/// A name in the system's folder for temporary files, for a file that something else creates. When this is dropped, the
/// file loses its name, and vanishes when it is closed. Until then, [`remove_temporary_files`] waits, and the thread
/// must not create other temporary files.
#[derive(Debug)]
pub struct TemporaryName {
    /// Removed when this is dropped, before the lock ends.
    path: TempPath,
    _names: MutexGuard<'static, BTreeSet<PathBuf>>,
}

impl TemporaryName {
    /// Chooses a name that no file has.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn new() -> io::Result<Self> {
        let names = names();
        let unused = |path: &Path| match path.symlink_metadata() {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => Ok(()),
        };
        let path = beside(&std::env::temp_dir(), unused)?.into_temp_path();
        Ok(Self { path, _names: names })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes all temporary files that have a name, for a program that a signal is about to end. Afterwards no temporary
/// files can be created: threads that try wait forever.
pub fn remove_temporary_files() {
    let names = names();
    for name in &*names {
        let _ = fs::remove_file(name); // there is nowhere to report an error
    }
    std::mem::forget(names);
}

/// A file that gets its name when it is complete.
pub(super) enum Temporary {
    #[cfg(target_os = "linux")]
    Unnamed(File),
    Named(NamedTempFile<File>, Registered),
}

/// A name in [`NAMES`].
pub(super) struct Registered(PathBuf);

impl Temporary {
    /// Creates a file in this folder, either accessible only to the owner or with the default mode of new files.
    ///
    /// # Errors
    /// Errors of the system. The message contains the folder.
    pub(super) fn new(folder: &Path, is_private: bool) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Some(file) = unnamed(folder, is_private) {
            return Ok(Self::Unnamed(file));
        }
        Self::named(folder, is_private).map_err(|error| no_new_file(folder, &error))
    }

    fn named(folder: &Path, is_private: bool) -> io::Result<Self> {
        let mut names = names();
        let file = beside(folder, |name| create(name, is_private))?;
        names.insert(file.path().to_owned());
        let registered = Registered(file.path().to_owned());
        Ok(Self::Named(file, registered))
    }

    pub(super) fn file(&self) -> &File {
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => file,
            Self::Named(file, _) => file.as_file(),
        }
    }

    /// Gives the file its name, in the folder in which it was created. An existing file with this name is replaced.
    ///
    /// # Errors
    /// Errors of the system. Nothing has then changed.
    pub(super) fn move_to(self, path: &Path) -> io::Result<()> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file) => match link(&file, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let _names = names(); // until the temporary name is gone again
                    beside(folder_of(path), |name| link(&file, name))?.persist(path)?;
                    Ok(())
                }
                linked => linked,
            },
            Self::Named(file, _registered) => {
                let _names = names();
                file.persist(path)?;
                Ok(())
            }
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        names().remove(&self.0);
    }
}

/// Returns the folder of a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn names() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    lock(&NAMES)
}

/// Creates something under an unused temporary name.
fn beside<R>(folder: &Path, make: impl FnMut(&Path) -> io::Result<R>) -> io::Result<NamedTempFile<R>> {
    tempfile::Builder::new().prefix(".accelerator-").suffix(".part").make_in(folder, make)
}

fn create(path: &Path, is_private: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode(is_private));
    #[cfg(not(unix))]
    let _ = is_private;
    options.write(true).create_new(true).open(path)
}

/// Returns the mode of a new file, before the umask is applied.
#[cfg(unix)]
fn mode(is_private: bool) -> u32 {
    if is_private { 0o600 } else { 0o666 }
}

/// Creates a nameless file. Returns `None` if the system or the file system has no nameless files that can be given a
/// name.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path, is_private: bool) -> Option<File> {
    use rustix::fs::{Mode, OFlags};

    let mode = Mode::from_raw_mode(mode(is_private));
    let file = File::from(rustix::fs::open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode).ok()?);
    handle(&file).exists().then_some(file)
}

#[cfg(target_os = "linux")]
fn link(file: &File, path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD};

    Ok(rustix::fs::linkat(CWD, handle(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

/// Returns a path by which this process can reach an open file.
#[cfg(target_os = "linux")]
fn handle(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;

    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn no_new_file(folder: &Path, error: &io::Error) -> io::Error {
    let shown = accelerator_core::printable(folder);
    let text = match folder.try_exists() {
        Ok(false) => format!("the folder {shown} does not exist"),
        _ => format!("cannot create a file in the folder {shown}: {error}"),
    };
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn entries(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn both_kinds_take_the_place_of_a_file_and_leave_nothing_beside_it() {
        for make in [Temporary::new, Temporary::named] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            for text in ["new", "replaced"] {
                let temporary = make(folder.path(), false).unwrap();
                temporary.file().write_all(text.as_bytes()).unwrap();
                temporary.move_to(&path).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
                drop(make(folder.path(), false).unwrap());
                assert_eq!(entries(folder.path()), ["file"]);
            }
            let missing = folder.path().join("missing/file");
            assert!(make(folder.path(), false).unwrap().move_to(&missing).is_err());
            assert_eq!(entries(folder.path()), ["file"]);
        }
    }

    #[test]
    fn a_file_of_something_else_loses_its_name() {
        let name = TemporaryName::new().unwrap();
        let path = name.path().to_owned();
        assert!(!path.exists());
        let mut file = File::options().write(true).create_new(true).open(&path).unwrap();
        drop(name);
        assert!(!path.exists());
        file.write_all(b"it still takes bytes").unwrap();
    }

    /// Set in a child process, because no names can be created in it afterwards.
    const CHILD: &str = "ACCELERATOR_TRACKER_ENDS_IN";

    #[test]
    fn a_program_that_a_signal_ends_left_names() {
        if let Some(folder) = std::env::var_os(CHILD) {
            let _left = Temporary::named(Path::new(&folder), false).unwrap();
            assert_eq!(entries(Path::new(&folder)).len(), 1);
            remove_temporary_files();
            std::process::exit(77); // nothing is dropped, as with a signal
        }
        let folder = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "file::temporary::tests::a_program_that_a_signal_ends_left_names";
        let ended = child.args(["--exact", name]).env(CHILD, folder.path()).output().unwrap();
        assert_eq!(ended.status.code(), Some(77), "{ended:?}");
        assert_eq!(entries(folder.path()), [""; 0]);
    }

    #[test]
    #[cfg(unix)]
    fn both_kinds_have_the_rights_of_a_new_file_or_are_private() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let ordinary = File::create(folder.path().join("ordinary")).unwrap().metadata().unwrap().permissions();
        for make in [Temporary::new, Temporary::named] {
            let mode = |is_private| {
                let temporary = make(folder.path(), is_private).unwrap();
                temporary.file().metadata().unwrap().permissions().mode()
            };
            assert_eq!((mode(false), mode(true) & 0o777), (ordinary.mode(), 0o600));
        }
    }
}
