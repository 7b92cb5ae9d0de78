//! Every guarded route, asked by everybody (P49, P50): without credentials, by a stranger, with every lower role and with
//! the least role that is enough. Routes come from the description and guards from the catalogue, so a new route is in the
//! matrix by itself. Where it needs a body, `samples.txt` has one.
use std::{collections::BTreeMap, net::SocketAddr};

use db::params;
use identity::testing::{Person, signed_in};
use kernel::{
    config::Config,
    testing::{Answer, Ask, TestJanua},
};
use serde_json::{Value, json};
use tokio::net::UdpSocket;

use super::{ROLES, built, catalogue, guard_of, lines, role};
use crate::start::features;

const SAMPLES: &str = include_str!("samples.txt");
/// An id that nothing has.
const RANDOM: &str = "019c137e-c107-7f36-aa03-c8508b253019";
/// A gzip-compressed tar with one page.
const ARCHIVE: &str = "H4sIAAAAAAACA8vMS0mt0Msoyc1hoBkwAAIzExMwDQToNBCYIrFB4ubmxqYMCgYMdAClxSWJRUArGUYmyEjNyclnGAWjYBSMglEw0gAAQ55vdQAIAAA=";
/// Packages of the skills `pdf-tools` and `csv-reader`.
pub(super) const PACKAGES: [&str; 2] = [
    "H4sIAAAAAAACAwv29vTx0ctNYaAhMAACMxMTMA0E6DRQ0gjBBoubG5oYMygYMNABlBaXJBYBrWQYmUBXV5crLzE31UqhICVNtyQ/P6eYKyW1OLkos6AkMz/PSiEoNTGlWCEtMye1WI8LpJphFIyCUTAKRsEwAABw96uPAAgAAA==",
    "H4sIAAAAAAACAwv29vTx0ctNYaAhMAACMxMTMA0E6DRQ0hjBBoubGwKVKxgw0AGUFpckFgGtZBiZQFdXlysvMTfVSiG5uEy3KDUxJbWIKyW1OLkos6AkMz/PSiEIKFaskJaZk1qsxwVSzjAKRsEoGAWjYOgDAM40YboACAAA",
];
/// What a caller with the right role gets where that is not a success: the guard has let the request through.
const REFUSED_LATER: &[(&str, &str, u16)] = &[
    // An archive is no JSON.
    ("POST", "/apps/{appId}/deploy", 415),
    // The version of the tenant is published already.
    ("POST", "/admin/skills/{slug}/versions/{version}", 409),
    ("POST", "/apps/{appId}/domain", 409),
    ("POST", "/apps/{appId}/domain/verify", 502),
    // It is the app's own name, and not one of its site.
    ("POST", "/apps/{appId}/domains/attach", 404),
    ("POST", "/apps/{appId}/webhooks/{webhookId}/deliveries/{deliveryId}/redeliver", 409),
    ("POST", "/webhooks/{id}/deliveries/{deliveryId}/redeliver", 409),
    // Without `Accept: text/event-stream`; and the tenant's webhook is no listener.
    ("GET", "/webhooks/listen", 406),
    ("GET", "/apps/{appId}/webhooks/listen", 406),
    ("POST", "/webhooks/listen/{id}/results", 404),
    ("POST", "/apps/{appId}/webhooks/listen/{webhookId}/results", 404),
    // The message of the tenant has ended, and its content is gone.
    ("POST", "/apps/{appId}/email/messages/{messageId}/cancel", 409),
    ("POST", "/apps/{appId}/email/messages/{messageId}/resend", 410),
    // Nothing was uploaded.
    ("POST", "/storage/finalize/{objectId}", 409),
    ("PATCH", "/storage/objects/{id}", 409),
    ("GET", "/apps/{appId}/storage/{objectId}/content", 404),
    // Without a name, and without the protocol's version.
    ("POST", "/apps/{appId}/storage", 400),
    ("POST", "/storage/uploads", 412),
    ("GET", "/storage/uploads/{objectId}", 412),
    ("PATCH", "/storage/uploads/{objectId}", 412),
    ("DELETE", "/storage/uploads/{objectId}", 412),
    // The email is verified.
    ("POST", "/admin/users/{userId}/resend-verification", 409),
    // Mail goes elsewhere in tests.
    ("GET", "/admin/outbox", 404),
    ("GET", "/admin/outbox/{id}", 404),
    // Nothing was bought yet.
    ("POST", "/billing/org/portal", 409),
    ("POST", "/billing/portal-session", 409),
    ("POST", "/billing/org/cancel", 409),
    ("POST", "/billing/admin/events/{eventId}/replay", 404),
];
/// The codes by which a guard refuses somebody who is signed in.
const GUARDS: &[&str] = &["unauthenticated", "forbidden", "app_session", "app_key_mismatch", "insufficient_scope"];

/// One guarded route, and the body it needs.
pub(super) struct Row {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) guard: String,
    pub(super) body: Option<Value>,
}

impl Row {
    fn needs_key(&self) -> bool {
        self.guard.starts_with("session+app-key")
    }

    fn ask<'a>(&self, t: &'a TestJanua, path: &str) -> Ask<'a> {
        let ask = t.ask(self.method.parse().expect("a method"), path);
        match &self.body {
            Some(body) => ask.json(body),
            None => ask,
        }
    }

    /// By a person, with the key of a tenant's app where the route asks for one.
    pub(super) async fn asked_by(&self, t: &TestJanua, person: &Person, path: &str, tenant: &Tenant) -> Answer {
        let ask = person.asks(self.ask(t, path));
        if self.needs_key() { ask.header("x-service-app-key", &tenant.key).await } else { ask.await }
    }

    /// The path with ids of one tenant in it. `above` is the tenant whose organization or app it leads into, which is
    /// another one where somebody asks for what does not belong there.
    pub(super) fn path(&self, above: &Tenant, tenant: &Tenant) -> String {
        let (mut filled, mut before, mut is_first) = (String::new(), "", !self.needs_key());
        for segment in self.path.split('/').skip(1) {
            let value = match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                Some(name) => {
                    let from = if is_first { above } else { tenant };
                    is_first = false;
                    from.id(before, name).unwrap_or_else(|| {
                        panic!("{}: what is {name}? Create one in `Tenant::of` and insert its id", self.path)
                    })
                }
                None => segment,
            };
            filled = format!("{filled}/{value}");
            before = segment;
        }
        filled
    }

    /// Whether the path has ids beyond that of the organization or app.
    fn has_more_ids(&self) -> bool {
        self.path.matches('{').count() > usize::from(!self.needs_key())
    }

    fn is_let_through(&self, answer: &Answer) -> bool {
        let later = REFUSED_LATER.iter().find(|(method, path, _)| (*method, *path) == (&self.method, &self.path));
        later.map_or((200..400).contains(&answer.status), |(.., status)| answer.status == *status)
    }
}

/// The bodies of `samples.txt`, by method and path.
pub(super) fn samples() -> BTreeMap<(String, String), Value> {
    let samples = lines(SAMPLES).map(|line| {
        let (method, rest) = line.split_once(' ').expect("method, path and body");
        let (path, body) = rest.trim().split_once(' ').expect("method, path and body");
        let body = serde_json::from_str(body.trim()).unwrap_or_else(|wrong| panic!("{line}: {wrong}"));
        ((method.to_owned(), path.to_owned()), body)
    });
    samples.collect()
}

/// Every guarded route of the description.
fn rows(description: &Value) -> Vec<Row> {
    let mut samples = samples();
    let catalogue = catalogue();
    let mut rows = vec![];
    for (row, operation) in built(description) {
        let guard = guard_of(&catalogue, &row);
        if ["public", "session-optional", "signature"].contains(&guard.as_str()) {
            // `admission` sends these.
            samples.remove(&row);
            continue;
        }
        let wanted = &operation["requestBody"];
        let schema = &wanted["content"]["application/json"]["schema"];
        let schema =
            schema["$ref"].as_str().map_or(schema, |path| description.pointer(&path[1..]).expect("a schema"));
        let may_be_empty = schema["required"].as_array().is_none_or(Vec::is_empty);
        let body = samples.remove(&row).or((wanted["required"] == true && may_be_empty).then(|| json!({})));
        let (method, path) = row;
        assert!(body.is_some() || wanted["required"] != true, "{method} {path} has no sample in samples.txt");
        rows.push(Row { method, path, guard, body });
    }
    assert!(samples.is_empty(), "samples.txt has bodies for routes that are not there: {:?}", samples.keys());
    rows
}

pub(super) fn archive() -> Vec<u8> {
    data_encoding::BASE64.decode(ARCHIVE.as_bytes()).expect("an archive")
}

pub(super) async fn deploy(t: &TestJanua, person: &Person, app: &str, archive: Vec<u8>) -> Answer {
    let ask = t.post(&format!("/apps/{app}/deploy")).header("content-type", "application/gzip");
    person.asks(ask.body(archive)).await
}

/// Publishes a package of a skill.
pub(super) async fn publish(t: &TestJanua, person: &Person, path: &str, package: &str) -> Answer {
    let package = data_encoding::BASE64.decode(package.as_bytes()).expect("a package");
    let made = person.asks(t.post(path).header("content-type", "application/gzip").body(package)).await;
    assert_eq!(made.status, 200, "{path}: {}", made.text);
    made
}

/// An organization with an app and one of everything else.
pub(super) struct Tenant {
    pub(super) ids: BTreeMap<&'static str, String>,
    pub(super) key: String,
    /// A secret key of the app.
    secret: String,
    scim_token: String,
    /// Of its framework agent.
    machine_token: String,
}

impl Tenant {
    pub(super) async fn of(t: &TestJanua, owner: &Person, people: &[Person]) -> Self {
        let make = async |path: String, body: Value| {
            let made = owner.asks(t.post(&path).json(&body)).await;
            assert_eq!(made.status, 200, "{path}: {}", made.text);
            made.body
        };
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let mut ids = BTreeMap::from([("userId", owner.id.clone())]);
        let made = make("/org".into(), json!({ "name": "Acme" })).await;
        let (org, slug) = (text(&made["id"]), text(&made["slug"]));
        let skill = publish(t, owner, &format!("/skills?namespace={slug}&version=1.0.0"), PACKAGES[0]).await;
        ids.extend([("slug", text(&skill.body["skill"]["slug"])), ("version", "1.0.0".to_owned())]);
        let put = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, $3, 0)";
        for (person, role) in people.iter().zip(["member", "admin", "owner", "member"]) {
            t.janua.db.exec(put, params![&org, &person.id, role]).await.expect("a member");
            ids.insert("userId", person.id.clone());
        }
        let invite = "INSERT INTO org_invite (org_id, email_key, email, role, hash, invited_by, created_at, sent_at,
                                              expires_at)
                      VALUES ($1, $3, $3, 'member', $1, $2, 0, 0, 9000000000000)";
        t.janua.db.exec(invite, params![&org, &owner.id, format!("{org}@example.com")]).await.expect("an invite");
        let token = make(format!("/org/{org}/scim-tokens"), json!({ "name": "Okta" })).await;
        let scim_token = text(&token["value"]);
        for (kind, name) in [("Users", "userName"), ("Groups", "displayName")] {
            let schema = format!("urn:ietf:params:scim:schemas:core:2.0:{}", kind.trim_end_matches('s'));
            let body = json!({ "schemas": [schema], (name): format!("scim-{org}@example.com") });
            let made = t.post(&format!("/scim/v2/{kind}")).json(&body);
            let made = made.header("authorization", &format!("Bearer {scim_token}")).await;
            assert_eq!(made.status, 201, "{}", made.text);
            ids.insert(if kind == "Users" { "scimUser" } else { "groupId" }, text(&made.body["id"]));
        }
        let app = text(&make("/apps".into(), json!({ "name": "Shop", "orgId": org })).await["id"]);
        let end_user = "INSERT INTO app_user (app_id, account_id, first_sign_in_at, last_sign_in_at)
                        VALUES ($1, $2, 0, 0)";
        t.janua.db.exec(end_user, params![&app, &ids["userId"]]).await.expect("an end user");
        let key = json!({ "type": "publishable", "environment": "live" });
        let key = make(format!("/apps/{app}/keys"), key).await;
        let secret = json!({ "type": "secret", "environment": "live" });
        let secret = text(&make(format!("/apps/{app}/keys"), secret).await["value"]);
        let deployed = deploy(t, owner, &app, archive()).await;
        assert_eq!(deployed.status, 200, "{}", deployed.text);
        make(format!("/apps/{app}/domain"), json!({ "domain": format!("app-{org}.example.com") })).await;
        let wallet = format!("0x{:0>40}", &org.replace('-', "")[..20]);
        let agent = make("/agent/register".into(), json!({ "name": "Bot", "wallet": wallet, "orgId": org })).await;
        let helper = json!({ "name": "Helper", "framework": "langgraph", "orgId": org });
        let helper = make("/framework-agent/register".into(), helper).await;
        let server = json!({ "name": format!("n{}", &org[..8]), "domain": "example.com", "orgId": org });
        let server = make("/mcp/register".into(), server).await;
        let registry = make(format!("/org/{org}/registry-keys"), json!({ "name": "Editor" })).await;
        ids.extend([
            ("agent", text(&agent["agent"]["id"])),
            ("frameworkAgent", text(&helper["clientId"])),
            ("mcpServer", text(&server["clientId"])),
            ("registryKeyId", text(&registry["id"])),
        ]);
        let (helper, password) = (text(&helper["clientId"]), text(&helper["clientSecret"]));
        let basic = json!({ "grant_type": "client_credentials", "client_id": helper, "client_secret": password });
        let machine = t.post("/oauth/token").json(&basic).await;
        let hook = json!({ "url": "https://127.0.0.1:9/", "events": ["user.passkey_added"] });
        let hook = text(&make(format!("/apps/{app}/webhooks"), hook).await["id"]);
        let delivery = make(format!("/apps/{app}/webhooks/{hook}/test"), json!({})).await;
        ids.extend(email_of(t, &org, &app).await);
        ids.insert("installationId", installation_of(t, &org, &owner.id).await);
        let object = json!({ "name": "a.txt", "contentType": "text/plain", "size": 1 });
        let object = owner.asks(t.post("/storage/presign-upload").json(&object));
        let object = object.header("x-service-app-key", &text(&key["value"])).await;
        ids.insert("objectId", text(&object.body["objectId"]));
        ids.extend([("tokenId", text(&token["id"])), ("keyId", text(&key["id"]))]);
        let request = "SELECT request_id FROM audit_event WHERE org_id = $1 AND request_id IS NOT NULL LIMIT 1";
        let (request,): (String,) = t.janua.db.one(request, params![&org]).await.expect("a request");
        ids.insert("requestId", request);
        ids.insert("deploymentId", text(&deployed.body["id"]));
        ids.insert("email", format!("{org}%40example.com"));
        ids.insert("domain", format!("app-{org}.example.com"));
        ids.extend([
            ("org", org),
            ("appId", app),
            ("webhookId", hook),
            ("deliveryId", text(&delivery["deliveryId"])),
        ]);
        let machine_token = text(&machine.body["access_token"]);
        Self { ids, key: text(&key["value"]), secret, scim_token, machine_token }
    }

    /// A tenant that does not exist.
    fn none(&self) -> Self {
        let ids = self.ids.keys().map(|name| (*name, RANDOM.to_owned())).collect();
        let Self { key, secret, scim_token, machine_token, .. } = self;
        let [key, secret, scim_token, machine_token] = [key, secret, scim_token, machine_token].map(Clone::clone);
        Self { ids, key, secret, scim_token, machine_token }
    }

    /// What stands for `{name}` after the segment `before`.
    fn id(&self, before: &str, name: &str) -> Option<&str> {
        let name = match (before, name) {
            ("org" | "orgs", "id") | ("org", "orgId") => "org",
            ("webhooks" | "listen", "id") => "webhookId",
            ("agent", "id") => "agent",
            ("framework-agent", "id") => "frameworkAgent",
            ("mcp", "id") => "mcpServer",
            ("deployments", "id") => "deploymentId",
            ("Users", "id") => "scimUser",
            ("Groups", "id") => "groupId",
            ("objects", "id") => "objectId",
            ("installations", "id") => "installationId",
            ("sessions" | "consents" | "trusted-devices" | "outbox", "id")
            | ("events", "eventId")
            | ("merchants", "accountId")
            | ("register", "operationId") => return Some(RANDOM),
            ("passkey", "credentialId") => return Some("none"),
            (_, name) => name,
        };
        self.ids.get(name).map(String::as_str)
    }
}

/// A sending domain that is taken as verified, a message that has ended, a template and a suppressed recipient.
async fn email_of(t: &TestJanua, org: &str, app: &str) -> Vec<(&'static str, String)> {
    let message = t.janua.entropy.uuid(t.janua.clock.now()).to_string();
    let (host, template) = (format!("m{org}.example.com"), format!("t{org}"));
    let domain = "INSERT INTO email_domain (app_id, hostname, org_id, subdomains, status, signing, has_return_path,
                                            findings, created_at, checked_at, checks)
                  VALUES ($1, $2, $3, $4, 'verified', 1, $4, '[]', $5, $5, 1)";
    let now = t.janua.clock.now();
    t.janua.db.exec(domain, params![app, &host, org, false, now]).await.expect("a sending domain");
    let sent = "INSERT INTO email_message (id, app_id, sender, from_header, subject, tags, created_at)
                VALUES ($1, $2, $2, 'no-reply@example.com', 'Hello', '[]', 0)";
    t.janua.db.exec(sent, params![&message, app]).await.expect("a message");
    let words = "INSERT INTO email_template (app_id, name, locale, subject, sample, updated_at)
                 VALUES ($1, $2, '', 'Hello', '{}', 0)";
    t.janua.db.exec(words, params![app, &template]).await.expect("a template");
    let suppressed = "INSERT INTO email_suppression (app_id, email_key, email, reason, created_at)
                      VALUES ($1, $2, $2, 'manual', 0)";
    t.janua.db.exec(suppressed, params![app, format!("{org}@example.com")]).await.expect("a suppression");
    vec![("hostname", host), ("messageId", message), ("name", template)]
}

/// An installation at the code host, with a delivery.
pub(super) async fn installation_of(t: &TestJanua, org: &str, account: &str) -> String {
    let id = t.janua.entropy.uuid(t.janua.clock.now()).to_string();
    let (count,): (i64,) = t
        .janua
        .db
        .one("SELECT CAST(COUNT(*) AS BIGINT) FROM codehost_installation", params![])
        .await
        .expect("a number");
    let installed = "INSERT INTO codehost_installation
                         (id, org_id, external_id, account_login, account_type, status, repository_selection, permissions,
                          may_uninstall, commit_statuses, pull_request_comments, connected_by, created_at, updated_at)
                     VALUES ($1, $2, $3, 'acme', 'Organization', 'active', 'all', '{}', $4, $4, $4, $5, 0, 0)";
    t.janua.db.exec(installed, params![&id, org, count + 1, false, account]).await.expect("an installation");
    deliver(t, count + 1).await;
    id
}

/// Another delivery to an installation, by its number at the host.
async fn deliver(t: &TestJanua, external: i64) {
    let delivery = t.janua.entropy.uuid(t.janua.clock.now()).to_string();
    let delivered = "INSERT INTO codehost_delivery (id, event, external_id, facts, via, received_at)
                     VALUES ($1, 'installation', $2, '{}', 'webhook', $3)";
    t.janua.db.exec(delivered, params![&delivery, external, t.janua.clock.now()]).await.expect("a delivery");
}

/// A second delivery to an installation.
pub(super) async fn deliver_again(t: &TestJanua, installation: &str) {
    let sql = "SELECT external_id FROM codehost_installation WHERE id = $1";
    let (external,): (i64,) = t.janua.db.one(sql, params![installation]).await.expect("an installation");
    deliver(t, external).await;
}

/// Those who ask.
struct Cast {
    /// Runs the platform, and owns the tenant.
    root: Person,
    /// With the roles of [`ROLES`] in it, and one more member whom the paths name.
    people: Vec<Person>,
    /// Has a tenant of her own.
    eve: Person,
    hers: Tenant,
}

/// What went wrong, for all rows together: one failure hides no other.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn check(&mut self, is_right: bool, row: &Row, who: &str, answer: &Answer) {
        if !is_right {
            let (status, code) = answer.refusal();
            self.0.push(format!("{} {} ({}), {who}: {status} {code}", row.method, row.path, row.guard));
        }
    }
}

/// A route of an organization or an app.
async fn ask_with_every_role(t: &TestJanua, row: &Row, least: &str, cast: &Cast, findings: &mut Findings) {
    // Anew for each row, because a row may take the organization away.
    let tenant = Tenant::of(t, &cast.root, &cast.people).await;
    let path = row.path(&tenant, &tenant);
    if row.needs_key() {
        let answer = row.ask(t, &path).header("x-service-app-key", &tenant.key).await;
        findings.check(answer.status == 401, row, "a key without a session", &answer);
        let answer = cast.root.asks(row.ask(t, &path)).await;
        findings.check(answer.status == 401, row, "a session without a key", &answer);
    }
    let said = |answer: &Answer| (answer.status, answer.body["code"].clone(), answer.body["title"].clone());
    let answer = row.asked_by(t, &cast.eve, &path, &tenant).await;
    findings.check(answer.refusal() == (404, "not_found"), row, "a stranger", &answer);
    let none = tenant.none();
    let unknown = row.asked_by(t, &cast.eve, &row.path(&none, &none), &tenant).await;
    findings.check(said(&answer) == said(&unknown), row, "an id that does not exist", &unknown);
    if row.has_more_ids() {
        let answer = row.asked_by(t, &cast.eve, &row.path(&cast.hers, &tenant), &cast.hers).await;
        findings.check(answer.refusal() == (404, "not_found"), row, "an owner, of another tenant's things", &answer);
    }
    for (person, role) in cast.people.iter().zip(ROLES) {
        let answer = row.asked_by(t, person, &path, &tenant).await;
        if role == least {
            findings.check(row.is_let_through(&answer), row, role, &answer);
            break;
        }
        findings.check(answer.refusal() == (403, "forbidden"), row, role, &answer);
    }
}

/// A route that a program may call with a secret key of the app.
async fn ask_with_keys(t: &TestJanua, row: &Row, cast: &Cast, findings: &mut Findings) {
    let tenant = Tenant::of(t, &cast.root, &cast.people).await;
    let path = row.path(&tenant, &tenant);
    let by_bearer = async |key: &str| row.ask(t, &path).header("authorization", &format!("Bearer {key}")).await;
    let by_header = async |key: &str| row.ask(t, &path).header("x-service-app-key", key).await;
    for answer in [by_bearer(&tenant.key).await, by_header(&tenant.key).await] {
        findings.check(answer.refusal() == (403, "secret_key_required"), row, "a publishable key", &answer);
    }
    for answer in [by_bearer(&cast.hers.secret).await, by_header(&cast.hers.secret).await] {
        findings.check(answer.refusal() == (404, "not_found"), row, "another app's secret key", &answer);
    }
    for answer in [by_bearer("sk_live_none").await, by_header("sk_live_none").await] {
        findings.check(answer.refusal() == (401, "invalid_app_key"), row, "a key that does not exist", &answer);
    }
    let answer = by_bearer(&tenant.secret).await;
    findings.check(row.is_let_through(&answer), row, "a secret key", &answer);
}

/// Every other guarded route: the right caller is not refused by the guard, and a wrong one is.
async fn ask_with_credentials(t: &TestJanua, row: &Row, number: usize, cast: &Cast, findings: &mut Findings) {
    let mut tenant = Tenant::of(t, &cast.root, &[]).await;
    if row.path.starts_with("/admin/users/{userId}") {
        // A person of their own, because a row may take the account away.
        tenant.ids.insert("userId", signed_in(t, &format!("person-{number}@example.com")).await.id);
    }
    let path = row.path(&tenant, &tenant);
    match row.guard.as_str() {
        "session" | "session-or-app-key" => {
            // A person of their own, because a row may take the account away.
            let person = signed_in(t, &format!("person-{number}@example.com")).await;
            let answer = person.asks(row.ask(t, &path)).await;
            findings.check(!GUARDS.contains(&answer.refusal().1), row, "a person", &answer);
        }
        "session+app-key" => {
            let answer = row.ask(t, &path).header("x-service-app-key", &tenant.key).await;
            findings.check(answer.status == 401, row, "a key without a session", &answer);
            let answer = cast.root.asks(row.ask(t, &path)).await;
            findings.check(answer.status == 401, row, "a session without a key", &answer);
            let answer = row.asked_by(t, &cast.eve, &path, &tenant).await;
            findings.check(answer.refusal() == (403, "not_an_app_user"), row, "a stranger", &answer);
            if row.path.contains('{') {
                let answer = row.asked_by(t, &cast.eve, &path, &cast.hers).await;
                findings.check(matches!(answer.status, 404 | 412), row, "another app's object", &answer);
            }
            let answer = row.asked_by(t, &cast.root, &path, &tenant).await;
            findings.check(row.is_let_through(&answer), row, "a user of the app", &answer);
        }
        "platform-owner" | "platform-admin" => {
            let answer = cast.eve.asks(row.ask(t, &path)).await;
            findings.check(answer.refusal() == (403, "forbidden"), row, "somebody else", &answer);
            let answer = cast.root.asks(row.ask(t, &path)).await;
            findings.check(row.is_let_through(&answer), row, "a platform owner", &answer);
        }
        "scim" => {
            let bearer = |tenant: &Tenant| format!("Bearer {}", tenant.scim_token);
            if row.path.contains('{') {
                let answer = row.ask(t, &path).header("authorization", &bearer(&cast.hers)).await;
                findings.check(answer.status == 404, row, "another tenant's token", &answer);
            }
            let answer = row.ask(t, &path).header("authorization", &bearer(&tenant)).await;
            findings.check(row.is_let_through(&answer), row, "the tenant's token", &answer);
        }
        "active-org-admin" => {
            let path = format!("{path}?orgId={}", tenant.ids["org"]);
            let answer = cast.eve.asks(row.ask(t, &path)).await;
            findings.check(answer.refusal() == (404, "not_found"), row, "a stranger", &answer);
            let member = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, $3, 0)";
            t.janua
                .db
                .exec(member, params![&tenant.ids["org"], &cast.people[0].id, "member"])
                .await
                .expect("a member");
            let answer = cast.people[0].asks(row.ask(t, &path)).await;
            findings.check(answer.refusal() == (403, "forbidden"), row, "a member", &answer);
            let answer = cast.root.asks(row.ask(t, &path)).await;
            findings.check(row.is_let_through(&answer), row, "an owner", &answer);
        }
        "agent-admin" | "session-or-kill-switch" => {
            let answer = cast.eve.asks(row.ask(t, &path)).await;
            findings.check(answer.refusal() == (404, "not_found"), row, "a stranger", &answer);
            let answer = cast.root.asks(row.ask(t, &path)).await;
            findings.check(row.is_let_through(&answer), row, "the owner", &answer);
        }
        "session-or-machine" => {
            let answer = row.ask(t, &path).header("authorization", &format!("Bearer {}", tenant.machine_token)).await;
            findings.check(row.is_let_through(&answer), row, "a machine", &answer);
            let answer = cast.root.asks(row.ask(t, &path)).await;
            findings.check(row.is_let_through(&answer), row, "a person", &answer);
        }
        "machine" => {
            let answer = row.ask(t, &path).header("authorization", &format!("Bearer {}", tenant.machine_token)).await;
            findings.check(row.is_let_through(&answer), row, "a machine", &answer);
            let answer = cast.root.asks(row.ask(t, &path)).await;
            findings.check(answer.status == 401, row, "a person", &answer);
        }
        "app-key-alone" if row.path == "/machine/spend" => {
            let answer = row.ask(t, &path).header("x-service-app-key", &tenant.key).await;
            findings.check(answer.refusal() == (403, "secret_key_required"), row, "a publishable key", &answer);
        }
        "app-key" | "app-key-alone" => {
            let answer = row.ask(t, &path).header("x-service-app-key", &tenant.key).await;
            findings.check(!matches!(answer.status, 401 | 403), row, "an app", &answer);
        }
        "refresh" => {
            let person = signed_in(t, &format!("person-{number}@example.com")).await;
            let cookie = format!("service_refresh={}", person.refresh);
            let answer = row.ask(t, &path).header("cookie", &cookie).header("sec-fetch-site", "same-origin").await;
            findings.check(row.is_let_through(&answer), row, "a browser", &answer);
        }
        "this-machine" => {
            let answer = row.ask(t, &path).await;
            findings.check(row.is_let_through(&answer), row, "this machine", &answer);
        }
        guard => panic!("{}: say in the matrix who may pass {guard}", row.path),
    }
}

/// A name server that refuses every question at once, so that no test waits for names.
async fn refusing_name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = socket.local_addr().expect("its address");
    tokio::spawn(async move {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question).await {
            // An answer, with the code REFUSED (RFC 1035, 4.1.1).
            question[2] |= 0x80;
            question[3] = (question[3] & 0xf0) | 5;
            if socket.send_to(&question[..length], from).await.is_err() {
                break;
            }
        }
    });
    address
}

/// A platform on which tenants of all kinds can be made.
pub(super) async fn platform() -> TestJanua {
    let config = Config { dns_servers: vec![refusing_name_server().await], ..Config::for_tests() }
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()])
        .with(|webhooks: &mut workshop::webhooks::Settings| {
            webhooks.webhook_allow_nets = vec!["127.0.0.0/8".parse().expect("a network")];
        });
    TestJanua::start_with(config, features).await
}

#[tokio::test]
async fn p49_p50_every_guarded_route_asks_for_its_role_and_hides_other_tenants() {
    let t = platform().await;
    let mut people = vec![];
    for name in ["member", "admin", "owner", "somebody"] {
        people.push(signed_in(&t, &format!("{name}@example.com")).await);
    }
    let (root, eve) = (signed_in(&t, "root@example.com").await, signed_in(&t, "eve@example.com").await);
    let hers = Tenant::of(&t, &eve, &[]).await;
    let cast = Cast { root, people, eve, hers };
    let mut findings = Findings::default();
    for (number, row) in rows(&t.janua.description.get().expect("the description").value()).iter().enumerate() {
        let nobody = row.ask(&t, &row.path(&cast.hers, &cast.hers)).from("192.0.2.1").await;
        findings.check(nobody.status == 401, row, "nobody", &nobody);
        if ["session-or-secret-key", "session-or-deploy-token"].contains(&row.guard.as_str()) {
            ask_with_keys(&t, row, &cast, &mut findings).await;
        }
        match role(&row.guard).filter(|role| ROLES.contains(role)) {
            Some(least) => ask_with_every_role(&t, row, least, &cast, &mut findings).await,
            None => ask_with_credentials(&t, row, number, &cast, &mut findings).await,
        }
        t.run_jobs().await;
        t.advance(std::time::Duration::from_secs(2));
    }
    assert!(findings.0.is_empty(), "{:#?}", findings.0);
    t.finish().await;
}
