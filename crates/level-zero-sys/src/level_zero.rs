//! The opened loader and its functions.

use std::ffi::OsStr;
use std::fmt;

use libloading::Library;

use crate::bindings::*;
use crate::error::{LoadError, MissingFunction};

/// The file names of the loader; the one with the version of its interface is tried first.
#[cfg(windows)]
const NAMES: [&str; 1] = ["ze_loader.dll"];
#[cfg(not(windows))]
const NAMES: [&str; 2] = ["libze_loader.so.1", "libze_loader.so"];

/// A function pointer that may be null, like all `ze_pfn…_t` types.
#[doc(hidden)] // exists only to name the results of methods
pub trait Pointer {
    /// The type of the function to call.
    type Function;
}

impl<F> Pointer for Option<F> {
    type Function = F;
}

macro_rules! functions {
    ($($name:ident: $pointer:ident,)*) => {
        /// The opened Level Zero loader. It has one method per function, with the function's name, which returns a
        /// pointer to the function.
        ///
        /// All functions are looked up once, when the loader is opened. The method of a function that is newer than the
        /// loader returns an error.
        ///
        /// Dropping this value closes the loader. After that, its functions must not be called, and no driver that it
        /// loaded may still be working. It is best to keep this value until the process ends.
        pub struct LevelZero {
            $($name: $pointer,)*
            _library: Library,
        }

        /// The functions. What each one does, and what its caller must ensure, is documented at its pointer type.
        impl LevelZero {
            /// Looks up all functions.
            ///
            /// # Safety
            ///
            /// Any symbol in the library with the name of a Level Zero function must be that function.
            unsafe fn new(library: Library) -> Self {
                Self {
                    $(
                        // SAFETY: The type is the function's, and the caller promises that the symbol is that function.
                        $name: unsafe { symbol::<$pointer>(&library, concat!(stringify!($name), "\0")) },
                    )*
                    _library: library,
                }
            }

            $(
                #[doc = concat!("The function of type [`", stringify!($pointer), "`].")]
                #[inline]
                pub fn $name(&self) -> Result<<$pointer as Pointer>::Function, MissingFunction> {
                    self.$name.ok_or(MissingFunction { name: stringify!($name) })
                }
            )*
        }
    };
}

for_each_function!(functions);

/// Returns the pointer to a function, or null if there is none with this name.
///
/// # Safety
///
/// `P` must be a nullable function pointer type that is right for the library's symbol of this name.
unsafe fn symbol<P: Copy + Default>(library: &Library, name: &str) -> P {
    // SAFETY: The caller makes the same promise.
    let found = unsafe { library.get::<P>(name) };
    found.map(|pointer| *pointer).unwrap_or_default()
}

impl LevelZero {
    /// Opens the loader by its usual name on this system: `libze_loader.so.1`, otherwise `libze_loader.so`; on Windows
    /// `ze_loader.dll`.
    ///
    /// This runs the initializers of the library that the system finds under that name. It trusts that library as much
    /// as any program that is linked with the loader does.
    pub fn load() -> Result<Self, LoadError> {
        let mut tried = Vec::new();
        for name in NAMES {
            // SAFETY: A library of this name is the Level Zero loader, and its initializers have no preconditions.
            match unsafe { Self::open(name) } {
                Ok(level_zero) => return Ok(level_zero),
                Err(error) => tried.extend(error.tried),
            }
        }
        Err(LoadError { tried })
    }

    /// Opens the loader at this path, or the one that the system finds under this name.
    ///
    /// # Safety
    ///
    /// * The initializers of the library and of the libraries that it needs must be sound to run now.
    /// * Any symbol in the library with the name of a Level Zero function must be that function.
    pub unsafe fn open(path: impl AsRef<OsStr>) -> Result<Self, LoadError> {
        let path = path.as_ref();
        // SAFETY: The caller makes the same promise.
        let library = unsafe { Library::new(path) };
        match library {
            // SAFETY: The caller makes the same promise.
            Ok(library) => Ok(unsafe { Self::new(library) }),
            Err(error) => Err(LoadError { tried: vec![(path.to_owned(), error)] }),
        }
    }
}

impl fmt::Debug for LevelZero {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LevelZero").finish_non_exhaustive()
    }
}
