//! A second process, for memory between processes: this program again, with a variable in its environment. Where it
//! would begin to run the suite, it obeys commands over a socket instead.
#![allow(unsafe_code)] // `Accelerator::import`

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use accelerator_core::{Accelerator, AllocatorConfig, Buffer, MemoryHandle, Result};

use crate::erased::{AnyBackend, Opener};
use crate::faulty::Faulty;
use crate::outcome::Failure;

/// The name of the suite, and that of the socket.
const VARIABLE: &str = "ACCELERATOR_CONFORMANCE_OTHER_PROCESS";
/// Each step takes milliseconds, but the program has to start first.
const PATIENCE: Duration = Duration::from_secs(60);

/// The second process. Dropping this kills it.
pub(crate) struct OtherProcess {
    child: Child,
    socket: UnixStream,
}

impl OtherProcess {
    /// Starts a process that has opened the first device of the suite's backend.
    pub(crate) fn start(suite: &str, settings: &str) -> Result<Self, Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("accelerator-conformance-{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        let mut command = Command::new(env::current_exe()?);
        command.args(env::args_os().skip(1)).env(VARIABLE, format!("{suite}\n{name}\n{settings}"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let start = Instant::now();
        let socket = loop {
            match listener.accept() {
                Ok((socket, _)) => break socket,
                Err(_) if start.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(_) => {
                    let _ = child.kill(); // it may have ended
                    let ended = child.wait()?;
                    let why = format!("the second process did not answer, and ended with {ended}");
                    return Err(Failure::NotAsked(why));
                }
            }
        };
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { child, socket })
    }

    /// Sends a command and returns the answer.
    ///
    /// # Errors
    /// The text of the error with which the command failed there.
    pub(crate) fn ask(&mut self, command: &str) -> Result<String, String> {
        self.tell(command)?;
        self.answer()
    }

    pub(crate) fn tell(&mut self, command: &str) -> Result<(), String> {
        self.socket.write_all(format!("{command}\n").as_bytes()).map_err(|error| error.to_string())
    }

    pub(crate) fn answer(&mut self) -> Result<String, String> {
        let answer = line(&mut self.socket).ok_or("the second process ended, or is stuck")?;
        match answer.split_once(' ') {
            Some(("ok", text)) => Ok(text.to_owned()),
            _ => Err(answer),
        }
    }

    /// Returns the socket, over which a handle may be sent after the command `receive`.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.kill(); // it may have ended
    }
}

/// Returns the handle that consists of these digits.
pub(crate) fn handle(digits: &str) -> MemoryHandle {
    let digit = |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).filter_map(digit).collect();
    MemoryHandle::from_bytes(&bytes)
}

pub(crate) fn digits(handle: &MemoryHandle) -> String {
    handle.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a line, byte by byte: what comes behind it may be a handle.
fn line(socket: &mut UnixStream) -> Option<String> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        socket.read_exact(&mut byte).ok()?;
        if byte == *b"\n" {
            return String::from_utf8(line).ok();
        }
        line.extend(byte);
    }
}

/// Returns whether a suite started this process, as the other one of its cases about memory between processes. A
/// program that prepares its driver before it runs the suite, for example so that calls fail, does not do that here.
pub fn is_other_process() -> bool {
    env::var_os(VARIABLE).is_some()
}

/// If this is the second process of a suite, obeys the first one, and ends the process.
pub(crate) fn obey_if_asked(suite: &str, opener: Opener) {
    let Ok(asked) = env::var(VARIABLE) else { return };
    let mut parts = asked.splitn(3, '\n');
    if let (Some(asked), Some(socket), Some(settings)) = (parts.next(), parts.next(), parts.next())
        && asked == suite
    {
        process::exit(match obey(socket, settings, opener) {
            Ok(()) => 0,
            Err(failure) => {
                eprintln!("the second process of `{suite}`: {}", failure.text());
                1
            }
        });
    }
}

/// Obeys commands until the first process ends.
fn obey(socket: &str, settings: &str, opener: Opener) -> Result<(), Failure> {
    let driver = Faulty::new(opener.open(0)?);
    let device = Accelerator::new(driver, 0, AllocatorConfig::default().updated(settings)?)?;
    let socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(socket)?)?;
    let mut servant = Servant { device, socket, buffers: BTreeMap::new() };
    while let Some(command) = line(&mut servant.socket) {
        let answer = match servant.command(&command) {
            Ok(answer) => format!("ok {answer}\n"),
            Err(failure) => format!("{}\n", failure.text().replace('\n', " ")),
        };
        servant.socket.write_all(answer.as_bytes())?;
    }
    Ok(())
}

struct Servant {
    device: &'static Accelerator<Faulty<AnyBackend>>,
    socket: UnixStream,
    buffers: BTreeMap<String, Buffer<Faulty<AnyBackend>>>,
}

impl Servant {
    fn command(&mut self, command: &str) -> Result<String, Failure> {
        let words: Vec<&str> = command.split(' ').collect();
        let (device, stream) = (self.device, self.device.default_stream());
        match words[..] {
            // Imports the memory with this handle under a name.
            ["import", name, digits] => {
                // SAFETY: The first process waits for the answer to each command, and so for all work here.
                let buffer = unsafe { device.import(&handle(digits), stream) }?;
                self.keep(name, buffer)
            }
            // Imports the memory whose handle comes over the socket.
            ["receive", name] => {
                // SAFETY: As above.
                let buffer = unsafe { device.import_from(&self.socket, stream) }?;
                self.keep(name, buffer)
            }
            // Shares new memory of this length, all of whose bytes have this value. Answers with the handle.
            ["share", name, len, value] => {
                let mut buffer = device.allocate(len.parse()?, stream)?;
                buffer.fill(value.parse()?, stream)?;
                stream.synchronize()?;
                let handle = buffer.share()?;
                self.keep(name, buffer)?;
                Ok(digits(&handle))
            }
            ["fill", name, value] => {
                self.buffer(name)?.fill(value.parse()?, stream)?;
                stream.synchronize()?;
                Ok(String::new())
            }
            // Answers with the value of all bytes.
            ["read", name] => {
                let buffer = self.buffer(name)?;
                let mut bytes = vec![0; buffer.len() as usize];
                buffer.read(0, &mut bytes, stream)?;
                let first = bytes.first().copied().unwrap_or_default();
                let other = bytes.iter().position(|byte| *byte != first);
                Ok(other.map_or(first.to_string(), |at| format!("{first}, but {} at byte {at}", bytes[at])))
            }
            ["drop", name] => {
                self.buffers.remove(name);
                Ok(String::new())
            }
            // Answers with the number of allocations and imports of the driver, after the cache has gone back.
            ["left"] => {
                device.allocator().empty_cache()?;
                Ok(device.backend().live_allocations().to_string())
            }
            // Answers with the number of sockets that are open.
            ["sockets"] => {
                let open =
                    fs::read_dir("/proc/self/fd")?.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
                let sockets = open.filter(|target| target.to_string_lossy().starts_with("socket:"));
                Ok(sockets.count().to_string())
            }
            _ => Err(format!("there is no command `{command}`").into()),
        }
    }

    fn keep(&mut self, name: &str, buffer: Buffer<Faulty<AnyBackend>>) -> Result<String, Failure> {
        let len = buffer.len();
        self.buffers.insert(name.to_owned(), buffer);
        Ok(len.to_string())
    }

    fn buffer(&mut self, name: &str) -> Result<&mut Buffer<Faulty<AnyBackend>>, Failure> {
        self.buffers.get_mut(name).ok_or_else(|| format!("there is no buffer `{name}`").into())
    }
}
