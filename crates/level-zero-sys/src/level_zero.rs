//! The loader of Level Zero, opened, and its functions.

use std::ffi::OsStr;
use std::fmt;

use libloading::Library;

use crate::bindings::*;
use crate::error::{LoadError, MissingFunction};

/// What the loader is called, the version of its interface first.
#[cfg(windows)]
const NAMES: [&str; 1] = ["ze_loader.dll"];
#[cfg(not(windows))]
const NAMES: [&str; 2] = ["libze_loader.so.1", "libze_loader.so"];

/// A pointer to a function that may be null, as all `ze_pfn…_t` types are.
#[doc(hidden)] // only names what methods give
pub trait Pointer {
    /// The function, to be called.
    type Function;
}

impl<F> Pointer for Option<F> {
    type Function = F;
}

macro_rules! functions {
    ($($name:ident: $pointer:ident,)*) => {
        /// The loader of Level Zero, opened, with a method for each function, which is named as the function and gives a
        /// pointer to it.
        ///
        /// All functions are looked up once, when the loader is opened. One that is newer than the loader is missing there,
        /// which is an error when it is asked for.
        ///
        /// The loader is closed when this is dropped. Then its functions must not be called any more, nor may a driver be at
        /// work that it has loaded: a program had better keep this for ever.
        pub struct LevelZero {
            $($name: $pointer,)*
            _library: Library,
        }

        /// The functions. What each is for, and what its caller upholds, is in the documentation of the type behind it.
        impl LevelZero {
            /// Looks up all functions.
            ///
            /// # Safety
            ///
            /// What the library has under the name of a function of Level Zero must be that function.
            unsafe fn new(library: Library) -> Self {
                Self {
                    $(
                        // SAFETY: the type is the function's, and so is the symbol, as the caller says.
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

/// The pointer to a function, or null if there is none of this name.
///
/// # Safety
///
/// `P` must be a type of pointers that may be null, and the right one for what the library has under this name.
unsafe fn symbol<P: Copy + Default>(library: &Library, name: &str) -> P {
    // SAFETY: as the caller says.
    let found = unsafe { library.get::<P>(name) };
    found.map(|pointer| *pointer).unwrap_or_default()
}

impl LevelZero {
    /// Opens the loader under the name it has on this system: `libze_loader.so.1`, else `libze_loader.so`; on Windows
    /// `ze_loader.dll`.
    ///
    /// This runs the initialisers of the library that the system finds under that name, as it does at the start of any
    /// program that is linked with the loader, and trusts it as much.
    pub fn load() -> Result<Self, LoadError> {
        let mut tried = Vec::new();
        for name in NAMES {
            // SAFETY: a library of this name is the loader of Level Zero, and its initialisers have no conditions.
            match unsafe { Self::open(name) } {
                Ok(level_zero) => return Ok(level_zero),
                Err(error) => tried.extend(error.tried),
            }
        }
        Err(LoadError { tried })
    }

    /// Opens the loader that lies at this path, or has this name where the system looks for libraries.
    ///
    /// # Safety
    ///
    /// * The library's initialisers, and those of the libraries that it needs, must be sound to run now.
    /// * What it has under the name of a function of Level Zero must be that function.
    pub unsafe fn open(path: impl AsRef<OsStr>) -> Result<Self, LoadError> {
        let path = path.as_ref();
        // SAFETY: as the caller says.
        let library = unsafe { Library::new(path) };
        match library {
            // SAFETY: as the caller says.
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
