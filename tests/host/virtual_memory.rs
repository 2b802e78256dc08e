//! Virtual memory of the host, checked against the system's own records.
#![allow(unsafe_code)] // calls methods of `VirtualMemory`
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one proof for the steps of one mapping")]

use std::fs;
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;

use accelerator_core::{Backend, DevicePtr, DriverErrorKind, GIB, MIB, Place, StreamKind, VirtualMemory};
use accelerator_host::{Host, HostPtr};

const PAGE: NonZeroU64 = NonZeroU64::new(2 * MIB).unwrap();

fn pages(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count * PAGE.get()).unwrap()
}

fn pager(host: &Host) -> &dyn VirtualMemory<HostPtr> {
    host.virtual_memory().unwrap()
}

fn free(host: &Host) -> u64 {
    host.memory_info().unwrap().free
}

/// A line of `/proc/self/maps`.
struct Mapping {
    start: u64,
    end: u64,
    permissions: String,
    /// The inode of its file.
    file: u64,
}

fn mappings() -> Vec<Mapping> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mappings = maps.lines().map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        let permissions = fields.next().unwrap().to_owned();
        Mapping { start, end, permissions, file: fields.nth(2).unwrap().parse().unwrap() }
    });
    mappings.collect()
}

/// Returns the permissions at this address, and the inode of the file.
fn mapping(at: HostPtr) -> (String, u64) {
    let at = at.trace_address();
    let found = mappings().into_iter().find(|mapping| (mapping.start..mapping.end).contains(&at)).unwrap();
    (found.permissions, found.file)
}

/// More than anything else here reserves, so that no other mapping is mistaken for it.
const RESERVED: NonZeroU64 = NonZeroU64::new(6 * GIB).unwrap();

/// Whether this whole range is reserved but inaccessible.
fn is_reserved(at: HostPtr) -> bool {
    let (start, end) = (at.trace_address(), at.offset(RESERVED.get()).trace_address());
    let closed = mappings().into_iter().filter(|mapping| mapping.permissions == "---p");
    let bytes = closed.map(|mapping| mapping.end.min(end).saturating_sub(mapping.start.max(start)));
    bytes.sum::<u64>() == RESERVED.get()
}

/// Returns the resident bytes of the file mapped at this address.
fn resident(at: HostPtr) -> u64 {
    let (_, number) = mapping(at);
    open_files().find(|file| file.ino() == number).unwrap().blocks() * 512
}

fn open_files() -> impl Iterator<Item = fs::Metadata> {
    fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| fs::metadata(file.ok()?.path()).ok())
}

/// Fills mapped memory and waits.
fn fill(host: &Host, at: HostPtr, value: u8, len: NonZeroU64) {
    let stream = host.stream(StreamKind::Default).unwrap();
    // SAFETY: The test guarantees that it is mapped.
    unsafe { host.fill(at, value, len, &stream) }.unwrap();
    host.synchronize(&stream).unwrap();
}

/// Returns bytes of mapped memory.
fn read<const N: usize>(host: &Host, at: HostPtr) -> [u8; N] {
    let stream = host.stream(StreamKind::Default).unwrap();
    let mut bytes = [0; N];
    let (to, len) = (Place::Host(NonNull::from(&mut bytes).cast()), NonZeroU64::new(N as u64).unwrap());
    // SAFETY: The test guarantees that it is mapped, and waits for the bytes.
    unsafe { host.copy(to, Place::Device(at), len, &stream) }.unwrap();
    host.synchronize(&stream).unwrap();
    bytes
}

#[test]
fn one_memory_shows_the_same_bytes_at_two_addresses() {
    let host = Host::new(0, 64 * MIB);
    let memory = pager(&host);
    let start = memory.reserve(RESERVED).unwrap();
    assert!(is_reserved(start));
    let other = start.offset(pages(2).get());
    let created = memory.create(pages(2)).unwrap();
    // SAFETY: Two halves of a reservation, with the same memory. All work is complete before it is unmapped.
    unsafe {
        memory.map(start, &created).unwrap();
        memory.map(other, &created).unwrap();
        fill(&host, start, 7, pages(2));
        fill(&host, other.offset(pages(1).get()), 8, NonZeroU64::MIN);
        assert_eq!(read(&host, other), [7; 100]);
        assert_eq!(read(&host, start.offset(pages(1).get() - 1)), [7, 8, 7]);
        memory.unmap(start, pages(2)).unwrap();
        assert_eq!(read(&host, other.offset(pages(2).get() - 2)), [7; 2], "the other mapping stays");
        memory.unmap(other, pages(2)).unwrap();
        memory.destroy(created);
        memory.release(start, RESERVED);
    }
    assert_eq!((is_reserved(start), free(&host)), (false, 64 * MIB));
}

#[test]
fn memory_comes_and_goes_at_addresses_that_stay() {
    let host = Host::new(0, 64 * MIB);
    let memory = pager(&host);
    let start = memory.reserve(RESERVED).unwrap();
    let places = [0, 1, 2].map(|place| start.offset(place * PAGE.get()));
    let permissions = |at| mapping(at).0;
    assert_eq!(permissions(places[1]), "---p");
    // SAFETY: Parts of one reservation, each mapped once. All work is over when they are unmapped.
    unsafe {
        let mut mapped = places.map(|at| {
            let created = memory.create(PAGE).unwrap();
            memory.map(at, &created).unwrap();
            (at, created)
        });
        fill(&host, start, 1, pages(3)); // across the mappings
        assert_eq!(permissions(places[1]), "rw-s");
        let (hole, gone) = (mapped[1].0, std::mem::replace(&mut mapped[1].1, memory.create(PAGE).unwrap()));
        memory.unmap(hole, PAGE).unwrap();
        assert_eq!(
            (permissions(hole), permissions(places[0]), permissions(places[2])),
            ("---p".into(), "rw-s".into(), "rw-s".into())
        );
        memory.destroy(gone);
        memory.map(hole, &mapped[1].1).unwrap();
        assert_eq!(read(&host, start.offset(PAGE.get() - 1)), [1, 0], "new memory reads as 0");
        for (at, created) in mapped {
            memory.unmap(at, PAGE).unwrap();
            memory.destroy(created);
        }
        memory.release(start, RESERVED);
    }
    assert_eq!((is_reserved(start), free(&host)), (false, 64 * MIB));
}

#[test]
fn destroyed_memory_goes_back_to_the_system() {
    let host = Host::new(0, 64 * MIB);
    let memory = pager(&host);
    let start = memory.reserve(RESERVED).unwrap();
    let (low, high) = (memory.create(pages(4)).unwrap(), memory.create(pages(3)).unwrap());
    let upper = start.offset(pages(4).get());
    // SAFETY: Two parts of one reservation, each mapped once. All work is over when they are unmapped.
    unsafe {
        memory.map(start, &low).unwrap();
        memory.map(upper, &high).unwrap();
        assert_eq!(resident(start), 0, "nothing is touched");
        fill(&host, start, 1, pages(7));
        assert_eq!(resident(start), pages(7).get());
        memory.unmap(start, pages(4)).unwrap();
        assert_eq!(resident(upper), pages(7).get(), "unmapped, but still resident");
        memory.destroy(low);
        assert_eq!(resident(upper), pages(3).get());
        // The free range of the file is reused.
        let low = memory.create(pages(2)).unwrap();
        memory.map(start, &low).unwrap();
        assert_eq!((read(&host, start), read(&host, upper)), ([0; 8], [1; 8]));
        for (at, created) in [(start, low), (upper, high)] {
            memory.unmap(at, created.len).unwrap();
            memory.destroy(created);
        }
        memory.release(start, RESERVED);
    }
    assert_eq!(free(&host), 64 * MIB);
}

#[test]
fn what_there_is_not_is_told() {
    let host = Host::new(0, 10 * MIB);
    let memory = pager(&host);
    let too_long = memory.reserve(NonZeroU64::new(1 << 62).unwrap()).unwrap_err();
    assert_eq!((too_long.kind, too_long.call), (DriverErrorKind::OutOfMemory, "mmap"));
    let address_space = memory.reserve(pages(1000)).unwrap(); // costs nothing
    let created = memory.create(pages(4)).unwrap();
    let allocated = host.alloc(NonZeroU64::new(MIB).unwrap()).unwrap();
    assert_eq!(free(&host), MIB);
    let refused = memory.create(PAGE).unwrap_err();
    assert_eq!((refused.kind, refused), (DriverErrorKind::OutOfMemory, host.alloc(PAGE).unwrap_err()));
    // SAFETY: Each was created above and never used.
    unsafe {
        memory.destroy(created);
        memory.destroy(memory.create(pages(4)).unwrap());
        host.dealloc(allocated, NonZeroU64::new(MIB).unwrap());
        memory.release(address_space, pages(1000));
    }
    assert_eq!(free(&host), 10 * MIB);
    for len in [1, 4096, 3 * MIB] {
        let len = NonZeroU64::new(len).unwrap();
        for refused in [memory.reserve(len).unwrap_err(), memory.create(len).unwrap_err()] {
            assert_eq!(refused.kind, DriverErrorKind::InvalidArgument);
        }
    }
    let vast = Host::new(0, u64::MAX);
    let refused = pager(&vast).create(NonZeroU64::new(1 << 63).unwrap()).unwrap_err();
    assert_eq!((refused.kind, refused.call), (DriverErrorKind::OutOfMemory, "ftruncate"));
    assert_eq!(free(&vast), u64::MAX);
}

#[test]
fn nothing_is_left_when_the_device_goes() {
    let host = Host::new(0, 10 * GIB);
    let memory = pager(&host);
    let start = memory.reserve(RESERVED).unwrap();
    let created = memory.create(PAGE).unwrap();
    // SAFETY: A part of the reservation.
    unsafe { memory.map(start, &created) }.unwrap();
    fill(&host, start, 1, PAGE);
    let (_, file) = mapping(start);
    let open = || open_files().any(|open| open.ino() == file);
    let mapped = || mappings().iter().any(|mapping| mapping.file == file);
    assert!(open() && mapped());
    drop(host);
    assert_eq!((open(), mapped(), is_reserved(start)), (false, false, false));
}

#[test]
fn devices_that_map_nothing_keep_no_file_open() {
    let hosts: Vec<Host> = (0..100).map(|number| Host::new(number, 64 * MIB)).collect();
    assert!(hosts.iter().all(|host| host.virtual_memory().is_some()));
    let files = fs::read_dir("/proc/self/fd").unwrap();
    let names = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let in_memory = names.filter(|name| name.to_string_lossy().contains("memfd:accelerator")).count();
    assert!(in_memory < 50, "{in_memory}, including those of other tests");
}

/// Makes room for this many bytes less than the process has mapped, and returns the limit before.
fn limit_address_space(less: u64) -> libc::rlimit {
    let pages: u64 = fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: The call fills a structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut before) }, 0);
    set_limit(&libc::rlimit { rlim_cur: pages * 4096 - less, ..before });
    before
}

fn set_limit(limit: &libc::rlimit) {
    // SAFETY: The call reads a structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, limit) }, 0);
}

/// When the system refuses to move pages, it may have released the target, where others then map something else.
#[test]
fn inherited_memory_that_cannot_move_overwrites_nothing() {
    const CHILD: &str = "ACCELERATOR_CANNOT_MOVE";
    const NAME: &str = "virtual_memory::inherited_memory_that_cannot_move_overwrites_nothing";
    if std::env::var_os(CHILD).is_none() {
        // The limit is for a whole process.
        let program = std::env::current_exe().unwrap();
        let done = std::process::Command::new(program).args(["--exact", NAME]).env(CHILD, "1").output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        return;
    }
    let host = Host::open_inherited(0).unwrap();
    let (memory, len) = (pager(&host), pages(8));
    let (at, own) = (memory.reserve(len).unwrap(), memory.create(len).unwrap());
    let (home, last) = (own.handle, len.get() as usize - 1); // its address
    // SAFETY: The range is reserved and has the length of the memory. Only this thread uses it, while it is mapped.
    unsafe {
        memory.map(at, &own).unwrap();
        at.as_ptr().write(7);
        at.as_ptr().add(last).write(8);
        let before = limit_address_space(MIB);
        let refused = memory.unmap(at, len);
        set_limit(&before);
        assert!(refused.is_err());
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let place = std::ptr::with_exposed_provenance_mut(home as usize);
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        let other = libc::mmap(place, len.get() as usize, access, flags, -1, 0);
        assert_eq!(other, place, "the system released it");
        other.cast::<u8>().write(9);
        assert!(memory.unmap(at, len).is_err());
        assert_eq!((at.as_ptr().read(), at.as_ptr().add(last).read(), other.cast::<u8>().read()), (7, 8, 9));
    }
}
