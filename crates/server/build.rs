//! Packs the program's relocations, since half of a server's memory is its program. As a plain list they take two
//! megabytes, packed a few kilobytes. The C library reads packed ones since glibc 2.36, so the flag is passed where
//! that is found. Such a binary does not start on older versions: docs/decisions/0010-packed-relocations.md.
use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_for_here = env::var("HOST").ok() == env::var("TARGET").ok();
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_ENV", "gnu") && is_for_here && can_unpack() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

fn can_unpack() -> bool {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output().map(|output| output.stdout);
    let told = String::from_utf8(told.unwrap_or_default()).unwrap_or_default();
    let version = told.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    version.is_some_and(|(major, minor)| (major.parse().ok(), minor.parse().ok()) >= (Some(2_u32), Some(36_u32)))
}
