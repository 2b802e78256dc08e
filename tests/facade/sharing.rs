//! Random programs of two processes that share memory: no byte is handed out while the other process may use it.
//!
//! Each process allocates, writes, shares, imports, reads and drops buffers on a host device of its own, near the end
//! of its memory. A model has the value of each buffer's bytes. Work is awaited only where the other process comes
//! next.
#![allow(unsafe_code)] // `fork`, and imports

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::mem::{self, ManuallyDrop};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::sleep;
use std::time::{Duration, Instant};

use accelerator::core::{Accelerator, Buffer, MemoryHandle};
use accelerator::host::Host;
use accelerator::{Error, KIB, MIB};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::cases;
use crate::process::{SETTINGS, device_of, processes};

const CAPACITY: u64 = 48 * MIB;

/// How long a child lives that the second process forks.
const CHILD_LIVES: Duration = Duration::from_secs(10);

/// The command to end the second process.
const END: &str = "end";

/// Settings that change while memory is shared.
const CHANGES: [&str; 4] =
    ["expandable_segments:True", "expandable_segments:False", "policy:compact", "policy:pytorch"];

/// A step of one of the two processes. Buffers are chosen by a number modulo the number of those that exist.
#[derive(Clone, Debug)]
enum Step {
    Allocate {
        at: usize,
        bytes: u64,
        value: u8,
    },
    Write {
        nth: usize,
        value: u8,
    },
    Read(usize),
    /// The other process imports the buffer, unless it is an import itself, which cannot be shared.
    Share(usize),
    Drop(usize),
    EmptyCache(usize),
    Set {
        at: usize,
        setting: &'static str,
    },
    /// The second process ends at once, and another one takes its place.
    End,
}

fn step() -> impl Strategy<Value = Step> {
    let (at, nth, value) = (0..2_usize, 0..1000_usize, 1_u8..=255);
    let bytes = prop_oneof![select(vec![512, 40 * KIB, 300 * KIB, MIB, 3 * MIB]), 1..5000_u64, MIB..16 * MIB,];
    prop_oneof![
        8 => (at.clone(), bytes, value.clone()).prop_map(|(at, bytes, value)| Step::Allocate { at, bytes, value }),
        4 => (nth.clone(), value).prop_map(|(nth, value)| Step::Write { nth, value }),
        4 => nth.clone().prop_map(Step::Read),
        5 => nth.clone().prop_map(Step::Share),
        7 => nth.prop_map(Step::Drop),
        1 => at.clone().prop_map(Step::EmptyCache),
        3 => (at, select(&CHANGES)).prop_map(|(at, setting)| Step::Set { at, setting }),
        1 => Just(Step::End),
    ]
}

/// What one process has. It obeys commands, which are words.
struct Side {
    device: &'static Accelerator<Host>,
    buffers: BTreeMap<String, Buffer<Host>>,
}

impl Side {
    fn open(settings: &str) -> Self {
        Self { device: device_of(settings, CAPACITY), buffers: BTreeMap::new() }
    }

    fn obey(&mut self, command: &str) -> String {
        let (device, stream) = (self.device, self.device.default_stream());
        match *command.split(' ').collect::<Vec<_>>() {
            ["allocate", name, bytes] => match device.allocate(bytes.parse().unwrap(), stream) {
                Ok(buffer) => return self.keep(name, buffer),
                Err(Error::OutOfMemory(_)) => return "there is no memory".to_owned(),
                Err(error) => panic!("{error}"),
            },
            ["write", name, value] => self.buffer(name).fill(value.parse().unwrap(), stream).unwrap(),
            ["read", name] => return self.read(name),
            // An import cannot be shared.
            ["share", name] => {
                return self.buffer(name).share().map_or_else(|_| String::new(), |handle| digits(&handle));
            }
            ["import", name, digits] => {
                // SAFETY: The coordinator waits for the work of one process before the other one works.
                let buffer = unsafe { device.import(&handle(digits), stream) }.unwrap();
                return self.keep(name, buffer);
            }
            ["drop", name] => drop(self.buffers.remove(name)),
            // It keeps the descriptors of this process, of which it needs none.
            ["fork"] => {
                // SAFETY: The child only sleeps.
                if unsafe { libc::fork() } == 0 {
                    sleep(CHILD_LIVES);
                    // SAFETY: Ends the child without running the parent's destructors, and without freeing anything.
                    unsafe { libc::_exit(0) };
                }
            }
            ["imports", name] => return self.buffer(name).imports().to_string(),
            ["synchronize"] => device.synchronize().unwrap(),
            ["empty_cache"] => device.allocator().empty_cache().unwrap(),
            ["set", setting] => {
                device.allocator().set_config(device.allocator().config().updated(setting).unwrap());
            }
            ["left"] => {
                device.allocator().empty_cache().unwrap();
                let statistics = device.allocator().statistics();
                let left = [statistics.allocated_bytes, statistics.reserved_bytes].map(|bytes| bytes.all.current);
                return format!("{left:?}");
            }
            _ => unreachable!("there is no command `{command}`"),
        }
        String::new()
    }

    fn keep(&mut self, name: &str, buffer: Buffer<Host>) -> String {
        self.buffers.insert(name.to_owned(), buffer);
        String::new()
    }

    fn buffer(&mut self, name: &str) -> &mut Buffer<Host> {
        self.buffers.get_mut(name).unwrap()
    }

    /// Returns the value of all bytes.
    fn read(&mut self, name: &str) -> String {
        let (stream, buffer) = (self.device.default_stream(), self.buffer(name));
        let mut bytes = vec![0; buffer.len() as usize];
        buffer.read(0, &mut bytes, stream).unwrap();
        let is_one_value = bytes[1..] == bytes[..bytes.len() - 1]; // slices, since a loop is slow in debug builds
        if is_one_value { bytes[0].to_string() } else { "several values".to_owned() }
    }
}

fn digits(handle: &MemoryHandle) -> String {
    handle.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn handle(digits: &str) -> MemoryHandle {
    let pairs = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
    MemoryHandle::from_bytes(&pairs.collect::<Vec<_>>())
}

/// A connection to the second process.
struct Other(BufReader<UnixStream>);

impl Other {
    /// Starts a process that forks a second process whenever it reads settings, and says when that has ended. It has no
    /// threads and no devices, which a forked process could not use.
    fn start() -> Self {
        let (socket, its_socket) = UnixStream::pair().unwrap();
        forked(|| {
            let mut asked = Self(BufReader::new(its_socket));
            while let Some(settings) = asked.line() {
                let mut status = 0;
                if settings != END {
                    let process = forked(|| asked.obey(&settings));
                    // SAFETY: The call writes a number.
                    unsafe { libc::waitpid(process, &mut status, 0) };
                }
                asked.tell(&format!("the process ended with {status}"));
            }
        });
        Self(BufReader::new(socket))
    }

    /// Obeys until it is told to end, which it does with all its buffers and imports.
    fn obey(&mut self, settings: &str) {
        let mut side = ManuallyDrop::new(Side::open(settings));
        self.tell("");
        while let Some(command) = self.line().filter(|command| command != END) {
            let answer = side.obey(&command);
            self.tell(&answer);
        }
    }

    fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.line().unwrap()
    }

    fn tell(&mut self, text: &str) {
        writeln!(self.0.get_mut(), "{text}").unwrap();
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).unwrap();
        (read > 0).then(|| line.trim_end().to_owned())
    }
}

/// Runs a function in a forked process, which then ends at once. Returns its number.
fn forked(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: This process has no thread that works.
    let process = unsafe { libc::fork() };
    if process == 0 {
        // SAFETY: Ends the child when the thread that forked it ends.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let done = catch_unwind(AssertUnwindSafe(child));
        // SAFETY: Ends the child without running the parent's destructors, and without freeing anything.
        unsafe { libc::_exit(done.is_err().into()) };
    }
    process
}

/// A buffer of one of the processes.
struct Held {
    at: usize,
    name: String,
    is_imported: bool,
    /// Which bytes these are: an import has those of another buffer.
    bytes: usize,
}

/// Two processes, and what the bytes of their buffers must be.
struct Pair<'a> {
    here: Side,
    there: &'a mut Other,
    settings: &'static str,
    held: Vec<Held>,
    values: Vec<u8>,
    names: u64,
    /// Whether a process may have work that it has not waited for.
    works: [bool; 2],
}

impl<'a> Pair<'a> {
    fn new(there: &'a mut Other, settings: &'static str) -> Self {
        there.ask(END); // a program that failed has not done so
        assert_eq!(there.ask(settings), "");
        let here = Side::open(settings);
        Self { here, there, settings, held: Vec::new(), values: Vec::new(), names: 0, works: [false; 2] }
    }

    fn ask(&mut self, at: usize, command: &str) -> String {
        if at == 0 { self.here.obey(command) } else { self.there.ask(command) }
    }

    /// Waits for the work of the other process.
    fn turn_of(&mut self, at: usize) {
        if mem::take(&mut self.works[1 - at]) {
            self.ask(1 - at, "synchronize");
        }
    }

    fn new_name(&mut self) -> String {
        self.names += 1;
        self.names.to_string()
    }

    fn chosen(&self, nth: usize) -> Option<usize> {
        nth.checked_rem(self.held.len())
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Allocate { at, bytes, value } => {
                let name = self.new_name();
                if self.ask(at, &format!("allocate {name} {bytes}")).is_empty() {
                    self.held.push(Held { at, name, is_imported: false, bytes: self.values.len() });
                    self.values.push(0);
                    self.write(self.held.len() - 1, value);
                }
            }
            Step::Write { nth, value } => self.chosen(nth).into_iter().for_each(|nth| self.write(nth, value)),
            Step::Read(nth) => self.chosen(nth).into_iter().for_each(|nth| self.read(nth)),
            Step::Share(nth) => self.chosen(nth).into_iter().for_each(|nth| self.share(nth)),
            Step::Drop(nth) => {
                if let Some(nth) = self.chosen(nth) {
                    let Held { at, name, .. } = self.held.swap_remove(nth);
                    self.ask(at, &format!("drop {name}"));
                }
            }
            Step::EmptyCache(at) => drop(self.ask(at, "empty_cache")),
            Step::Set { at, setting } => drop(self.ask(at, &format!("set {setting}"))),
            Step::End => {
                self.turn_of(0);
                self.end_other();
                self.held.retain(|held| held.at == 0);
                assert_eq!(self.there.ask(self.settings), "");
            }
        }
    }

    fn write(&mut self, nth: usize, value: u8) {
        let Held { at, ref name, bytes, .. } = self.held[nth];
        let command = format!("write {name} {value}");
        self.turn_of(at);
        self.ask(at, &command);
        self.works[at] = true;
        self.values[bytes] = value;
    }

    fn read(&mut self, nth: usize) {
        let Held { at, ref name, bytes, .. } = self.held[nth];
        let command = format!("read {name}");
        self.turn_of(at);
        let (answer, expected) = (self.ask(at, &command), self.values[bytes].to_string());
        assert_eq!(answer, expected, "process {at}: what was read, and what was written");
    }

    fn share(&mut self, nth: usize) {
        let Held { at, ref name, is_imported, bytes } = self.held[nth];
        let command = format!("share {name}");
        let handle = self.ask(at, &command);
        assert_eq!(handle.is_empty(), is_imported, "whether a buffer can be shared");
        if !is_imported {
            let name = self.new_name();
            let failed = self.ask(1 - at, &format!("import {name} {handle}"));
            assert_eq!(failed, "");
            self.held.push(Held { at: 1 - at, name, is_imported: true, bytes });
        }
    }

    fn end_other(&mut self) {
        assert_eq!(self.there.ask(END), "the process ended with 0");
    }

    /// Reads and drops everything, and checks that nothing is left. A process learns later that an import has ended.
    fn finish(mut self) {
        (0..self.held.len()).for_each(|nth| self.read(nth));
        while !self.held.is_empty() {
            self.step(&Step::Drop(0));
        }
        for at in 0..2 {
            let is_left = |pair: &mut Self| pair.ask(at, "left") != "[0, 0]";
            let waits = (0..2000).take_while(|_| is_left(&mut self)).inspect(|_| sleep(Duration::from_millis(10)));
            assert!(
                waits.count() < 2000,
                "process {at}: allocated and reserved bytes are left: {}",
                self.ask(at, "left")
            );
        }
        self.end_other();
    }
}

processes! { on_host:
    fn processes_never_share_a_byte_that_neither_shared() {
        let other = std::cell::RefCell::new(Other::start());
        cases::check("sharing", 60, (select(&SETTINGS[..]), vec(step(), 1..120)), |(settings, steps)| {
            let mut other = other.borrow_mut();
            let mut pair = Pair::new(&mut other, settings);
            steps.iter().for_each(|step| pair.step(step));
            pair.finish();
        });
    }

    // The child kept the connection open, so the import went on.
    fn an_import_ends_with_its_process_although_a_child_of_that_lives() {
        let mut other = Other::start();
        let mut pair = Pair::new(&mut other, "");
        pair.step(&Step::Allocate { at: 0, bytes: MIB, value: 1 });
        pair.step(&Step::Share(0));
        let imports = format!("imports {}", pair.held[0].name);
        assert_eq!(pair.ask(0, &imports), "1");
        pair.ask(1, "fork");
        pair.end_other();
        let began = Instant::now();
        while pair.ask(0, &imports) != "0" {
            assert!(began.elapsed() < CHILD_LIVES / 2, "the import goes on");
            sleep(Duration::from_millis(10));
        }
    }
}
