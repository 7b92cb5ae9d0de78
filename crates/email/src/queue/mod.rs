//! The queue: a lane for each recipient domain, claimed by one node at a time. Mail of apps has its own connections and
//! stands back for the platform's own mail.
mod attempt;
mod direct;
mod dispatch;
pub mod lanes;
mod outcome;
mod policy;

pub use attempt::Courier;
#[cfg(test)]
pub use attempt::Tried;
pub use direct::Routes;
pub use dispatch::{deliver_due, run};
#[cfg(test)]
pub use outcome::note;
pub use outcome::{Report, ReportKind, is_hard, on_the_list, report};
