//! N, memory between processes: cases 156 to 159. A second process runs the same program.
#![allow(unsafe_code)] // `Accelerator::import`

use std::time::{Duration, Instant};

use accelerator_core::{Backend, Buffer, Error, KIB, MIB, MemPool, MemPoolOptions, MemoryHandle, SharingProblem};

use super::captures;
use super::context::{Device, Driver, holds};
use super::{Case, Context, INTERPROCESS, Outcome};
use crate::calls::Call;
use crate::other_process::{OtherProcess, digits, handle};
use crate::outcome::Failure;
use crate::suite::Capability;

pub(super) fn cases() -> Vec<Case> {
    let cases = [
        Case::new(156, "both_processes_see_the_same_bytes", both_processes_see_the_same_bytes),
        Case::new(157, "memory_stays_until_its_imports_end", memory_stays_until_its_imports_end),
        Case::new(158, "either_process_may_be_killed", either_process_may_be_killed),
        Case::new(159, "bad_handles_are_errors", bad_handles_are_errors),
    ];
    cases.map(|case| case.needs(INTERPROCESS).of_any_policy()).into()
}

/// The sizes of the shared buffers: several of one small segment, and several pages.
const SIZES: [u64; 4] = [100, 300 * KIB, 3 * MIB + 512, 50 * MIB + 3];

/// Settings under which memory comes from the driver in another way.
fn settings(context: &Context) -> &'static [&'static str] {
    if context.is_compact() || !context.shares_virtual_memory() { &[""] } else { &["", "expandable_segments:True"] }
}

/// Starts a second process with the same settings.
fn other(context: &Context, settings: &str) -> Result<OtherProcess, Failure> {
    let policy = if context.is_compact() { "policy:compact" } else { "policy:pytorch" };
    let settings = if settings.is_empty() { policy.to_owned() } else { format!("{policy},{settings}") };
    OtherProcess::start(context.suite(), &settings)
}

fn expect(other: &mut OtherProcess, command: &str, answer: &str, sentence: &str) -> Outcome {
    match other.ask(command) {
        Ok(got) if got == answer => Ok(()),
        Ok(got) | Err(got) => Err(format!("{sentence}, but `{command}` gave `{got}` and not `{answer}`").into()),
    }
}

/// Waits until a buffer has this many imports.
fn imports_become(buffer: &Buffer<Driver>, expected: usize) -> Outcome {
    becomes(|| buffer.imports() == expected)
        .ok_or_else(|| format!("{} imports are counted, and not {expected}", buffer.imports()).into())
}

fn becomes(mut condition: impl FnMut() -> bool) -> Option<()> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > Duration::from_secs(20) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Some(())
}

fn allocated(device: Device) -> i64 {
    device.statistics().allocated_bytes.all.current
}

/// The number of exports so far, of segments and of pages.
fn exports(device: Device) -> [u64; 2] {
    [Call::Export, Call::ExportPages].map(|call| device.calls(call))
}

fn both_processes_see_the_same_bytes(context: &Context) -> Outcome {
    for settings in settings(context) {
        let device = context.device_with(512 * MIB, settings)?;
        let stream = device.default_stream();
        let mut other = other(context, settings)?;
        let sockets = other.ask("sockets")?;
        let mut buffers = Vec::new();
        for (number, size) in SIZES.into_iter().enumerate() {
            let value = number as u8 + 1;
            let mut buffer = device.filled(size, value)?;
            let handle = buffer.share()?;
            assert_eq!(handle, buffer.share()?, "a buffer has one handle");
            assert!(handle.as_bytes().len() <= 64);
            if number % 2 == 0 {
                expect(&mut other, &format!("import {number} {}", digits(&handle)), &size.to_string(), "it imports")?;
            } else {
                other.tell(&format!("receive {number}"))?;
                handle.send(other.socket()).map_err(|problem| Error::Sharing { device: device.device(), problem })?;
                assert_eq!(other.answer()?, size.to_string());
            }
            expect(
                &mut other,
                &format!("read {number}"),
                &value.to_string(),
                "`import` opens the memory of `export`: it reads what is written here",
            )?;
            imports_become(&buffer, 1)?;
            buffers.push(buffer);
        }
        let exported = exports(device);
        for (number, buffer) in buffers.iter_mut().enumerate() {
            expect(&mut other, &format!("fill {number} {}", number + 101), "", "it writes")?;
            holds(buffer, number as u8 + 101, stream, "this process reads what the other one wrote")?;
            buffer.fill(number as u8 + 201, stream)?;
            stream.synchronize()?;
            expect(&mut other, &format!("read {number}"), &(number + 201).to_string(), "it reads what is written now")?;
            // Twice, in the same process.
            let command = format!("import again {}", digits(&buffer.share()?));
            expect(&mut other, &command, &buffer.len().to_string(), "it imports a second time")?;
            expect(&mut other, "read again", &(number + 201).to_string(), "both imports have the same bytes")?;
            imports_become(buffer, 2)?;
            expect(&mut other, "drop again", "", "it ends the second import")?;
            expect(&mut other, &format!("read {number}"), &(number + 201).to_string(), "the first import stays")?;
            imports_become(buffer, 1)?;
        }
        assert_eq!(exports(device), exported, "memory is exported once, however often it is imported");
        for (number, buffer) in buffers.iter().enumerate() {
            expect(&mut other, &format!("drop {number}"), "", "it ends the import")?;
            imports_become(buffer, 0)?;
        }
        expect(&mut other, "left", "0", "nothing is left there")?;
        expect(&mut other, "sockets", &sockets, "no connection is left there")?;
    }
    Ok(())
}

/// Buffers of one segment are exported and mapped once. All imports from one process need one connection, since the
/// number of descriptors is limited.
fn imports_of_a_segment_are_one(device: Device, other: &mut OtherProcess) -> Outcome {
    let count = |sockets: String| sockets.parse::<u32>().map_err(|error| error.to_string());
    let before = count(other.ask("sockets")?)?;
    let mut buffers: Vec<_> = (0..20).map(|_| device.filled(1000, 1)).collect::<Result<_, _>>()?;
    let count_exports = || exports(device).iter().sum::<u64>();
    let exported = count_exports();
    for (number, buffer) in buffers.iter_mut().enumerate() {
        buffer.fill(number as u8, device.default_stream())?;
        device.default_stream().synchronize()?;
        expect(other, &format!("import {number} {}", digits(&buffer.share()?)), "1000", "it imports")?;
        expect(other, &format!("read {number}"), &number.to_string(), "it reads the bytes of this buffer")?;
        expect(other, "left", "1", "the memory of one segment is mapped once")?;
    }
    assert_eq!(count_exports() - exported, 1, "a segment is exported once, however many buffers of it are shared");
    expect(other, "sockets", &(before + 1).to_string(), "20 imports need one connection")?;
    for number in 0..buffers.len() {
        expect(other, &format!("drop {number}"), "", "it ends the import")?;
    }
    expect(other, "sockets", &before.to_string(), "no connection is left there")
}

/// Waits until the device has been told of the ends of all imports.
fn all_freed(device: Device) -> Outcome {
    Ok(becomes(|| allocated(device) == 0).ok_or("the memory is not freed when its import ends")?)
}

fn memory_stays_until_its_imports_end(context: &Context) -> Outcome {
    for settings in settings(context) {
        let device = context.device_with(512 * MIB, settings)?;
        let mut other = other(context, settings)?;
        for size in SIZES {
            let mut buffer = device.filled(size, 7)?;
            let block = buffer.block_size() as i64;
            let old = buffer.share()?;
            expect(&mut other, &format!("import it {}", digits(&old)), &size.to_string(), "it imports")?;
            drop(buffer);
            assert_eq!(allocated(device), block, "imported memory stays allocated when its buffer is dropped");
            device.allocator().empty_cache()?;
            let elsewhere = device.filled(size, 8)?;
            expect(&mut other, "read it", "7", "the memory is not reused while it is imported")?;
            let why = other.ask(&format!("import again {}", digits(&old))).err();
            let withdrawn = SharingProblem::Withdrawn.to_string();
            assert!(why.as_ref().is_some_and(|why| why.ends_with(&withdrawn)), "a withdrawn handle gave {why:?}");
            expect(&mut other, "drop it", "", "it ends the import")?;
            drop(elsewhere);
            all_freed(device)?;
        }
        expect(&mut other, "left", "0", "nothing is left there")?;
        imports_of_a_segment_are_one(device, &mut other)?;
        all_freed(device)?;
        device.allocator().empty_cache()?;
        assert_eq!(device.reserved(), 0);
        if context.offers(Capability::Graphs) && device.backend().graphs().is_some() {
            imports_outlast_captures(device, &mut other)?;
        }
        if context.shares_virtual_memory() {
            shared_memory_is_not_paused(device, &mut other)?;
        }
    }
    Ok(())
}

/// Work from before a capture may still use imported memory that is dropped during the capture.
fn imports_outlast_captures(device: Device, other: &mut OtherProcess) -> Outcome {
    let shared = handle(&other.ask("share it 5000 3")?);
    let stream = device.accelerator().stream(0)?;
    // SAFETY: The other process does nothing at the same time: it waits for commands.
    let mut imported = unsafe { device.accelerator().import(&shared, stream) }?;
    expect(other, "drop it", "", "it drops its buffer")?;
    imported.fill(4, stream)?;
    let mut graph = captures::begin(device, stream, None)?;
    drop(imported);
    std::thread::sleep(Duration::from_millis(50)); // in which the import would end
    let during = other.ask("left")?;
    graph.capture_end()?;
    assert_ne!(during, "0", "an import ended while its stream captured");
    becomes(|| other.ask("left").is_ok_and(|left| left == "0")).ok_or("the import has not ended with the capture")?;
    Ok(())
}

fn shared_memory_is_not_paused(device: Device, other: &mut OtherProcess) -> Outcome {
    let options = MemPoolOptions { pausable: true, ..MemPoolOptions::default() };
    let pool = MemPool::new(device.accelerator(), options)?;
    let guard = pool.use_pool();
    let mut buffer = device.filled(3 * MIB, 5)?;
    drop(guard);
    let shared = buffer.share()?;
    let pause = || pool.pause(accelerator_core::Keep::Host);
    assert!(matches!(pause(), Err(Error::MemPool { .. })), "a pool with shared memory was paused");
    expect(other, &format!("import it {}", digits(&shared)), &(3 * MIB).to_string(), "it imports")?;
    drop(buffer);
    assert!(matches!(pause(), Err(Error::MemPool { .. })), "a pool with imported memory was paused");
    expect(other, "drop it", "", "it ends the import")?;
    all_freed(device)?;
    let _ = pause()?;
    let _ = pool.resume()?;
    Ok(())
}

fn either_process_may_be_killed(context: &Context) -> Outcome {
    for settings in settings(context) {
        let device = context.device_with(512 * MIB, settings)?;
        let stream = device.default_stream();
        for size in SIZES {
            let mut importer = other(context, settings)?;
            let mut buffer = device.filled(size, 7)?;
            let shared = buffer.share()?;
            expect(&mut importer, &format!("import it {}", digits(&shared)), &size.to_string(), "it imports")?;
            imports_become(&buffer, 1)?;
            importer.kill()?;
            imports_become(&buffer, 0)?;
            holds(&buffer, 7, stream, "the memory is as it was after its importer was killed")?;
            drop(buffer);
            assert_eq!(allocated(device), 0, "memory is free after its importer was killed");

            let mut exporter = other(context, settings)?;
            let shared = handle(&exporter.ask(&format!("share it {size} 9"))?);
            let import = || import(device, &shared);
            let mut imported = import()?;
            assert_eq!((imported.len(), imported.is_imported(), allocated(device)), (size, true, 0));
            holds(&imported, 9, stream, "it has the bytes of the other process")?;
            exporter.kill()?;
            holds(&imported, 9, stream, "it keeps its bytes when the other process is killed")?;
            imported.fill(10, stream)?;
            holds(&imported, 10, stream, "it can be written when the other process is killed")?;
            match import() {
                Err(Error::Sharing { problem: SharingProblem::Gone, .. }) => {}
                other => return Err(format!("importing memory of a killed process gave {other:?}").into()),
            }
        }
    }
    Ok(())
}

fn import(device: Device, shared: &MemoryHandle) -> Result<Buffer<Driver>, Error> {
    // SAFETY: The other process does nothing at the same time: it waits for commands.
    unsafe { device.accelerator().import(shared, device.default_stream()) }
}

fn bad_handles_are_errors(context: &Context) -> Outcome {
    let device = context.device()?;
    let problem = |handle: &MemoryHandle| match import(device, handle) {
        Err(Error::Sharing { problem, .. }) => Ok(problem),
        other => Err(Failure::from(format!("a bad handle gave {other:?}"))),
    };
    let mut buffer = device.filled(MIB, 1)?;
    let own = buffer.share()?;
    assert_eq!(problem(&own)?, SharingProblem::OwnProcess);
    let bytes = own.as_bytes();
    for len in 0..bytes.len() {
        assert_eq!(problem(&MemoryHandle::from_bytes(&bytes[..len]))?, SharingProblem::NotAHandle);
    }
    assert_eq!(problem(&MemoryHandle::from_bytes(&[bytes, &[0]].concat()))?, SharingProblem::NotAHandle);
    let mut other = other(context, "")?;
    let theirs = other.ask("share it 5000 3")?;
    let mut changed = handle(&theirs).as_bytes().to_vec();
    let last = changed.len() - 1;
    changed[last] ^= 1; // the secret
    assert_eq!(problem(&MemoryHandle::from_bytes(&changed))?, SharingProblem::Withdrawn);
    changed[4] ^= 1; // the name of the server
    assert_eq!(problem(&MemoryHandle::from_bytes(&changed))?, SharingProblem::Gone);
    if device.properties().uuid.is_none() {
        let elsewhere = context.device_numbered(1)?;
        // SAFETY: It is not imported.
        let refused = unsafe { elsewhere.accelerator().import(&handle(&theirs), elsewhere.default_stream()) };
        let refused = refused.map(|buffer| buffer.len());
        let is_named = matches!(refused, Err(Error::Sharing { problem: SharingProblem::OtherDevice { .. }, .. }));
        assert!(is_named, "memory of another device was imported: {refused:?}");
    }
    let mut imported = import(device, &handle(&theirs))?;
    let shared_again = imported.share().map(drop);
    assert!(matches!(shared_again, Err(Error::Sharing { problem: SharingProblem::Unsupported(_), .. })));
    let mut empty = device.buffer(0, device.default_stream())?;
    assert!(matches!(empty.share(), Err(Error::Sharing { problem: SharingProblem::Unsupported(_), .. })));
    expect(&mut other, "drop it", "", "it drops its buffer")?;
    holds(&imported, 3, device.default_stream(), "the memory stays while it is imported")?;
    assert_eq!(problem(&handle(&theirs))?, SharingProblem::Withdrawn);
    drop(imported);
    let start = Instant::now();
    while other.ask("left")? != "0" {
        assert!(start.elapsed() < Duration::from_secs(20), "the other process keeps memory that nobody imports");
    }
    Ok(())
}
