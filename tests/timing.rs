//! Response times do not reveal whether an email has an account (P28). A program of its own, because cargo runs one test
//! program at a time: nothing else of the suite may run during the measurement.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test on the real clock that fails when it must"
)]
mod support;

use std::time::{Duration, Instant};

use kernel::entropy::Entropy;
use serde_json::{Value, json};
use support::{Server, Visit, mail_with, token_in, wait};

const KNOWN: &str = "ada@example.com";
const PASSWORD: &str = "correct horse battery staple";
/// For each of the two kinds of address.
const SAMPLES: usize = 400;
/// A measurement that chance can spoil is made again; what leaks, leaks each time.
const TRIES: usize = 3;

/// How likely a request for a known address takes longer than one for an unknown one (Mann-Whitney). One half tells
/// nothing.
fn longer(known: &[Duration], unknown: &[Duration]) -> f64 {
    let half_wins = known.iter().map(|known| {
        let below = unknown.partition_point(|unknown| unknown < known);
        let same = unknown[below..].partition_point(|unknown| unknown == known);
        2 * below + same
    });
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let share = half_wins.sum::<usize>() as f64 / (2 * known.len() * unknown.len()) as f64;
    share
}

fn took(visit: &mut Visit, path: &str, body: &Value) -> Duration {
    let body = body.to_string();
    let started = Instant::now();
    let (status, answer) = visit.ask("POST", path, "", &body);
    let took = started.elapsed();
    assert!(matches!(status, 200 | 401), "{path}: {status} {answer}");
    took
}

/// Both kinds of address in an order of chance: what a request leaves to be done in the background falls on both.
fn shuffled() -> impl Iterator<Item = bool> {
    let mut left = (SAMPLES, SAMPLES);
    std::iter::from_fn(move || {
        let all = left.0 + left.1;
        (all > 0).then(|| {
            let is_known = usize::from_ne_bytes(Entropy::system().bytes()) % all < left.0;
            *if is_known { &mut left.0 } else { &mut left.1 } -= 1;
            is_known
        })
    })
}

type Body<'a> = &'a dyn Fn(&str) -> Value;

/// Says why the two can be told apart, or nothing.
fn difference(visit: &mut Visit, path: &str, body: impl Fn(&str) -> Value, round: usize) -> Option<String> {
    let (mut known, mut unknown) = (vec![], vec![]);
    for (i, is_known) in shuffled().enumerate() {
        let stranger = format!("stranger-{round}-{i}@example.com");
        let sample = took(visit, path, &body(if is_known { KNOWN } else { &stranger }));
        if is_known { &mut known } else { &mut unknown }.push(sample);
    }
    known.sort();
    unknown.sort();
    let share = longer(&known, &unknown);
    let (known, unknown) = (known[known.len() / 2], unknown[unknown.len() / 2]);
    let apart = known.abs_diff(unknown);
    let is_alike = (0.45..=0.55).contains(&share) && apart < Duration::from_millis(2).max(known / 20);
    (!is_alike).then(|| format!("{path}: {share:.3}, medians {known:?} and {unknown:?}"))
}

#[test]
fn p28_a_watch_tells_nobody_who_has_an_account() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[("JANUA_RATE_LIMITS", "off")]);
    let mut visit = server.visit();
    let body = json!({ "email": KNOWN, "password": PASSWORD, "name": "Ada" }).to_string();
    assert_eq!(visit.ask("POST", "/auth/register", "", &body).0, 200);
    let outbox = folder.path().join("data/outbox");
    let mail = wait("the mail", || mail_with(&outbox, "Confirm your email"));
    let body = json!({ "token": token_in(&mail) }).to_string();
    assert_eq!(visit.ask("POST", "/auth/verify-email", "", &body).0, 200);

    let only_email = |email: &str| json!({ "email": email });
    let wrong_password = |email: &str| json!({ "email": email, "password": "not the password" });
    let sign_up = |email: &str| json!({ "email": email, "password": PASSWORD, "name": "A" });
    let doors: [(&str, Body<'_>); 5] = [
        ("/auth/login", &wrong_password),
        ("/auth/forgot-password", &only_email),
        ("/auth/magic-link/request", &only_email),
        ("/auth/resend-verification", &only_email),
        ("/auth/register", &sign_up),
    ];
    for (path, body) in doors {
        let differences: Vec<_> = (0..TRIES).map_while(|round| difference(&mut visit, path, body, round)).collect();
        assert!(differences.len() < TRIES, "{differences:#?}");
    }
}

#[test]
fn a_difference_would_be_seen() {
    let fast: Vec<_> = (0..100).map(Duration::from_micros).collect();
    let slow: Vec<_> = (20..120).map(Duration::from_micros).collect();
    assert!((longer(&fast, &fast) - 0.5).abs() < 1e-9);
    assert!(longer(&slow, &fast) > 0.65);
    assert!(longer(&fast, &slow) < 0.35);
}
