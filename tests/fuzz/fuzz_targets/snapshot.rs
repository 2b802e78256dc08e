#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| accelerator_fuzz::snapshot::run(data));
