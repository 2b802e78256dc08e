/// Implements [`Debug`](std::fmt::Debug) of error types as their [`Display`](std::fmt::Display).
///
/// Rust prints the `Debug` of an error that `main` returns, and of an error that `unwrap` panics with. People read it
/// there, so it is the message, not the fields.
#[macro_export]
macro_rules! debug_as_display {
    ($($Error:ty),+ $(,)?) => {$(
        impl ::std::fmt::Debug for $Error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}
