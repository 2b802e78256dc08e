//! Defaults of structures that hold pointers, handles or enumerators: zeroes, and their type where they say it.

use std::mem::MaybeUninit;

use crate::bindings::*;

macro_rules! structures {
    ($($name:ident $(: $type:expr)?,)*) => {
        $(
            impl Default for $name {
                fn default() -> Self {
                    let zeroes = MaybeUninit::<Self>::zeroed();
                    // SAFETY: integers, floats and enumerators, which are integers here, may be zero, raw pointers and pointers
                    // to functions null; it consists of these.
                    let zeroes = unsafe { zeroes.assume_init() };
                    Self { $(stype: $type,)? ..zeroes }
                }
            }
        )*
    };
}

for_each_structure!(structures);
