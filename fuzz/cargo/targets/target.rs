//! Runs the target of the program's name under libFuzzer.
#![no_main]
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fuzz::Target> = LazyLock::new(|| fuzz::find(env!("CARGO_BIN_NAME")).target);

fuzz_target!(|data: &[u8]| {
    TARGET(data);
});
