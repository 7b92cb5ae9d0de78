//! A lockout falls on the attacker, never on the person.
use std::time::Duration;

use data_encoding::BASE64;
use kernel::testing::{Answer, TestJanua};
use serde_json::json;

use super::{
    actors::*,
    factors::{careful, ticket},
};

const ADA: &str = "ada@example.com";
const HOME: &str = "198.51.100.7";

async fn password_from(t: &TestJanua, network: &str, password: &str, pass: Option<&str>) -> Answer {
    let body = json!({ "email": ADA, "password": password, "options": { "tokenDelivery": "body" } });
    let ask = t.post("/auth/login").json(&body).from(network).header("user-agent", FIREFOX);
    match pass {
        Some(pass) => ask.header("x-service-captcha-pass", pass).await,
        None => ask.await,
    }
}

/// Solves the challenge of a refusal, for a pass.
pub async fn solve(t: &TestJanua, refused: &Answer) -> String {
    let challenge: altcha::Challenge = serde_json::from_value(refused.body["challenge"].clone()).unwrap();
    let solution = altcha::solve_challenge(altcha::SolveChallengeOptions::new(&challenge)).unwrap().unwrap();
    let token = BASE64.encode(json!({ "challenge": challenge, "solution": solution }).to_string().as_bytes());
    let answer = t.post("/auth/captcha/verify").json(&json!({ "token": token })).await;
    answer.body["captchaPass"].as_str().unwrap_or_default().to_owned()
}

/// Wrong passwords from one network, until it is closed for the account.
pub async fn lock(t: &TestJanua, email: &str, network: &str) {
    let guess = async |pass: Option<&str>| {
        let ask = t.post("/auth/login").json(&json!({ "email": email, "password": "wrong guess" }));
        let ask = ask.from(network).header("user-agent", FIREFOX);
        match pass {
            Some(pass) => ask.header("x-service-captcha-pass", pass).await,
            None => ask.await,
        }
    };
    for _ in 0..30 {
        let mut answer = guess(None).await;
        if answer.refusal() == (403, "captcha_required") {
            let pass = solve(t, &answer).await;
            answer = guess(Some(&pass)).await;
        }
        if answer.refusal() == (429, "rate_limited") {
            t.run_jobs().await;
            return;
        }
        assert_eq!(answer.refusal(), (401, "invalid_credentials"), "{}", answer.text);
    }
    panic!("{network} is still open");
}

/// Wrong passwords from many networks, as far as they are let.
async fn attack(t: &TestJanua, tries: usize) -> Vec<Answer> {
    let mut answers = vec![];
    for i in 0..tries {
        answers.push(password_from(t, &format!("203.0.113.{i}"), "wrong guess", None).await);
    }
    t.run_jobs().await;
    answers
}

#[tokio::test]
async fn whoever_guesses_from_everywhere_shuts_nobody_out() {
    let t = start().await;
    member(&t, ADA).await;
    assert_eq!(password_from(&t, HOME, PASSWORD, None).await.status, 200);
    let answers = attack(&t, 30).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 401).count(), 5, "the others are to solve a riddle");
    assert!(answers[5..].iter().all(|answer| answer.refusal() == (403, "captcha_required")), "{answers:?}");

    assert_eq!(password_from(&t, HOME, PASSWORD, None).await.status, 200, "where the person has signed in before");
    let away = password_from(&t, "192.0.2.77", PASSWORD, None).await;
    assert_eq!(away.refusal(), (403, "captcha_required"), "an unknown network is asked for a proof of work");
    let pass = solve(&t, &away).await;
    assert_eq!(password_from(&t, "192.0.2.77", PASSWORD, Some(&pass)).await.status, 200, "and then it is let in");
    for path in ["/auth/forgot-password", "/auth/magic-link/request"] {
        let before = t.mailbox.mails().len();
        let answer = t.post(path).json(&json!({ "email": ADA })).from("192.0.2.78").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        t.run_jobs().await;
        assert_eq!(t.mailbox.mails().len(), before + 1, "{path}");
    }
    t.finish().await;
}

#[tokio::test]
async fn a_network_that_guesses_is_closed_and_a_trusted_device_in_it_is_not() {
    let t = start().await;
    let ada = careful(&t, ADA).await;
    let waiting = ticket(&login(&t, ADA, PASSWORD).await);
    let body = json!({ "mfaTicket": waiting, "code": ada.code(&t), "trustDevice": true });
    let trusted = t.post("/auth/2fa/login-verify").json(&body).await;
    let lines = trusted.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let cookie = lines.filter(|line| line.starts_with("service_mfa_trusted=")).collect::<Vec<_>>();
    let cookie = cookie[0].split(';').next().unwrap().to_owned();

    // In the same network, where everything else of this test comes from.
    let guess = |pass: Option<String>| {
        let ask = t.post("/auth/login").json(&json!({ "email": ADA, "password": "wrong guess" }));
        let ask = ask.header("user-agent", FIREFOX);
        match pass {
            Some(pass) => ask.header("x-service-captcha-pass", &pass).send(),
            None => ask.send(),
        }
    };
    for _ in 0..5 {
        assert_eq!(guess(None).await.refusal(), (401, "invalid_credentials"));
    }
    for _ in 5..10 {
        let refused = guess(None).await;
        let pass = solve(&t, &refused).await;
        assert_eq!(guess(Some(pass)).await.refusal(), (401, "invalid_credentials"));
    }
    assert_eq!(guess(None).await.refusal(), (429, "rate_limited"), "closed for this network");
    t.run_jobs().await;

    let body = json!({ "email": ADA, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let own = t.post("/auth/login").json(&body).header("cookie", &cookie).header("user-agent", FIREFOX).await;
    assert_eq!(own.status, 200, "{}", own.text);
    assert!(own.body.get("accessToken").is_some(), "{}", own.text);
    for path in ["/auth/forgot-password", "/auth/magic-link/request"] {
        let answer = t.post(path).json(&json!({ "email": ADA })).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
    t.run_jobs().await;
    assert_eq!(
        password_from(&t, HOME, PASSWORD, None).await.status,
        403,
        "elsewhere only a proof of work is asked for"
    );

    // A stolen mark is worth ten tries, not more.
    let wrong = json!({ "email": ADA, "password": "wrong guess" });
    let mut refusals = vec![];
    for _ in 0..12 {
        refusals.push(t.post("/auth/login").json(&wrong).header("cookie", &cookie).await.status);
    }
    assert_eq!(refusals.iter().filter(|status| **status == 401).count(), 10, "{refusals:?}");
    t.advance(Duration::from_mins(16));
    assert_eq!(
        login(&t, ADA, PASSWORD).await.status,
        200,
        "and after a quarter of an hour the network is open again"
    );
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn guessing_from_everywhere_grows_dearer() {
    let t = start().await;
    member(&t, ADA).await;
    attack(&t, 6).await;
    let cheap = password_from(&t, "192.0.2.1", "wrong guess", None).await;
    let pass = solve(&t, &cheap).await;
    // Many more wrong ones, as if each had come with a pass.
    t.janua
        .db
        .exec("UPDATE strike SET strikes = 15 WHERE detail = '' AND strikes >= 5", db::params![])
        .await
        .unwrap();
    let later = password_from(&t, "192.0.2.1", PASSWORD, Some(&pass)).await;
    assert_eq!(later.refusal(), (403, "captcha_required"), "a pass for little work is no longer enough");
    let pass = solve(&t, &later).await;
    assert_eq!(password_from(&t, "192.0.2.1", PASSWORD, Some(&pass)).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

/// A ticket for somebody who knows the password, and a code that is tried with it.
async fn code_from(t: &TestJanua, network: &str, code: &str) -> Answer {
    let waiting = ticket(&password_from(t, network, PASSWORD, None).await);
    let body = json!({ "mfaTicket": waiting, "code": code });
    t.post("/auth/2fa/login-verify").json(&body).from(network).header("user-agent", FIREFOX).await
}

#[tokio::test]
async fn guessing_codes_shuts_out_the_network_that_guesses_and_not_the_owner() {
    let t = start().await;
    let ada = careful(&t, ADA).await;
    for i in 0..10 {
        assert_eq!(code_from(&t, "203.0.113.1", "000000").await.refusal(), (401, "invalid_code"), "{i}");
    }
    let locked = code_from(&t, "203.0.113.1", "000000").await;
    assert_eq!(locked.refusal(), (429, "rate_limited"), "there it is over");
    assert_eq!(code_from(&t, "127.0.0.1", &ada.code(&t)).await.status, 200, "the owner is let in at home");
    // Knocking at the closed door does not keep it closed.
    for _ in 0..3 {
        t.advance(Duration::from_mins(5));
        assert!(matches!(code_from(&t, "203.0.113.1", "000000").await.status, 401 | 429));
    }
    t.advance(Duration::from_mins(1));
    assert_eq!(code_from(&t, "203.0.113.1", "000000").await.refusal(), (401, "invalid_code"), "a quarter of an hour");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn codes_are_guessed_some_tens_of_times_a_day_from_everywhere() {
    let t = start().await;
    let ada = careful(&t, ADA).await;
    // To the beginning of a day.
    let day = 86_400_000;
    t.advance(Duration::from_millis(u64::try_from(day - t.janua.clock.now().0 % day).unwrap()));
    let mut tried = 0;
    for i in 0..60 {
        // Also later in the day: no pause gives back what was used.
        t.advance(Duration::from_mins(17));
        tried += usize::from(code_from(&t, &format!("203.0.113.{i}"), "000000").await.status == 401);
    }
    assert_eq!(tried, 20, "from sixty networks within a day");
    let away = code_from(&t, "192.0.2.9", &ada.code(&t)).await;
    assert_eq!(away.refusal(), (429, "rate_limited"), "a network nobody knows has to wait for tomorrow");
    assert_eq!(code_from(&t, "127.0.0.1", &ada.code(&t)).await.status, 200, "the owner is let in at home");
    assert_eq!(
        code_from(&t, "192.0.2.9", "000000").await.refusal(),
        (429, "rate_limited"),
        "which gives nothing back"
    );
    t.advance(Duration::from_hours(24));
    assert_eq!(code_from(&t, "192.0.2.9", &ada.code(&t)).await.status, 200, "tomorrow");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn many_small_networks_of_one_large_one_are_one_attacker() {
    let t = start().await;
    member(&t, ADA).await;
    let entered = password_from(&t, "2001:db8:1:ffff::1", PASSWORD, None).await;
    assert_eq!(entered.status, 200, "who succeeds is not counted");
    let spray = |site: &str, i: usize| {
        let body = json!({ "email": format!("nobody{i}@example.com"), "password": "wrong guess" });
        let from = format!("2001:db8:{site}:{i:x}::1");
        t.post("/auth/login").json(&body).from(&from).header("user-agent", FIREFOX).send()
    };
    for i in 0..160 {
        assert_eq!(spray("1", i).await.refusal(), (401, "invalid_credentials"), "{i}");
    }
    assert_eq!(spray("1", 161).await.refusal(), (403, "captcha_required"), "160 accounts from one /48");
    assert_eq!(spray("2", 161).await.refusal(), (401, "invalid_credentials"), "and nowhere else");
    t.run_jobs().await;
    t.finish().await;
}
