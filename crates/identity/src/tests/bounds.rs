//! What is too much, too little, or in the wrong place.
use serde_json::json;

use super::actors::*;

#[tokio::test]
async fn p30_passwords_of_every_allowed_length_work_whole() {
    let t = start().await;
    let long: String = (0..256_u32).map(|i| char::from_u32(0x61 + (i * 7) % 26).unwrap_or('a')).collect();
    for (i, (password, expected)) in [
        ("q7#Lm2v".to_owned(), 400),
        ("q7#Lm2vX".to_owned(), 200),
        ("drei Wörter & ein Äpfelchen".to_owned(), 200),
        (long.clone(), 200),
        (format!("{long}x"), 400),
    ]
    .into_iter()
    .enumerate()
    {
        let email = format!("person{i}@example.com");
        let body = json!({ "email": email, "password": password, "name": "P" });
        let answer = t.post("/auth/register").json(&body).await;
        assert_eq!(answer.status, expected, "{} characters: {}", password.chars().count(), answer.text);
        t.run_jobs().await;
        if expected == 200 {
            let token = token_in(&mail_to(&t, &email).unwrap());
            t.post("/auth/verify-email").json(&json!({ "token": token })).await;
            assert_eq!(login(&t, &email, &password).await.status, 200);
            let cut: String = password.chars().take(password.chars().count() - 1).collect();
            assert_eq!(login(&t, &email, &cut).await.status, 401, "nothing is cut off");
        }
    }
    t.finish().await;
}

#[tokio::test]
async fn p51_nobody_assigns_what_is_not_theirs_to_assign() {
    let t = start().await;
    let body = json!({
        "email": "ada@example.com", "password": PASSWORD, "name": "Ada", "id": "019c137e-c107-7f36-aa03-c8508b253019",
        "emailVerified": true, "role": "owner", "tier": "enterprise", "mfaEnabled": true, "createdAt": 0,
    });
    assert_eq!(t.post("/auth/register").json(&body).await.status, 200);
    t.run_jobs().await;
    assert_eq!(login(&t, "ada@example.com", PASSWORD).await.refusal(), (403, "email_not_verified"));
    let token = token_in(&mail_to(&t, "ada@example.com").unwrap());
    t.post("/auth/verify-email").json(&json!({ "token": token })).await;
    let person = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    assert_ne!(person.id, "019c137e-c107-7f36-aa03-c8508b253019");
    t.finish().await;
}

#[tokio::test]
async fn p46_a_session_is_never_one_that_somebody_brought_along() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let body = json!({ "email": "ada@example.com", "password": PASSWORD });
    let brought = "service_access=planted; service_refresh=planted";
    let first =
        t.post("/auth/login").json(&body).header("cookie", brought).header("sec-fetch-site", "same-origin").await;
    let second = t.post("/auth/login").json(&body).await;
    let values = |answer: &kernel::testing::Answer| {
        let lines = answer.headers.get_all("set-cookie").iter();
        lines.map(|line| line.to_str().unwrap().split(';').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(values(&first).iter().all(|value| !value.contains("planted")), "{:?}", values(&first));
    assert!(values(&first).iter().zip(values(&second)).all(|(one, other)| *one != other), "always a new value");
    t.finish().await;
}

#[tokio::test]
async fn p47_asking_with_get_changes_nothing() {
    let t = start().await;
    let paths = t.janua.description.get().unwrap().value()["paths"].as_object().unwrap().clone();
    for (path, item) in paths.iter().filter(|(_, item)| item.get("get").is_none()) {
        let answer = t.get(&path.replace(['{', '}'], "")).await;
        assert_eq!(answer.refusal(), (405, "method_not_allowed"), "{path}: {item}");
    }
    t.finish().await;
}

#[tokio::test]
async fn p73_what_is_too_large_for_the_door_is_refused() {
    let t = start().await;
    let large = json!({ "email": "ada@example.com", "password": PASSWORD, "name": "x".repeat(300 * 1024) });
    for path in ["/auth/register", "/auth/login", "/auth/forgot-password"] {
        assert_eq!(t.post(path).json(&large).await.refusal(), (413, "too_large"), "{path}");
    }
    let many: serde_json::Map<_, _> = (0..20_000).map(|i| (format!("k{i}"), json!(1))).collect();
    let answer = t.post("/auth/login").json(&json!(many)).await;
    assert_eq!(answer.refusal(), (400, "invalid"), "twenty thousand fields");
    let nul = json!({ "email": "ada@example.com", "password": PASSWORD, "name": "A\u{0}B" });
    let answer = t.post("/auth/register").json(&nul).await;
    assert_eq!(
        (answer.refusal(), answer.wrong_fields()),
        ((400, "invalid"), vec!["name"]),
        "refused before it waits"
    );
    t.finish().await;
}
