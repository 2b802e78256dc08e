//! The Vulkan loader and the instance, opened once per process.
#![allow(unsafe_code)] // calls into the loader

use std::env;
use std::error::Error;

use accelerator_core::backend_kit::Probed;
use accelerator_core::{DriverError, Unavailable};
use ash::{khr, vk};

use crate::answer;

const LOADER: &str = "ACCELERATOR_VULKAN_LOADER";
pub(crate) const FORKED: &str = "Vulkan does not work after a fork: use it only in the child";
/// The names of the loader on this system.
const NAMES: &[&str] = if cfg!(windows) {
    &["vulkan-1.dll"]
} else if cfg!(target_vendor = "apple") {
    &["libvulkan.1.dylib", "libvulkan.dylib", "libMoltenVK.dylib"]
} else if cfg!(target_os = "android") {
    &["libvulkan.so"]
} else {
    &["libvulkan.so.1", "libvulkan.so"]
};

/// An instance, and the loader that made it. Both stay open until the process ends.
pub(crate) struct Library {
    pub(crate) instance: ash::Instance,
    /// The newest version of Vulkan that the instance may use.
    pub(crate) version: u32,
}

/// Returns the instance of this process, or why there is none.
pub(crate) fn library() -> Result<&'static Library, Unavailable> {
    static OPENED: Probed<Library> = Probed::new(FORKED);
    OPENED.get(open)
}

fn open() -> Result<Library, Unavailable> {
    let entry = load()?;
    // SAFETY: The loader is open.
    let found = unsafe { entry.try_enumerate_instance_version() };
    let found = answer::of("vkEnumerateInstanceVersion", found).map_err(unavailable)?.unwrap_or(vk::API_VERSION_1_0);
    if found < vk::API_VERSION_1_1 {
        let reason = "the Vulkan loader supports Vulkan 1.0 only, but 1.1 is needed: install a newer one";
        return Err(Unavailable::new(reason));
    }
    let version = found.min(vk::API_VERSION_1_3);
    // SAFETY: The loader is open.
    let offered = unsafe { entry.enumerate_instance_extension_properties(None) };
    let offered = answer::of("vkEnumerateInstanceExtensionProperties", offered).map_err(unavailable)?;
    let portability = khr::portability_enumeration::NAME;
    let is_portable = offered.iter().any(|one| one.extension_name_as_c_str() == Ok(portability));
    let application = vk::ApplicationInfo::default().engine_name(c"accelerator").api_version(version);
    let extensions = [portability.as_ptr()];
    let mut description = vk::InstanceCreateInfo::default().application_info(&application);
    if is_portable {
        // Without this, the loader hides drivers over another API, such as MoltenVK.
        description =
            description.flags(vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR).enabled_extension_names(&extensions);
    }
    // SAFETY: The description and what it points to are alive, and the loader offers the extension.
    let made = unsafe { entry.create_instance(&description, None) };
    let instance = made.map_err(|result| {
        Unavailable::new(format!("{}{}", answer::error("vkCreateInstance", result), advice(result)))
    })?;
    Ok(Library { instance, version })
}

/// Loads the loader that the environment names, or the system's.
fn load() -> Result<ash::Entry, Unavailable> {
    let named = env::var_os(LOADER).filter(|name| !name.is_empty());
    let names = named.as_ref().map_or_else(|| NAMES.iter().map(Into::into).collect(), |name| vec![name.clone()]);
    let mut errors = Vec::new();
    for name in names {
        // SAFETY: A Vulkan loader may be loaded at any time and from any thread.
        match unsafe { libloading::Library::new(&name) } {
            Ok(library) => return entry(library),
            Err(error) => errors.push(told(&error)),
        }
    }
    let todo = match named {
        Some(_) => format!("{LOADER} must name the file of a Vulkan loader or driver"),
        None => "install one (Debian, Ubuntu: libvulkan1) and a driver (mesa-vulkan-drivers)".to_owned(),
    };
    Err(Unavailable::new(format!("there is no Vulkan loader ({}): {todo}", errors.join("; "))))
}

fn entry(library: libloading::Library) -> Result<ash::Entry, Unavailable> {
    // SAFETY: In a Vulkan loader, this function has this type.
    let found = unsafe { library.get::<vk::PFN_vkGetInstanceProcAddr>(c"vkGetInstanceProcAddr") };
    let get_instance_proc_addr = match found {
        Ok(function) => *function,
        Err(error) => return Err(Unavailable::new(format!("the library is not a Vulkan loader: {}", told(&error)))),
    };
    std::mem::forget(library); // stays open until the process ends
    // SAFETY: The function is the loader's, and the loader is not closed.
    Ok(unsafe { ash::Entry::from_static_fn(ash::StaticFn { get_instance_proc_addr }) })
}

/// The system's message. That of `error` itself only says which function failed.
fn told(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn advice(result: vk::Result) -> &'static str {
    match result {
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => {
            ": the Vulkan loader found no driver: install one (Debian, Ubuntu: mesa-vulkan-drivers), or check \
             VK_DRIVER_FILES and VK_ICD_FILENAMES"
        }
        vk::Result::ERROR_LAYER_NOT_PRESENT => ": a layer in VK_INSTANCE_LAYERS is not installed",
        _ => "",
    }
}

fn unavailable(error: DriverError) -> Unavailable {
    Unavailable::new(error.to_string())
}
