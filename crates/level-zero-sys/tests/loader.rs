//! Tests of the bindings with the machine's loader, with Intel's driver, and without either.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a trial that panics has failed")]

use std::ffi::CStr;
use std::process::Command;
use std::ptr::null_mut;

use level_zero_sys::*;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Set in a child process that prints the driver's description of its device.
const CHILD: &str = "LEVEL_ZERO_SYS_TEST_PRINTS_DEVICE";

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return print_device();
    }
    let trials = vec![
        Trial::test("a_missing_loader_is_named", missing_loader),
        Trial::test("a_default_is_zero_but_for_its_type", defaults),
        Trial::test("a_result_prints_as_in_the_headers", results),
        Trial::ignorable_test("a_library_without_functions_lacks_each_by_name", no_functions),
        Trial::ignorable_test("all_names_are_tried", names_tried),
        Trial::ignorable_test("a_loader_has_the_functions_of_its_time", old_functions),
        Trial::ignorable_test("a_function_newer_than_the_loader_is_named", new_function),
        Trial::ignorable_test("a_driver_reads_and_fills_structures", device),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Ignores a trial that cannot run, or fails it if `ACCELERATOR_REQUIRE` lists `xpu`.
fn unavailable(reason: &str) -> Result<Completion, Failed> {
    let required = std::env::var("ACCELERATOR_REQUIRE").unwrap_or_default();
    match required.split(',').any(|name| name.trim() == "xpu") {
        true => Err(format!("ACCELERATOR_REQUIRE asks for `xpu`, but {reason}").into()),
        false => Ok(Completion::ignored_with(reason)),
    }
}

fn missing_loader() -> Result<(), Failed> {
    fn for_any_thread<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    // SAFETY: There is no such library.
    let opened: Result<LevelZero, LoadError> = unsafe { LevelZero::open("/nonexistent/libze_loader.so.1") };
    let error = for_any_thread(opened).unwrap_err();
    let [(name, reason)] = error.tried().collect::<Vec<_>>()[..] else { panic!("{error}") };
    assert_eq!(name, "/nonexistent/libze_loader.so.1");
    assert!(!cfg!(target_os = "linux") || reason.to_string().contains("No such file"), "{reason}");
    let message = error.to_string();
    assert!(message.starts_with("the Level Zero loader could not be opened: "), "{message}");
    assert_eq!(format!("{error:?}"), message, "what `main` prints");
    assert!(message.contains(&reason.to_string()) && message.matches("/nonexistent").count() == 1, "{message}");
    Ok(())
}

fn defaults() -> Result<(), Failed> {
    // The numbers come from the specification.
    assert_eq!(ze_device_properties_t::default().stype.0, 0x3);
    assert_eq!(ze_device_usablemem_size_ext_properties_t::default().stype.0, 0x20041);
    assert_eq!(zes_mem_state_t::default().stype.0, 0x1e);

    let ze_command_queue_desc_t { stype, pNext, ordinal, index, flags, mode, priority } = Default::default();
    assert_eq!((stype.0, ordinal, index, flags, mode.0, priority.0), (0xe, 0, 0, 0, 0, 0));
    assert!(pNext.is_null());
    assert_eq!(ze_ipc_mem_handle_t::default().data, [0; 64]);
    Ok(())
}

fn results() -> Result<(), Failed> {
    assert_eq!(ze_result_t(0x7000_0003).to_string(), "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY");
    assert_eq!(ze_result_t(0x7fff_fffe).name(), Some("ZE_RESULT_ERROR_UNKNOWN"));
    assert_eq!((ze_result_t(0x123).name(), ze_result_t(0x123).to_string()), (None, "0x123".to_owned()));
    Ok(())
}

fn no_functions() -> Result<Completion, Failed> {
    let opened = ["libc.so.6", "libSystem.B.dylib", "kernel32.dll"].into_iter().find_map(|name| {
        // SAFETY: This is the system's own library, which is loaded already; it has no Level Zero functions.
        unsafe { LevelZero::open(name) }.ok()
    });
    let Some(level_zero) = opened else {
        return Ok(Completion::ignored_with("the system's own library has a different name"));
    };
    assert_eq!(level_zero.zeInit().unwrap_err(), MissingFunction { name: "zeInit" });
    let error = level_zero.zesMemoryGetState().unwrap_err();
    assert_eq!(error.to_string(), "the Level Zero loader lacks zesMemoryGetState: install a newer loader");
    assert_eq!(format!("{error:?}"), error.to_string(), "what `main` prints");
    Ok(Completion::Completed)
}

fn names_tried() -> Result<Completion, Failed> {
    let Err(error) = LevelZero::load() else { return Ok(Completion::ignored_with("there is a loader")) };
    let names: Vec<_> = error.tried().map(|(name, _)| name.to_str().unwrap()).collect();
    let expected: &[_] = if cfg!(windows) { &["ze_loader.dll"] } else { &["libze_loader.so.1", "libze_loader.so"] };
    assert_eq!(names, expected);
    assert!(names.iter().all(|name| error.to_string().contains(name)), "{error}");
    Ok(Completion::Completed)
}

fn old_functions() -> Result<Completion, Failed> {
    let level_zero = match LevelZero::load() {
        Ok(level_zero) => level_zero,
        Err(error) => return unavailable(&error.to_string()),
    };
    // All of these are in version 1.4 of the specification.
    level_zero.zeInit()?;
    level_zero.zeCommandListCreateImmediate()?;
    level_zero.zeDevicePciGetPropertiesExt()?;
    level_zero.zeKernelSetArgumentValue()?;
    level_zero.zeMemFreeExt()?;
    level_zero.zeVirtualMemMap()?;
    level_zero.zesDeviceEnumMemoryModules()?;
    level_zero.zesMemoryGetState()?;
    Ok(Completion::Completed)
}

fn new_function() -> Result<Completion, Failed> {
    match LevelZero::load().map(|level_zero| level_zero.zeCommandListAppendHostFunction().err()) {
        Err(error) => unavailable(&error.to_string()),
        Ok(None) => Ok(Completion::ignored_with("the loader has the newest function that is bound")),
        Ok(Some(missing)) => {
            assert_eq!(missing.name, "zeCommandListAppendHostFunction");
            Ok(Completion::Completed)
        }
    }
}

/// Runs Intel's driver, which can simulate a device, in a separate process.
fn device() -> Result<Completion, Failed> {
    let mut child = Command::new(std::env::current_exe()?);
    let settings = [
        (CHILD, "1"),
        ("AUBDumpSubCaptureMode", "1"),
        ("NEOReadDebugKeys", "1"),
        ("ProductFamilyOverride", "tgllp"),
        ("SetCommandStreamReceiver", "1"),
    ];
    // Some versions of the driver write a file into the current directory.
    child.current_dir(env!("CARGO_TARGET_TMPDIR"));
    let output = child.envs(settings).env_remove("ZE_ENABLE_ALT_DRIVERS").output()?;
    let printed = String::from_utf8(output.stdout)?;
    if let Some(reason) = printed.strip_prefix("unavailable: ") {
        return unavailable(reason.trim());
    }
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    // It must be an Intel GPU of any model.
    assert!(printed.contains("type 1, vendor 0x8086, name Intel"), "{printed}");
    assert!(printed.contains("allocation type 2\n"), "{printed}");
    Ok(Completion::Completed)
}

fn print_device() {
    let level_zero = match LevelZero::load() {
        Ok(level_zero) => level_zero,
        Err(error) => return println!("unavailable: {error}"),
    };
    // SAFETY: Nothing has been called yet.
    let result = unsafe { level_zero.zeInit().unwrap()(0) };
    if result != ze_result_t::ZE_RESULT_SUCCESS {
        return println!("unavailable: zeInit: {result}");
    }
    let mut driver = null_mut();
    // SAFETY: There is room for one handle.
    check(unsafe { level_zero.zeDriverGet().unwrap()(&mut 1, &mut driver) });
    let mut device = null_mut();
    // SAFETY: The driver handle is valid, and there is room for one handle.
    check(unsafe { level_zero.zeDeviceGet().unwrap()(driver, &mut 1, &mut device) });
    let mut properties = ze_device_properties_t::default();
    // SAFETY: The device handle is valid, and the `stype` of the structure is set.
    check(unsafe { level_zero.zeDeviceGetProperties().unwrap()(device, &mut properties) });
    // SAFETY: The driver terminated the name with a zero.
    let name = unsafe { CStr::from_ptr(properties.name.as_ptr()) };
    let (kind, vendor) = (properties.type_.0, properties.vendorId);
    println!("type {kind}, vendor {vendor:#x}, name {}", name.to_str().unwrap());

    let mut context = null_mut();
    // SAFETY: The driver handle is valid, and the `stype` of the structure is set.
    check(unsafe { level_zero.zeContextCreate().unwrap()(driver, &Default::default(), &mut context) });
    let mut memory = null_mut();
    let alloc = level_zero.zeMemAllocDevice().unwrap();
    // SAFETY: The context and the device belong together, and the `stype` of the structure is set.
    check(unsafe { alloc(context, &Default::default(), 4096, 1, device, &mut memory) });
    let mut allocation = ze_memory_allocation_properties_t::default();
    let get_properties = level_zero.zeMemGetAllocProperties().unwrap();
    // SAFETY: As above. Any address may be queried, and the device is not requested.
    check(unsafe { get_properties(context, memory, &mut allocation, null_mut()) });
    // SAFETY: The memory belongs to this context, and nothing uses it.
    check(unsafe { level_zero.zeMemFree().unwrap()(context, memory) });
    println!("allocation type {}", allocation.type_.0);
}

fn check(result: ze_result_t) {
    assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS, "{result}");
}
