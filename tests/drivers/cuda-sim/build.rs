//! Gives the library the name that programs look for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A later dlopen("libcuda.so") finds the library that the process loaded by its path.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
}
