//! Figures of the process under the names that every exporter uses (`process_*`), read at each scrape. They come from
//! `/proc`; where there is none they are missing.
use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        if let Some(seconds) = cpu_seconds() {
            let help = "User and system processor time spent in seconds.";
            // The encoder adds `_total`.
            let descriptor = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
            ConstCounter::new(seconds).encode(descriptor)?;
        }
        let gauges = [
            ("process_resident_memory_bytes", "Resident memory in bytes.", memory("VmRSS:")),
            ("process_virtual_memory_bytes", "Virtual memory in bytes.", memory("VmSize:")),
            ("process_open_fds", "Open file descriptors.", open_files()),
            ("process_max_fds", "Most file descriptors that may be open.", most_files()),
            ("process_threads", "Threads of the process.", status("Threads:")),
            ("process_start_time_seconds", "Start time in seconds since 1970.", start_time()),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                let descriptor = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
                ConstGauge::new(value).encode(descriptor)?;
            }
        }
        Ok(())
    }
}

fn ticks_a_second() -> f64 {
    u32::try_from(rustix::param::clock_ticks_per_second()).map_or(100.0, f64::from)
}

/// A field of `/proc/self/stat`, counted from the state, which follows the name in parentheses.
fn stat(field: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(field)?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    Some((stat(11)? + stat(12)?) / ticks_a_second())
}

fn start_time() -> Option<f64> {
    let system = fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + stat(19)? / ticks_a_second())
}

/// The number in a line of `/proc/self/status`.
fn status(name: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn memory(name: &str) -> Option<f64> {
    status(name).map(|kib| kib * 1024.0)
}

fn open_files() -> Option<f64> {
    // The folder itself is open while it is read.
    let files = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    u32::try_from(files).ok().map(f64::from)
}

fn most_files() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
