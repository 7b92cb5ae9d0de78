//! Memory in huge pages, for the little that gains by them.
//!
//! What hashes a password reads megabytes in no order, and is quicker where a page has two megabytes instead of four
//! kilobytes: the processor remembers where few pages are, not where thousands are. Everything else would only hold more
//! memory. The allocator marks what it takes as fit for huge pages; whether the system gives any is one flag of the
//! process, looked at whenever memory is touched for the first time. So it says no, but for a moment at a time. Where
//! there is no such flag, or the system has none to give, nothing happens.
use std::sync::{Mutex, PoisonError};

const HUGE: usize = 2 << 20;

/// One at a time: who is done would say no to who is not.
static ASKING: Mutex<()> = Mutex::new(());

/// From here on pages are small. The first thing a program does.
pub fn keep_small() {
    allow(false);
}

/// So many copies of a value, in huge pages where they fill them. What they fill in part they share with others, who would
/// hold the rest of it for nothing: there the pages stay small.
pub fn vec_of<T: Copy>(count: usize, value: &T) -> Vec<T> {
    let mut copies: Vec<T> = Vec::with_capacity(count);
    let (start, each) = (copies.as_ptr().addr(), size_of::<T>().max(1));
    let places_before = |address: usize| address.saturating_sub(start) / each;
    let first_whole = places_before(start.next_multiple_of(HUGE)).min(count);
    let last_whole = places_before((start + count * each) / HUGE * HUGE);
    copies.resize(first_whole, *value);
    if last_whole > first_whole {
        huge(|| copies.resize(last_whole, *value));
    }
    copies.resize(count, *value);
    copies
}

/// What is touched for the first time in here comes in huge pages. What other threads touch meanwhile, too: keep it short.
fn huge<T>(touch: impl FnOnce() -> T) -> T {
    let _alone = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    allow(true);
    let touched = touch();
    allow(false);
    touched
}

#[cfg(target_os = "linux")]
fn allow(huge: bool) {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(!huge) {
        tracing::debug!(%error, "pages are as large as the system likes");
    }
}

#[cfg(not(target_os = "linux"))]
fn allow(_huge: bool) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_asked_for_wherever_they_lie() {
        for count in [0, 1, 5, 2_048, 19_456] {
            let copies = vec_of(count, &[7_u64; 128]);
            assert!(copies.len() == count && copies.iter().all(|copy| *copy == [7; 128]), "{count}");
        }
        assert_eq!(vec_of(3, &()).len(), 3, "even of nothing");
    }
}
