//! Passwords: what is a good one, and the pool of threads that hash them.
//!
//! Hashing takes all of a core and nineteen megabytes for tens of milliseconds. As many threads as cores do it, each
//! with memory of its own that it uses again; what waits is bounded, and past the bound the answer is 503 at once.
use std::{sync::LazyLock, thread, time::Duration};

use argon2::{Algorithm, Argon2, Block, Params, Version};
use crossbeam_channel as queue;
use data_encoding::BASE64_NOPAD;
use kernel::{
    crypto::{Secret, same},
    entropy::Entropy,
    fault::{Code, INTERNAL, OVERLOADED, Result},
    pages,
};
use password_hash::{PasswordVerifier as _, phc::PasswordHash};
use tokio::sync::oneshot;
use unicode_normalization::UnicodeNormalization as _;

use crate::email::Email;

pub const WEAK_PASSWORD: Code = Code::new(400, "weak_password", "This password is too easy to guess.");

const SHORTEST: usize = 8;
const LONGEST: usize = 256;
/// Guessing effort is measured on the beginning: past this nothing gets weaker, and measuring gets slow.
const MEASURED: usize = 100;

const MEMORY_KIB: u32 = 19_456;
const PASSES: u32 = 2;
const LANES: u32 = 1;
const TAG: usize = 32;

/// How far the threads stand back, in steps of "nice".
const STANDS_BACK: i32 = 10;

/// How long a thread keeps its memory after the last password.
const IDLE: Duration = Duration::from_secs(5);

/// Refuses what others would guess, and says why in words a person understands.
pub fn check(field: &'static str, password: &Secret, email: Option<&Email>, name: &str) -> Result<()> {
    let text = password.expose();
    let length = text.chars().count();
    if !(SHORTEST..=LONGEST).contains(&length) {
        let message = format!("must have between {SHORTEST} and {LONGEST} characters");
        return Err(WEAK_PASSWORD.at(field, "wrong_length", message));
    }
    let lower = text.to_lowercase();
    let address = email.map(Email::key).unwrap_or_default();
    let local = address.split('@').next().unwrap_or_default();
    if (local.len() >= 4 && lower.contains(local)) || (!address.is_empty() && lower.contains(address)) {
        return Err(WEAK_PASSWORD.at(field, "contains_email", "must not contain your email address"));
    }
    let measured: String = text.chars().take(MEASURED).collect();
    let guess = zxcvbn::zxcvbn(&measured, &[address, local, name, "janua"]);
    if guess.score() < zxcvbn::Score::Two {
        let warning = guess.feedback().and_then(zxcvbn::feedback::Feedback::warning);
        let why = warning.map_or_else(|| "The password is easy to guess.".to_owned(), |warning| warning.to_string());
        return Err(WEAK_PASSWORD.at(field, "guessable", why));
    }
    Ok(())
}

/// The same password typed on another keyboard is the same password (NIST SP 800-63B, 5.1.1.2).
fn normal(password: &Secret) -> Secret {
    password.expose().nfkc().collect::<String>().into()
}

/// The result of comparing a password with a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub matches: bool,
    /// It matches, but the hash is of an older kind and should be made anew.
    pub is_outdated: bool,
}

/// The pool.
pub struct Hasher(queue::Sender<Work>);

enum Work {
    Hash { password: Secret, salt: [u8; 16], reply: oneshot::Sender<Option<String>> },
    Verify { password: Secret, hash: Option<String>, reply: oneshot::Sender<Verdict> },
}

impl Hasher {
    pub fn start(waiting: usize) -> Self {
        let (sender, work) = queue::bounded(waiting);
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            let work: queue::Receiver<Work> = work.clone();
            let spawned = thread::Builder::new().name("password".into()).spawn(move || {
                // Whoever is signed in already goes first. On Linux this is about the thread alone.
                if let Err(error) = rustix::process::setpriority_process(None, STANDS_BACK) {
                    tracing::debug!(%error, "passwords are hashed at the priority of everything else");
                }
                let mut bench = Bench::new();
                // The nineteen megabytes are taken for the first password and given back when no more come.
                while let Ok(first) = work.recv() {
                    bench.work(first);
                    while let Ok(next) = work.recv_timeout(IDLE) {
                        bench.work(next);
                    }
                    bench.memory = Vec::new();
                }
            });
            if let Err(error) = spawned {
                tracing::error!(%error, "cannot start a thread for passwords");
            }
        }
        Self(sender)
    }

    pub async fn hash(&self, entropy: &Entropy, password: &Secret) -> Result<String> {
        let (reply, hashed) = oneshot::channel();
        self.send(Work::Hash { password: normal(password), salt: entropy.bytes(), reply })?;
        hashed.await.ok().flatten().ok_or_else(|| INTERNAL.caused_by("a password could not be hashed"))
    }

    /// Without a hash it takes just as long and never matches.
    pub async fn verify(&self, password: &Secret, hash: Option<String>) -> Result<Verdict> {
        let (reply, verdict) = oneshot::channel();
        self.send(Work::Verify { password: normal(password), hash, reply })?;
        verdict.await.map_err(|_| INTERNAL.caused_by("a password could not be checked"))
    }

    fn send(&self, work: Work) -> Result<()> {
        let busy = |_| kernel::fault::Fault::from(OVERLOADED).retry_after(Duration::from_secs(1));
        self.0.try_send(work).map_err(busy)
    }
}

/// One thread's tools.
struct Bench {
    argon2: Argon2<'static>,
    memory: Vec<Block>,
}

/// A hash to compare with when the account has none, for the same work. No password matches it.
static NOBODY: LazyLock<String> = LazyLock::new(|| phc(&[0; 16], &[0; TAG]));

fn phc(salt: &[u8], tag: &[u8]) -> String {
    let (salt, tag) = (BASE64_NOPAD.encode(salt), BASE64_NOPAD.encode(tag));
    format!("$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}${salt}${tag}")
}

impl Bench {
    fn new() -> Self {
        let params = Params::new(MEMORY_KIB, PASSES, LANES, Some(TAG)).unwrap_or_default();
        Self { argon2: Argon2::new(Algorithm::Argon2id, Version::V0x13, params), memory: Vec::new() }
    }

    fn work(&mut self, work: Work) {
        // Somebody who has gone away is not worth a core.
        match work {
            Work::Hash { password, salt, reply } if !reply.is_closed() => {
                let tag = self.tag(password.expose().as_bytes(), &salt);
                let _ = reply.send(tag.map(|tag| phc(&salt, &tag)));
            }
            Work::Verify { password, hash, reply } if !reply.is_closed() => {
                let _ = reply.send(self.verify(password.expose().as_bytes(), hash.as_deref()));
            }
            Work::Hash { .. } | Work::Verify { .. } => {}
        }
    }

    fn tag(&mut self, password: &[u8], salt: &[u8]) -> Option<[u8; TAG]> {
        let mut tag = [0; TAG];
        if self.memory.is_empty() {
            self.memory = pages::vec_of(self.argon2.params().block_count(), &Block::default());
        }
        self.argon2.hash_password_into_with_memory(password, salt, &mut tag, &mut self.memory[..]).ok()?;
        Some(tag)
    }

    fn verify(&mut self, password: &[u8], hash: Option<&str>) -> Verdict {
        let known = hash.unwrap_or(&NOBODY);
        let no = Verdict { matches: false, is_outdated: false };
        if known.starts_with("$2") {
            // Other systems' bcrypt hashes look at 72 bytes only; that is how they were made.
            let text = std::str::from_utf8(password).unwrap_or_default();
            let matches = bcrypt::non_truncating_verify(text, known).or_else(|_| bcrypt::verify(text, known));
            return Verdict { matches: matches.unwrap_or(false), is_outdated: true };
        }
        let Ok(parsed) = PasswordHash::new(known) else { return no };
        match parsed.algorithm.as_str() {
            "argon2id" if known.starts_with(&phc_head()) => {
                let (Some(salt), Some(expected)) = (&parsed.salt, &parsed.hash) else { return no };
                let tag = self.tag(password, salt.as_ref());
                let matches = tag.is_some_and(|tag| same(&tag, expected.as_bytes())) && hash.is_some();
                Verdict { matches, is_outdated: false }
            }
            "argon2id" | "argon2i" | "argon2d" => {
                Verdict { matches: Argon2::default().verify_password(password, &parsed).is_ok(), is_outdated: true }
            }
            "scrypt" => {
                let matches = scrypt::Scrypt::default().verify_password(password, &parsed).is_ok();
                Verdict { matches, is_outdated: true }
            }
            "pbkdf2-sha256" | "pbkdf2-sha512" => {
                let matches = pbkdf2::Pbkdf2::default().verify_password(password, &parsed).is_ok();
                Verdict { matches, is_outdated: true }
            }
            _ => no,
        }
    }
}

/// How a hash made today begins.
fn phc_head() -> String {
    format!("$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}$")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        text.to_owned().into()
    }

    async fn matches(hash: &str, password: &str) -> Verdict {
        Hasher::start(8).verify(&secret(password), Some(hash.to_owned())).await.unwrap()
    }

    #[tokio::test]
    async fn a_password_matches_its_own_hash_and_no_other() {
        let hasher = Hasher::start(8);
        let hash = hasher.hash(&Entropy::system(), &secret("correct horse battery")).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        let fine = Verdict { matches: true, is_outdated: false };
        assert_eq!(matches(&hash, "correct horse battery").await, fine);
        assert!(!matches(&hash, "correct horse batter").await.matches);
        let library = Argon2::default().verify_password(b"correct horse battery", &PasswordHash::new(&hash).unwrap());
        assert!(library.is_ok(), "the reference reads what we write");
        assert!(!hasher.verify(&secret("x"), None).await.unwrap().matches, "nobody's password");
        let composed = hasher.hash(&Entropy::system(), &secret("caf\u{e9} au lait 7")).await.unwrap();
        assert!(matches(&composed, "cafe\u{301} au lait 7").await.matches, "the same text in another form");
        let long = format!("{}{}", "a".repeat(72), "b");
        let hash = hasher.hash(&Entropy::system(), &secret(&long)).await.unwrap();
        assert!(!matches(&hash, &format!("{}{}", "a".repeat(72), "c")).await.matches, "nothing is cut off");
    }

    #[tokio::test]
    async fn hashes_of_other_systems_match_and_ask_to_be_made_anew() {
        let old = Verdict { matches: true, is_outdated: true };
        // Made by other implementations: the reference argon2 and bcrypt, and OpenSSL's scrypt and PBKDF2.
        for hash in [
            "$argon2i$v=19$m=1024,t=2,p=1$OQ+Hn7N+ShnUiZQbpp/xEQ$k4cLbNlxd0tURDm9xx/PfeOQynso8M2Ok3wC0jCkEjY",
            "$argon2id$v=19$m=4096,t=1,p=2$GSQ1U7sMS8W3u5mDoLt28w$pxVuYFVn040jKJst6cIRPVjpzJ1zV4PUSmf0KeyPl54",
            "$scrypt$ln=10,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg$hfwi7YDqcbDAB8/H98PufiIOr78BImxIsh32Kqt5wOo",
            "$pbkdf2-sha256$i=2000,l=32$MDEyMzQ1Njc4OWFiY2RlZg$BcIg9Q+sWgEn/On9k6XkF+S1KanFzF0IOVfjBGV+xXg",
            "$pbkdf2-sha512$i=2000,l=32$MDEyMzQ1Njc4OWFiY2RlZg$9moA1GZeZ5Bb2vm9FCokuPnZ2EiC/tJWfYt+9NMs23k",
            "$2b$04$LyxuRtI9eTlCI20oqb9r6uygrYOP6axhbjc/47sywPyaxrvax1Xxe",
        ] {
            assert_eq!(matches(hash, "imported passphrase").await, old, "{hash}");
            assert!(!matches(hash, "another").await.matches, "{hash}");
        }
        for junk in ["", "plain", "$argon2id$", "$unknown$x$y", "$2b$04$short"] {
            assert!(!matches(junk, "").await.matches, "{junk}");
        }
    }

    #[test]
    fn guessable_passwords_are_refused_with_a_reason() {
        let email = Email::parse("ada.lovelace@example.com");
        let check =
            |text: &str| check("password", &secret(text), email.as_ref(), "Ada Lovelace").map_err(|f| f.to_string());
        for weak in
            ["1234567", "password", "qwertyuiop", "ada.lovelace99!", "11111111", "iloveyou1", &"x".repeat(257)]
        {
            assert!(check(weak).is_err(), "{weak}");
        }
        for good in [
            "tr0ub4dor&3x",
            "correct horse battery staple",
            "q7#Lm2vX",
            &"long and long ".repeat(18),
            "пароль-и-кот-7",
        ] {
            assert!(check(good).is_ok(), "{good}: {:?}", check(good));
        }
    }
}
