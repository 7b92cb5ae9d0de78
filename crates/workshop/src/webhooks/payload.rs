//! What a delivery says: its body, and the description of it. No token, secret or hash is among the facts it is made of.
use std::fmt;

use kernel::{clock::Timestamp, http::Routes};
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};

use super::deliveries::Delivery;

/// No body is larger.
pub const MOST: usize = 256 * 1024;

/// What is sent. It is made of what is stored alone, so that every attempt says the same, byte for byte.
pub fn body(delivery: &Delivery) -> Vec<u8> {
    serde_json::from_str(&delivery.facts)
        .and_then(|facts| told(&delivery.event, delivery.id, facts))
        .unwrap_or_default()
}

/// The parts of an object, each as it is written. They are named by us: no name needs an escape. A list and no map,
/// because there are a dozen of them and one is made for every attempt.
#[derive(Default)]
struct Parts<'a>(Vec<(&'a str, &'a RawValue)>);

impl<'a> Parts<'a> {
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// In the order of their names; of two with one name the later one.
    fn sorted(mut self) -> Self {
        self.0.sort_by_key(|(name, _)| *name);
        self.0.dedup_by(|later, earlier| {
            let is_same = later.0 == earlier.0;
            if is_same {
                *earlier = *later;
            }
            is_same
        });
        self
    }
}

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl<'de> Deserialize<'de> for Parts<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Parts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Parts<'de>, A::Error> {
                let mut parts = Vec::with_capacity(16);
                while let Some(part) = object.next_entry()? {
                    parts.push(part);
                }
                Ok(Parts(parts))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

fn told(event: &str, delivery: impl Serialize, mut facts: Parts<'_>) -> serde_json::Result<Vec<u8>> {
    let (name, id) = (to_raw_value(event)?, to_raw_value(&delivery)?);
    let mut said = if event.starts_with("audit.") {
        facts.0.retain(|(name, _)| *name != "user");
        facts
    } else {
        let details = facts.get("details").and_then(|details| serde_json::from_str::<Parts<'_>>(details.get()).ok());
        let known = [("id", "eventId"), ("at", "occurredAt"), ("appId", "appId"), ("user", "user"), ("test", "test")];
        let known = known.into_iter().filter_map(|(from, to)| Some((to, facts.get(from)?)));
        let where_from = ["ip", "userAgent"].into_iter().filter_map(|name| Some((name, facts.get(name)?)));
        let where_from = where_from.filter(|(_, value)| value.get() != "null");
        Parts(known.chain(where_from).chain(details.unwrap_or_default().0).collect())
    };
    said.0.extend([("event", &*name), ("deliveryId", &*id)]);
    serde_json::to_vec(&said.sorted())
}

/// The user. After the account is deleted only the id is left.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct About {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email_verified: Option<bool>,
}

macro_rules! told { ($(#[doc = $about:literal] $type:ident { $($(#[doc = $doc:literal])* $field:ident: $kind:ty,)* })+) => { $(
    #[doc = $about]
    #[derive(Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    struct $type {
        /// The event's name.
        event: String,
        /// Names this delivery; the same on every attempt.
        delivery_id: String,
        /// Id of the event; the same in all its deliveries.
        event_id: Option<String>,
        occurred_at: Option<Timestamp>,
        /// The app it happened in; null when it happened on the service's own pages.
        app_id: Option<String>,
        user: About,
        /// Only when it happened in this app.
        ip: Option<String>,
        /// Only when it happened in this app.
        user_agent: Option<String>,
        /// Whether it is only a rehearsal.
        test: Option<bool>,
        $($(#[doc = $doc])* $field: Option<$kind>,)*
    }
)+ } }

told! {
    /// A user signed in to the app.
    UserSignedIn {
        session_id: String,
        /// The methods of the user's proof, such as `pwd` and `mfa`.
        methods: Vec<String>,
        device: String,
    }
    /// A user created an account.
    UserCreated {}
    /// A user switched a second factor on.
    UserMfaEnabled { factor: String, }
    /// A user switched a second factor off.
    UserMfaDisabled { factor: String, }
    /// A user added a passkey.
    UserPasskeyAdded { credential_id: String, device_name: String, }
    /// A user removed a passkey.
    UserPasskeyRemoved { credential_id: String, }
    /// A user verified their email.
    UserEmailVerified {}
    /// A session ended before its time.
    SessionRevoked {
        session_id: String,
        /// Such as `logout` or `password_changed`.
        reason: String,
    }
}

/// Anything in the audit log.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AuditEvent {
    /// `audit.` and the type.
    event: String,
    /// Names this delivery; the same on every attempt.
    delivery_id: String,
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    /// The user who did it.
    actor: Option<String>,
    /// The affected resource.
    target: Option<String>,
    org_id: Option<String>,
    app_id: Option<String>,
    ip: Option<String>,
    user_agent: Option<String>,
    at: Option<Timestamp>,
    /// Details of this event type.
    details: Option<Map<String, Value>>,
    /// Whether it is only a rehearsal.
    test: Option<bool>,
}

/// The facts of an example, by the event's name.
pub fn example_facts(event: &str) -> Value {
    let session = "019c137e-c107-7b52-8d0c-6f1d7f0c9a11";
    let (kind, details) = match event {
        "user.signed_in" => {
            ("SIGNED_IN", json!({ "sessionId": session, "methods": ["pwd"], "device": "Firefox on Linux" }))
        }
        "user.created" => ("ACCOUNT_CREATED", json!({})),
        "user.mfa_enabled" => ("MFA_ENABLED", json!({ "factor": "totp" })),
        "user.mfa_disabled" => ("MFA_DISABLED", json!({ "factor": "totp" })),
        "user.passkey_added" => ("PASSKEY_ADDED", json!({ "credentialId": "pX4Gt1uJ", "deviceName": "Laptop" })),
        "user.passkey_removed" => ("PASSKEY_REMOVED", json!({ "credentialId": "pX4Gt1uJ" })),
        "user.email_verified" => ("EMAIL_VERIFIED", json!({})),
        "session.revoked" => ("SESSION_REVOKED", json!({ "sessionId": session, "reason": "logout" })),
        _ => ("PROFILE_UPDATED", json!({ "fields": ["name"] })),
    };
    let person = "019c137e-c107-7f36-aa03-c8508b253019";
    json!({
        "id": "019c137e-c107-7c1a-b0a5-2f1c6d3e4f50", "type": kind, "actor": person, "target": person, "orgId": null,
        "appId": "019c137e-c107-7e01-9a44-5b6c7d8e9f01", "ip": "203.0.113.7", "userAgent": "Mozilla/5.0",
        "at": "2026-01-31T10:00:00.000Z", "details": details,
        "user": { "id": person, "email": "ada@example.com", "name": "Ada", "emailVerified": true },
    })
}

fn example(event: &str) -> Value {
    let facts = example_facts(event).to_string();
    let parts = serde_json::from_str(&facts).unwrap_or_default();
    let body = told(event, "019c137e-c2d0-7d11-8f00-3a4b5c6d7e8f", parts).unwrap_or_default();
    serde_json::from_slice(&body).unwrap_or_default()
}

/// Adds what is told to the description of the interface.
pub fn describe(routes: Routes) -> Routes {
    routes
        .tells::<UserSignedIn>("user.signed_in", "a user completed sign-in to the app", &example("user.signed_in"))
        .tells::<UserCreated>("user.created", "a new user account was created", &example("user.created"))
        .tells::<UserMfaEnabled>("user.mfa_enabled", "a user enabled MFA", &example("user.mfa_enabled"))
        .tells::<UserMfaDisabled>("user.mfa_disabled", "a user disabled MFA", &example("user.mfa_disabled"))
        .tells::<UserPasskeyAdded>("user.passkey_added", "a passkey was registered", &example("user.passkey_added"))
        .tells::<UserPasskeyRemoved>(
            "user.passkey_removed",
            "a passkey was removed",
            &example("user.passkey_removed"),
        )
        .tells::<UserEmailVerified>(
            "user.email_verified",
            "a user's email address was verified",
            &example("user.email_verified"),
        )
        .tells::<SessionRevoked>("session.revoked", "a session was revoked", &example("session.revoked"))
        .tells::<AuditEvent>("audit.*", "every audit-log event, as audit.<TYPE>", &example("audit.PROFILE_UPDATED"))
}
