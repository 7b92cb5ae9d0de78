//! Replays the corpus of every target, then changes it by a seed. `FUZZ_SECONDS=60` goes on for a minute a target,
//! `FUZZ_SEED=7` tries other changes, `FUZZ_TARGET=wallet` runs one target.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that fails when it must, and says how much it tried"
)]
use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use fuzz::{
    Listed, TARGETS, find,
    mutate::{Dice, mutate},
};

/// How many changed inputs a normal run tries, if two seconds are enough for them.
const MOST: usize = 3000;
const SHORT: Duration = Duration::from_secs(2);
/// How many accepted inputs are changed further.
const POOL: usize = 256;
const SEED: u64 = 39;

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Runs one input. A broken promise keeps it as a file, and says how to see it again.
fn run(listed: &Listed, input: &[u8], told: &str) -> bool {
    catch_unwind(AssertUnwindSafe(|| (listed.target)(input))).unwrap_or_else(|_| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.input", listed.name));
        fs::write(&file, input).unwrap();
        panic!(
            "{}: {told} breaks a promise. The input is in {}: copy it to fuzz/corpus/{}/ and mend what it found.\n{:?}",
            listed.name,
            file.display(),
            listed.name,
            String::from_utf8_lossy(&input[..input.len().min(2000)])
        )
    })
}

#[expect(clippy::disallowed_methods, reason = "how long a run takes is about the real clock")]
fn now() -> Instant {
    Instant::now()
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

fn fuzz(name: &str) {
    if env::var("FUZZ_TARGET").is_ok_and(|only| only != name) {
        return;
    }
    let listed = find(name);
    let (seed, long) = (number("FUZZ_SEED").unwrap_or(SEED), number("FUZZ_SECONDS").map(Duration::from_secs));
    let seeds = corpus(name);
    let mut accepted = 0;
    for (path, input) in &seeds {
        accepted += usize::from(run(listed, input, &path.display().to_string()));
    }
    assert!(accepted > 0, "{name}: the corpus has nothing that is accepted, so nothing is checked");
    assert!(accepted < seeds.len(), "{name}: the corpus has nothing that is refused");
    let mut pool: Vec<Vec<u8>> = seeds.into_iter().map(|(_, input)| input).collect();
    let (begun, mut dice, own) = (now(), Dice::new(seed), pool.len());
    let mut count = 0;
    while long.map_or_else(|| count < MOST && begun.elapsed() < SHORT, |long| begun.elapsed() < long) {
        let from = dice.below(pool.len());
        let input = mutate(&mut dice, &pool[from], &pool, listed.words);
        if run(listed, &input, &format!("change {count} of FUZZ_SEED={seed}")) {
            accepted += 1;
            if pool.len() < POOL {
                pool.push(input);
            } else {
                let at = own + dice.below(POOL - own);
                pool[at] = input;
            }
        }
        count += 1;
    }
    println!("{name}: {count} inputs, {accepted} accepted, {:?}", begun.elapsed());
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            fuzz(stringify!($name));
        })*

        #[test]
        fn every_target_has_a_test() {
            let tested = [$(stringify!($name)),*];
            let listed: Vec<&str> = TARGETS.iter().map(|listed| listed.name).collect();
            assert_eq!(listed, tested);
        }
    };
}

targets! {
    site_archive,
    skill_archive,
    skill_file,
    scim_filter,
    scim_patch,
    redirect_rules,
    header_rules,
    signature_header,
    wallet,
    sign_in_text,
    delivery_report,
    plans_file,
    processor_object,
    traceparent,
    range,
}
