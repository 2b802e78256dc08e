//! The names of results.

use std::fmt;

use crate::bindings::ze_result_t;

macro_rules! results {
    ($($name:ident,)*) => {
        impl ze_result_t {
            /// Returns its name in the headers, such as `ZE_RESULT_ERROR_DEVICE_LOST`. A driver may return values that
            /// have none.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

for_each_result!(results);

impl fmt::Display for ze_result_t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}
