//! What no honest authenticator or browser does (P44): each thing that is signed or said, changed one at a time.
use aws_lc_rs::{
    digest::{SHA256, digest},
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use data_encoding::BASE64URL_NOPAD;
use db::params;
use serde_cbor_2::Value as Cbor;
use serde_json::{Value, json};

use super::*;

const PRESENT: u8 = 0x01;
const VERIFIED: u8 = 0x04;
const BACKUP_ELIGIBLE: u8 = 0x08;
const BACKED_UP: u8 = 0x10;
const ATTESTED: u8 = 0x40;

/// A key in the hands of somebody who can sign what they like.
pub struct Forger {
    pub credential_id: Vec<u8>,
    key: EcdsaKeyPair,
}

/// What is said in one answer.
pub struct Claims {
    kind: &'static str,
    origin: &'static str,
    rp_id: &'static str,
    flags: u8,
    count: u32,
    algorithm: i128,
    spoils_signature: bool,
    is_framed: bool,
}

impl Forger {
    pub fn new() -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let credential_id = digest(&SHA256, key.public_key().as_ref()).as_ref().to_vec();
        Self { credential_id, key }
    }

    fn said(kind: &'static str, flags: u8, change: impl FnOnce(&mut Claims)) -> Claims {
        let (origin, rp_id) = ("http://localhost:0", "localhost");
        let mut said =
            Claims { kind, origin, rp_id, flags, count: 1, algorithm: -7, spoils_signature: false, is_framed: false };
        change(&mut said);
        said
    }

    fn public_key(&self, algorithm: i128) -> Vec<u8> {
        let point = self.key.public_key().as_ref();
        let (x, y) = (Cbor::Bytes(point[1..33].to_vec()), Cbor::Bytes(point[33..].to_vec()));
        let fields = [(1, Cbor::Integer(2)), (3, Cbor::Integer(algorithm)), (-1, Cbor::Integer(1)), (-2, x), (-3, y)];
        let map = fields.into_iter().map(|(name, value)| (Cbor::Integer(name), value)).collect();
        serde_cbor_2::to_vec(&Cbor::Map(map)).unwrap()
    }

    pub fn make(&self, options: &Value, change: impl FnOnce(&mut Claims)) -> Value {
        let said = Self::said("webauthn.create", PRESENT | VERIFIED | ATTESTED, change);
        let mut data = said.authenticator_data();
        data.extend([0; 16]);
        data.extend(u16::try_from(self.credential_id.len()).unwrap().to_be_bytes());
        data.extend(&self.credential_id);
        data.extend(self.public_key(said.algorithm));
        let text = |text: &str| Cbor::Text(text.into());
        let attestation = [
            (text("fmt"), text("none")),
            (text("attStmt"), Cbor::Map([].into())),
            (text("authData"), Cbor::Bytes(data)),
        ];
        let attestation = serde_cbor_2::to_vec(&Cbor::Map(attestation.into_iter().collect())).unwrap();
        let id = BASE64URL_NOPAD.encode(&self.credential_id);
        json!({ "id": id, "rawId": id, "type": "public-key", "clientExtensionResults": {}, "response": {
            "clientDataJSON": BASE64URL_NOPAD.encode(&said.client_data(options)),
            "attestationObject": BASE64URL_NOPAD.encode(&attestation),
        } })
    }

    pub fn sign(&self, options: &Value, user: &str, change: impl FnOnce(&mut Claims)) -> Value {
        let said = Self::said("webauthn.get", PRESENT | VERIFIED, change);
        let (data, client_data) = (said.authenticator_data(), said.client_data(options));
        let signed = [&data, digest(&SHA256, &client_data).as_ref()].concat();
        let mut signature = self.key.sign(&SystemRandom::new(), &signed).unwrap().as_ref().to_vec();
        if said.spoils_signature {
            *signature.last_mut().unwrap() ^= 1;
        }
        let (id, handle) = (BASE64URL_NOPAD.encode(&self.credential_id), user.replace('-', ""));
        let handle = data_encoding::HEXLOWER.decode(handle.as_bytes()).unwrap();
        json!({ "id": id, "rawId": id, "type": "public-key", "clientExtensionResults": {}, "response": {
            "clientDataJSON": BASE64URL_NOPAD.encode(&client_data),
            "authenticatorData": BASE64URL_NOPAD.encode(&data),
            "signature": BASE64URL_NOPAD.encode(&signature),
            "userHandle": BASE64URL_NOPAD.encode(&handle),
        } })
    }
}

impl Claims {
    fn authenticator_data(&self) -> Vec<u8> {
        [digest(&SHA256, self.rp_id.as_bytes()).as_ref(), &[self.flags], &self.count.to_be_bytes()].concat()
    }

    fn client_data(&self, options: &Value) -> Vec<u8> {
        let challenge = &options["publicKey"]["challenge"];
        json!({ "type": self.kind, "challenge": challenge, "origin": self.origin, "crossOrigin": self.is_framed })
            .to_string()
            .into_bytes()
    }
}

type Change = fn(&mut Claims);

#[tokio::test]
async fn p44_a_new_passkey_is_checked_in_all_it_says() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let wrong: &[(&str, Change)] = &[
        ("another origin", |said| said.origin = "https://localhost.example"),
        ("another port", |said| said.origin = "http://localhost:1"),
        ("another scheme", |said| said.origin = "https://localhost:0"),
        ("a part of our host", |said| said.origin = "http://app.localhost:0"),
        ("another host", |said| said.rp_id = "example.com"),
        ("a signature in place of a key", |said| said.kind = "webauthn.get"),
        ("nobody there", |said| said.flags &= !PRESENT),
        ("nobody recognised", |said| said.flags &= !VERIFIED),
        ("backed up and cannot be", |said| said.flags |= BACKED_UP),
        ("no key in it", |said| said.flags &= !ATTESTED),
        ("an algorithm that was not offered", |said| said.algorithm = -47),
    ];
    for (what, change) in wrong {
        let made = Forger::new().make(&options(&t, &ada).await, change);
        let answer = keep(&t, &ada, &made).await;
        assert_eq!(answer.refusal(), (400, "passkey_refused"), "{what}");
    }
    let framed = Forger::new().make(&options(&t, &ada).await, |said| said.is_framed = true);
    assert_eq!(keep(&t, &ada, &framed).await.refusal(), (400, "passkey_refused"), "inside another site's page");
    let mut short = Forger::new();
    short.credential_id.truncate(15);
    let short = short.make(&options(&t, &ada).await, |_| {});
    assert_eq!(keep(&t, &ada, &short).await.refusal(), (400, "passkey_refused"), "an id that could meet another's");
    let not_one = keep(&t, &ada, &json!({ "id": "x" })).await;
    assert_eq!((not_one.status, not_one.wrong_fields()), (400, vec!["credential"]));
    assert_eq!(ada.asks(t.get("/auth/me")).await.body["passkeys"], json!([]));
    let made = Forger::new().make(&options(&t, &ada).await, |said| said.flags |= BACKUP_ELIGIBLE | BACKED_UP);
    let kept = keep(&t, &ada, &made).await;
    assert_eq!((kept.status, &kept.body["deviceName"]), (200, &json!("Passkey (Firefox on Linux)")), "{}", kept.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p44_a_signature_is_checked_in_all_it_says() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let forger = Forger::new();
    assert_eq!(keep(&t, &ada, &forger.make(&options(&t, &ada).await, |_| {})).await.status, 200);
    let wrong: &[(&str, Change)] = &[
        ("another origin", |said| said.origin = "https://localhost.example"),
        ("another port", |said| said.origin = "http://localhost:1"),
        ("a part of our host", |said| said.origin = "http://app.localhost:0"),
        ("another host", |said| said.rp_id = "example.com"),
        ("a key in place of a signature", |said| said.kind = "webauthn.create"),
        ("nobody there", |said| said.flags &= !PRESENT),
        ("nobody recognised", |said| said.flags &= !VERIFIED),
        ("backed up and cannot be", |said| said.flags |= BACKED_UP),
        ("a spoilt signature", |said| said.spoils_signature = true),
        ("a count that stands still, as that of a copy does", |_| {}),
    ];
    t.happened().await;
    for (what, change) in wrong {
        let signed = forger.sign(&login_options(&t).await, &ada.id, |said| {
            said.count = 2;
            change(said);
            if what.starts_with("a count") {
                said.count = 1;
            }
        });
        assert_eq!(come_in(&t, &signed).await.refusal(), (401, "invalid_passkey"), "{what}");
        assert_eq!(t.happened().await, ["SIGN_IN_FAILED"], "{what}: its owner can see it");
    }
    let framed = forger.sign(&login_options(&t).await, &ada.id, |said| said.is_framed = true);
    assert_eq!(come_in(&t, &framed).await.refusal(), (400, "passkey_refused"), "inside another site's page");
    let signed = forger.sign(&login_options(&t).await, &ada.id, |said| said.count = 2);
    assert_eq!(Person::of(&come_in(&t, &signed).await).id, ada.id);
    let stranger = Forger::new().sign(&login_options(&t).await, &ada.id, |_| {});
    assert_eq!(come_in(&t, &stranger).await.refusal(), (401, "invalid_passkey"));
    t.run_jobs().await;
    t.finish().await;
}

/// Two apps with a domain each that is served; pages of both may ask for passkeys. Their keys.
async fn apps_with_domains(t: &TestJanua) -> [String; 2] {
    const ORG: &str = "0199f3a0-0000-7000-8000-000000000001";
    let db = &t.janua.db;
    let org = "INSERT INTO org (id, name, slug, tier, metadata, created_at, updated_at)
               VALUES ($1, 'Acme', 'acme', 'free', '{}', 0, 0)";
    db.exec(org, params![ORG]).await.unwrap();
    let mut keys = vec![];
    for (number, slug) in [(2, "shop"), (3, "evil")] {
        let id = format!("0199f3a0-0000-7000-8000-00000000000{number}");
        let app = "INSERT INTO app (id, org_id, name, slug, redirect_uris, allowed_origins, settings, created_at, updated_at)
                   VALUES ($1, $2, $3, $3, '[]', '[]', '{}', 0, 0)";
        db.exec(app, params![&id, ORG, slug]).await.unwrap();
        let key = format!("pk_live_{slug}{}", "x".repeat(39));
        let insert = "INSERT INTO app_key (id, app_id, hash, kind, environment, prefix, created_at)
                      VALUES ($1, $1, $2, 'publishable', 'live', 'pk_live_', 0)";
        db.exec(insert, params![&id, kernel::crypto::hash(key.as_bytes())]).await.unwrap();
        let domain =
            "INSERT INTO app_domain (id, app_id, org_id, domain, token, created_at, verified_at, attached_at,
                          status, status_since, passkeys_at)
                      VALUES ($1, $1, $2, $3, 'x', 0, 0, 0, 'active', 0, $4)";
        db.exec(domain, params![&id, ORG, format!("{slug}.example"), number]).await.unwrap();
        keys.push(key);
    }
    keys.try_into().unwrap()
}

#[tokio::test]
async fn p44_pages_of_a_served_domain_sign_in_to_their_own_app_and_nowhere_else() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let forger = Forger::new();
    assert_eq!(keep(&t, &ada, &forger.make(&options(&t, &ada).await, |_| {})).await.status, 200);
    let [shop, evil] = apps_with_domains(&t).await;
    let listed = t.get("/.well-known/webauthn").await;
    assert_eq!(listed.header("content-type"), "application/json");
    assert_eq!(listed.body["origins"], json!(["http://localhost:0", "https://shop.example", "https://evil.example"]));
    let mut count = 1;
    let mut comes = async |origin: &'static str, key: Option<&str>| {
        count += 1;
        let signed =
            forger.sign(&login_options(&t).await, &ada.id, |said| (said.count, said.origin) = (count, origin));
        let body = json!({ "credential": signed, "options": { "tokenDelivery": "body" } });
        let ask = t.post("/auth/passkey/login-verify").json(&body).header("user-agent", FIREFOX);
        match key {
            Some(key) => ask.header("x-service-app-key", key).await,
            None => ask.await,
        }
    };
    // A page of one app that passes an answer on with no key would be in the service itself; with another's, in that app.
    for (origin, key) in [
        ("https://evil.example", None),
        ("https://evil.example", Some(&shop)),
        ("https://shop.example", Some(&evil)),
        ("https://shop.example:8443", Some(&shop)),
        ("http://shop.example", Some(&shop)),
        ("https://a.shop.example", Some(&shop)),
    ] {
        let refused = comes(origin, key.map(String::as_str)).await;
        assert_eq!(refused.refusal(), (401, "invalid_passkey"), "{origin} {key:?}");
    }
    let inside = Person::of(&comes("https://shop.example", Some(&shop)).await);
    assert_eq!(inside.id, ada.id);
    assert_eq!(inside.asks(t.get("/user/orgs")).await.refusal(), (403, "app_session"), "a session of the app alone");
    assert_eq!(comes("http://localhost:0", None).await.status, 200, "our own pages as before");
    // A passkey is made on our own pages alone.
    let made = Forger::new().make(&options(&t, &ada).await, |said| said.origin = "https://shop.example");
    assert_eq!(keep(&t, &ada, &made).await.refusal(), (400, "passkey_refused"));
    // A domain that is no longer served is no longer listed, and its pages no longer come in.
    t.janua.db.exec("UPDATE app_domain SET status = 'misconfigured'", params![]).await.unwrap();
    assert_eq!(t.get("/.well-known/webauthn").await.body["origins"], json!(["http://localhost:0"]));
    assert_eq!(comes("https://shop.example", Some(&shop)).await.refusal(), (401, "invalid_passkey"));
    t.run_jobs().await;
    t.finish().await;
}
