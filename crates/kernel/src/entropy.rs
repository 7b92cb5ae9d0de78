//! Randomness by purpose: ids, tokens, secrets, codes. Seeded in tests, so that runs are repeatable.
use std::{
    cell::RefCell,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use aws_lc_rs::{digest, rand};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use uuid::Uuid;

use crate::{clock::Timestamp, crypto::Secret};

#[derive(Clone)]
pub struct Entropy {
    source: Source,
    /// The moment and sequence of the newest id, so that ids of one node sort in the order they were made.
    newest: Arc<AtomicU64>,
}

#[derive(Clone)]
enum Source {
    System,
    /// A counter that is hashed; only for tests.
    Seeded(Arc<Mutex<u64>>),
}

/// How many bits of an id count the ids of one millisecond.
const SEQUENCE_BITS: u32 = 12;
/// How many bytes of an id stand behind its moment.
const REST: usize = 10;

/// Random bytes for ids, drawn in bulk because each call to the system costs the same. Not for secrets.
struct Ahead {
    drawn: [u8; 64 * REST],
    used: usize,
}

thread_local! {
    static AHEAD: RefCell<Ahead> = const { RefCell::new(Ahead { drawn: [0; 64 * REST], used: 64 * REST }) };
}

impl Entropy {
    pub fn system() -> Self {
        Self::of(Source::System)
    }

    pub fn seeded(seed: u64) -> Self {
        Self::of(Source::Seeded(Arc::new(Mutex::new(seed << 32))))
    }

    fn of(source: Source) -> Self {
        Self { source, newest: Arc::default() }
    }

    pub fn fill(&self, out: &mut [u8]) {
        match &self.source {
            #[expect(
                clippy::expect_used,
                clippy::disallowed_methods,
                reason = "the one source; without it nothing may go on"
            )]
            Source::System => rand::fill(out).expect("the operating system has randomness"),
            Source::Seeded(counter) => {
                for chunk in out.chunks_mut(digest::SHA256_OUTPUT_LEN) {
                    let mut counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
                    *counter += 1;
                    let block = digest::digest(&digest::SHA256, &counter.to_be_bytes());
                    chunk.copy_from_slice(&block.as_ref()[..chunk.len()]);
                }
            }
        }
    }

    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    /// A UUIDv7: sorts by when it was made, also within a millisecond, and cannot be guessed.
    pub fn uuid(&self, now: Timestamp) -> Uuid {
        let mut rest: [u8; REST] = match self.source {
            Source::System => self.drawn_ahead(),
            Source::Seeded(_) => self.bytes(),
        };
        let first = u64::try_from(now.0).unwrap_or(0) << SEQUENCE_BITS;
        let next = |newest: u64| Some(first.max(newest + 1));
        let newest = self.newest.fetch_update(Relaxed, Relaxed, next).unwrap_or(first);
        let id = first.max(newest + 1);
        // RFC 9562, 6.2, method 1: the sequence stands before what is random.
        [rest[0], rest[1]] = [(id >> 8).to_be_bytes()[7] & 0x0f, id.to_be_bytes()[7]];
        uuid::Builder::from_unix_timestamp_millis(id >> SEQUENCE_BITS, &rest).into_uuid()
    }

    fn drawn_ahead(&self) -> [u8; REST] {
        AHEAD.with_borrow_mut(|Ahead { drawn, used }| {
            if *used == drawn.len() {
                self.fill(drawn);
                *used = 0;
            }
            *used += REST;
            let mut rest = [0; REST];
            rest.copy_from_slice(&drawn[*used - REST..*used]);
            rest
        })
    }

    /// A bearer token: 256 bits in 43 characters that are safe in a URL.
    pub fn token(&self) -> Secret {
        BASE64URL_NOPAD.encode(&self.bytes::<32>()).into()
    }

    /// A signing secret: 256 bits as 64 hexadecimal characters.
    pub fn secret(&self) -> Secret {
        HEXLOWER.encode(&self.bytes::<32>()).into()
    }

    /// A code for people to type: six digits, each number equally likely.
    pub fn otp(&self) -> Secret {
        const RANGE: u32 = 1_000_000;
        // Numbers past the last whole multiple of the range would make small codes likelier.
        const FAIR: u32 = u32::MAX - u32::MAX % RANGE;
        loop {
            let drawn = u32::from_be_bytes(self.bytes());
            if drawn < FAIR {
                return format!("{:06}", drawn % RANGE).into();
            }
        }
    }

    /// A number from zero up to and including `most`, for jitter: not for secrets.
    pub fn up_to(&self, most: u64) -> u64 {
        u64::from_be_bytes(self.bytes()) % most.saturating_add(1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_chance_and_another_seed_another() {
        let draw = |seed| Entropy::seeded(seed).token().expose().to_owned();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn each_purpose_has_its_form() {
        let entropy = Entropy::system();
        assert_eq!(entropy.token().expose().len(), 43);
        assert_eq!(entropy.secret().expose().len(), 64);
        assert!((0..100).all(|_| entropy.otp().expose().len() == 6));
        let id = entropy.uuid(Timestamp(1_769_853_600_007));
        assert_eq!(id.get_version_num(), 7);
        assert!(id.to_string().starts_with("019c137e-c107"), "{id}: the moment comes first");
        let mut made: Vec<_> = (0..5_000).map(|_| entropy.uuid(Timestamp(1_769_853_600_007))).collect();
        let in_order = made.clone();
        made.sort();
        assert_eq!(made, in_order, "ids sort in the order they were made");
        let rests: HashSet<_> = made.iter().map(|id| id.as_bytes()[8..].to_vec()).collect();
        assert_eq!(rests.len(), made.len(), "no chance is used twice");
        assert!(entropy.uuid(Timestamp(0)) > in_order[4_999], "also when the clock goes back");
    }
}
