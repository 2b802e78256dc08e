//! Defaults of structures with pointers, handles or enumerators: all zeros, except the `stype` of structures that have
//! one.

use std::mem::MaybeUninit;

use crate::bindings::*;

macro_rules! structures {
    ($($name:ident $(: $type:expr)?,)*) => {
        $(
            impl Default for $name {
                fn default() -> Self {
                    let zeroes = MaybeUninit::<Self>::zeroed();
                    // SAFETY: The structure consists of integers, floats, enumerators (which are integers here), raw
                    // pointers and function pointers. All of these may be zero or null.
                    let zeroes = unsafe { zeroes.assume_init() };
                    Self { $(stype: $type,)? ..zeroes }
                }
            }
        )*
    };
}

for_each_structure!(structures);
