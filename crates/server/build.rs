//! How the program is linked with glibc.
//!
//! Its relocations are packed, since half of a server's memory is its program. As a plain list they take two megabytes,
//! packed a few kilobytes. The C library reads packed ones since glibc 2.36, so the flag is passed where that is found.
//! Such a binary does not start on older versions, unless it is static: docs/decisions/0010-packed-relocations.md.
//!
//! A static binary looks names up without modules of the system: docs/decisions/0011-static-binary.md.
use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=host_names.c");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_gnu = is("CARGO_CFG_TARGET_ENV", "gnu");
    let is_for_here = env::var("HOST").ok() == env::var("TARGET").ok();
    if is("PROFILE", "release") && is_gnu && is_for_here && can_unpack() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if is_gnu && features.split(',').any(|feature| feature == "crt-static") {
        // Nothing in the program names the function, so the linker is told to take it.
        cc::Build::new().file("host_names.c").link_lib_modifier("+whole-archive").compile("host_names");
    }
}

fn can_unpack() -> bool {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output().map(|output| output.stdout);
    let told = String::from_utf8(told.unwrap_or_default()).unwrap_or_default();
    let version = told.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    version.is_some_and(|(major, minor)| (major.parse().ok(), minor.parse().ok()) >= (Some(2_u32), Some(36_u32)))
}
