//! Webhooks of the running binary: what it acknowledged arrives, however often it is killed on the way.
//! Every delivery is verified with the library for receivers.
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::Path,
    time::{Duration, Instant},
};

use janua_client::{Verifier, verify_webhook};
use serde_json::{Value, json};

use crate::support::{
    Server, extent, mail_with,
    receiver::{Came, Receiver},
    token_in, wait,
};

const PASSWORD: &str = "correct horse battery staple";
const SETTINGS: [(&str, &str); 3] =
    [("JANUA_WEBHOOK_ALLOW_NETS", "127.0.0.0/8"), ("WEBHOOK_ALLOW_HTTP", "1"), ("JANUA_RATE_LIMITS", "off")];

struct Owner {
    token: String,
    app: String,
    key: String,
}

fn ask(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> Value {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (status, said) = server.visit().ask(method, path, token, &text);
    assert!((200..300).contains(&status), "{method} {path}: {status} {said}");
    serde_json::from_str(&said).unwrap_or_default()
}

fn settle(server: &Server, folder: &Path) -> Owner {
    let person = json!({ "email": "ada@example.com", "password": PASSWORD, "name": "Ada" });
    ask(server, "POST", "/auth/register", "", &person);
    let outbox = folder.join("data/outbox");
    let mail = wait("the mail", || mail_with(&outbox, "ada@example.com").filter(|mail| mail.contains("?token=")));
    ask(server, "POST", "/auth/verify-email", "", &json!({ "token": token_in(&mail) }));
    let login = json!({ "email": "ada@example.com", "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let token = ask(server, "POST", "/auth/login", "", &login)["accessToken"].as_str().unwrap().to_owned();
    let app = ask(server, "POST", "/apps", &token, &json!({ "name": "Shop" }))["id"].as_str().unwrap().to_owned();
    let wanted = json!({ "type": "publishable", "environment": "live" });
    let key =
        ask(server, "POST", &format!("/apps/{app}/keys"), &token, &wanted)["value"].as_str().unwrap().to_owned();
    Owner { token, app, key }
}

#[test]
fn what_was_acknowledged_arrives_though_the_server_is_killed_again_and_again() {
    let cycles = extent(6, 200, "kills") as u64;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let receiver = Receiver::start(Duration::from_millis(30));
    // Each run listens on another port; the tokens are to be good for all of them.
    let settings = [&SETTINGS[..], &[("JANUA_BASE_URL", "http://localhost")]].concat();
    let mut server = Server::start(folder.path(), &settings);
    let owner = settle(&server, folder.path());
    assert!(owner.key.starts_with("pk_live_"));
    let hooks = format!("/apps/{}/webhooks", owner.app);
    let webhook = ask(&server, "POST", &hooks, &owner.token, &json!({ "url": receiver.url, "events": ["audit.*"] }));
    let secret = webhook["secret"].as_str().unwrap().to_owned();

    // Keys are made and removed; each answer names the key, and so does each event.
    let mut acknowledged: BTreeSet<(&str, String)> = BTreeSet::new();
    let keys = format!("/apps/{}/keys", owner.app);
    for cycle in 0..cycles {
        let ends = Instant::now() + Duration::from_millis(60 + cycle * 97 % 500);
        let mut visit = server.visit();
        while Instant::now() < ends {
            let wanted = r#"{"type":"publishable","environment":"live"}"#;
            let (status, said) = visit.ask("POST", &keys, &owner.token, wanted);
            assert_eq!(status, 200, "{said}");
            let id = serde_json::from_str::<Value>(&said).unwrap()["id"].as_str().unwrap().to_owned();
            acknowledged.insert(("audit.APP_KEY_CREATED", id.clone()));
            let (status, said) = visit.ask("DELETE", &format!("{keys}/{id}"), &owner.token, "");
            assert_eq!(status, 204, "{said}");
            acknowledged.insert(("audit.APP_KEY_DELETED", id));
        }
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        server = Server::start(folder.path(), &settings);
    }
    let arrived = || {
        let all = receiver.all();
        let parsed = all.iter().map(|came| serde_json::from_slice::<Value>(&came.body).unwrap());
        let names = parsed.filter_map(|body| {
            Some((body["event"].as_str()?.to_owned(), body["details"]["keyId"].as_str()?.to_owned()))
        });
        names.collect::<HashSet<_>>()
    };
    let started = Instant::now();
    loop {
        let there = arrived();
        let missing = acknowledged.iter().filter(|(event, id)| !there.contains(&((*event).to_owned(), id.clone())));
        let missing = missing.count();
        if missing == 0 {
            break;
        }
        assert!(started.elapsed() < Duration::from_mins(2), "{missing} of {} never came", acknowledged.len());
        std::thread::sleep(Duration::from_millis(200));
    }
    // What was in hand when it was killed may come twice, and nothing more than that.
    std::thread::sleep(Duration::from_secs(2));
    let all = receiver.all();
    let mut times: HashMap<String, u64> = HashMap::new();
    for Came { signature, body, at } in all.iter() {
        assert_eq!(verify_webhook(signature, body, &secret, *at), Ok(()), "every one is genuine");
        let body: Value = serde_json::from_slice(body).unwrap();
        *times.entry(body["deliveryId"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert!(times.values().all(|count| *count <= 3 + cycles), "each at most once more a kill");
    let twice = all.len() - times.len();
    assert!(twice as u64 <= 16 * cycles, "{twice} of {} came again", times.len());
    println!("{} acknowledged, {} arrived, {twice} of them again", acknowledged.len(), times.len());
}

#[test]
fn the_librarys_verifier_knows_a_real_token_and_no_other() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), &SETTINGS);
    let owner = settle(&server, folder.path());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let base = format!("http://localhost:{}", server.address.port());
    runtime.block_on(async {
        use janua_client::TokenError;
        let verifier = Verifier::new(&base).unwrap();
        let claims = verifier.verify(&owner.token).await.unwrap();
        assert_eq!((claims.iss.as_str(), claims.email.as_deref()), (base.as_str(), Some("ada@example.com")));
        let bearer = format!("Bearer {}", owner.token);
        assert_eq!(verifier.verify_request(None, Some(&bearer)).await, Ok(claims.clone()));
        let (signed, signature) = owner.token.rsplit_once('.').unwrap();
        let flipped = if signature.starts_with('A') { "B" } else { "A" };
        let forged = format!("{signed}.{flipped}{}", &signature[1..]);
        assert_eq!(verifier.verify(&forged).await, Err(TokenError::Signature));
        let for_app = Verifier::new(&base).unwrap().for_app(&owner.app);
        assert_eq!(for_app.verify(&owner.token).await, Err(TokenError::Audience));
        let late = Verifier::new(&base).unwrap().with_clock(move || claims.exp);
        assert_eq!(late.verify(&owner.token).await, Err(TokenError::Expired));
        // The keys are kept: the service may be away for a while.
        drop(server);
        assert!(verifier.verify(&owner.token).await.is_ok());
        let later = Verifier::new(&base).unwrap();
        assert!(matches!(later.verify(&owner.token).await, Err(TokenError::KeysUnavailable(_))));
    });
}
