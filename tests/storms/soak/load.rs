//! What is there before the load begins, and the clients of keys, usage, mail and reads.
use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    Area, Options, Soak,
    faults::Windows,
    inbox::Inbox,
    ledger::Ledger,
    people::login,
    tally::Tally,
    world::{OWNER, World},
};
use crate::{
    deploys::send,
    one_node::Dice,
    skills::package,
    support::{
        people::{PASSWORD, text},
        wait,
    },
};

/// What a key alone opens.
const GRANT: &[u8] = b"grant_type=client_credentials";

impl Soak {
    /// An owner with an organization, an app with its keys, a webhook, a skill and a first deployment.
    pub fn set_up(options: Options) -> Self {
        let world = World::start(&options);
        let to = world.nodes[0].address;
        let ask = |request: &str, token: &str, body: &Value| -> Value {
            let bearer = if token.is_empty() { String::new() } else { format!("\r\nAuthorization: Bearer {token}") };
            let head = format!("{request} HTTP/1.1\r\nHost: localhost{bearer}\r\nContent-Type: application/json");
            let (status, said) = send(to, &head, body.to_string().as_bytes()).expect("an answer");
            assert!((200..300).contains(&status), "{request}: {status} {}", String::from_utf8_lossy(&said));
            serde_json::from_slice(&said).unwrap_or_default()
        };
        let mut inbox = Inbox::at(world.smtp.inbox());
        ask("POST /auth/register", "", &json!({ "email": OWNER, "password": PASSWORD, "name": "Ada" }));
        let code = wait("the owner's mail", || inbox.code(OWNER));
        ask("POST /auth/verify-email", "", &json!({ "email": OWNER, "code": code }));
        let access = text(&ask("POST /auth/login", "", &login(OWNER))["accessToken"]);
        let org = text(&ask("POST /org", &access, &json!({ "name": "Acme", "slug": "acme" }))["id"]);
        let new_app = |name: &str, slug: &str| {
            text(&ask("POST /apps", &access, &json!({ "name": name, "slug": slug, "orgId": org }))["id"])
        };
        let (app, probe) = (new_app("Shop 0", "shop"), new_app("Probe", "probe"));
        let other = text(&ask("POST /org", &access, &json!({ "name": "Rival" }))["id"]);
        let rival = text(&ask("POST /apps", &access, &json!({ "name": "Rival", "orgId": other }))["id"]);
        let mut ledger = Ledger::default();
        let mut new_key = |kind: &str| {
            let key = json!({ "type": kind, "environment": "live" });
            let key = ask(&format!("POST /apps/{app}/keys"), &access, &key);
            ledger.keys.insert(text(&key["id"]));
            text(&key["value"])
        };
        let (secret, public) = (new_key("secret"), new_key("publishable"));
        let hook =
            json!({ "url": format!("http://{}/", world.hooks.address), "events": ["audit.*", "user.signed_in"] });
        let hook = ask(&format!("POST /apps/{app}/webhooks"), &access, &hook);
        let scim = text(&ask(&format!("POST /org/{org}/scim-tokens"), &access, &json!({ "name": "staff" }))["value"]);
        let group = text(&ask("POST /scim/v2/Groups", &scim, &json!({ "displayName": "Staff" }))["id"]);
        let room = tempfile::tempdir().unwrap();
        let head = format!(
            "POST /skills?namespace=acme HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {access}\r\n\
             Content-Type: application/gzip"
        );
        let (status, said) = send(to, &head, &package(room.path(), "1.0.0", "words")).expect("an answer");
        assert!(matches!(status, 200..300), "{status} {}", String::from_utf8_lossy(&said));
        // The first keys came before the webhook, so no delivery tells of them.
        ledger.silent.clone_from(&ledger.keys);
        let soak = Self {
            options,
            world,
            windows: Windows::default(),
            ledger: Mutex::new(ledger),
            tally: Mutex::new(Tally::default()),
            inbox: Mutex::new(inbox),
            access: access.into(),
            next: 0.into(),
            began: Instant::now(),
            over: false.into(),
            finished: false.into(),
            org,
            app,
            probe,
            rival,
            secret,
            public,
            hook: text(&hook["id"]),
            hook_secret: text(&hook["secret"]),
            hook_since: text(&hook["createdAt"]),
            scim,
            group,
        };
        soak.publish(&mut Dice(0)).expect("a first deployment");
        soak
    }

    /// Creates keys, uses and deletes them, and renames the app.
    pub fn change_keys(&self, dice: &mut Dice) {
        while !self.is_over() {
            self.change_key(dice);
            Self::pause(dice, 300);
        }
    }

    fn change_key(&self, dice: &mut Dice) -> Option<()> {
        let keys = format!("/apps/{}/keys", self.app);
        let wish = json!({ "type": "secret", "environment": "live" });
        let reply = self.ask(Area::Apps, dice, &format!("POST {keys}"), &self.bearer(), &wish, &[200, 201])?;
        let (id, value) = (text(&reply.json()["id"]), text(&reply.json()["value"]));
        self.note(|ledger| ledger.keys.insert(id.clone()));
        let form = "\r\nContent-Type: application/x-www-form-urlencoded";
        let more = format!("{}{form}", Self::key(&value));
        self.ask_with(Area::Apps, dice, "POST /oauth/token", &more, GRANT, &[200])?;
        let number = self.number();
        let path = format!("PATCH /apps/{}", self.app);
        let name = json!({ "name": format!("Shop {number}") });
        if self.ask(Area::Apps, dice, &path, &self.bearer(), &name, &[200]).is_some() {
            self.note(|ledger| ledger.renamed = number);
        }
        // An app has a hundred keys at most.
        if dice.roll(8) > 0 || self.note(|ledger| ledger.keys.len()) > 60 {
            self.note(|ledger| ledger.keys.remove(&id));
            let path = format!("DELETE {keys}/{id}");
            let reply = self.ask(Area::Apps, dice, &path, &self.bearer(), &Value::Null, &[204, 404])?;
            if reply.status == 404 && reply.unanswered == 0 {
                self.wrong(format!("key {id} was lost before it was deleted"));
            }
            self.note(|ledger| ledger.deleted_keys.insert(id));
            self.everywhere(Area::Apps, "a deleted key", "POST /oauth/token", &more, GRANT, 401);
        }
        Some(())
    }

    /// Usage events, alone and in batches.
    pub fn count(&self, dice: &mut Dice) {
        while !self.is_over() {
            let events: Vec<_> = (0..=dice.roll(20))
                .map(|_| {
                    let (number, customer) = (self.number(), dice.roll(3));
                    json!({ "meter": "api_calls", "value": 1 + number % 7, "eventId": format!("e{number}"),
                        "customer": format!("c{customer}") })
                })
                .collect();
            let (count, body) = (events.len() as u64, json!({ "events": events }));
            if let Some(reply) =
                self.ask(Area::Usage, dice, "POST /usage/track", &Self::key(&self.secret), &body, &[200])
            {
                if reply.json()["rejected"] != json!([]) {
                    self.wrong(format!("usage events are refused: {}", reply.json()));
                }
                let value: u64 = events.iter().filter_map(|event| event["value"].as_u64()).sum();
                self.note(|ledger| {
                    ledger.events += count;
                    ledger.used += value;
                });
            }
            Self::pause(dice, 200);
        }
    }

    pub fn write_mail(&self, dice: &mut Dice) {
        while !self.is_over() {
            let number = self.number();
            let body =
                json!({ "to": format!("zoe{number}@d{}.test", number % 5), "subject": "Soak", "text": "It rains." });
            if let Some(reply) = self.ask(Area::Mail, dice, "POST /email/send", &self.bearer(), &body, &[200]) {
                self.note(|ledger| ledger.mails.insert(text(&reply.json()["messageId"])));
            }
            Self::pause(dice, 400);
        }
    }

    /// What many read and few change.
    pub fn read(&self, dice: &mut Dice) {
        while !self.is_over() {
            self.read_one(dice);
            Self::pause(dice, 150);
        }
    }

    fn read_one(&self, dice: &mut Dice) -> Option<()> {
        let (bearer, kind) = (self.bearer(), dice.roll(4));
        let before = self.note(|ledger| ledger.people.iter().map(|person| person.sign_ins).sum::<u64>());
        let path = match kind {
            0 => "GET /skills".to_owned(),
            1 => format!("GET /analytics/app/{}/overview", self.app),
            2 => format!("GET /analytics/app/{}/timeseries?metric=sign_ins&interval=hour", self.app),
            _ => "GET /.well-known/jwks.json".to_owned(),
        };
        let said = self.ask(Area::Reads, dice, &path, &bearer, &Value::Null, &[200])?.json();
        let is_right = match kind {
            0 => said["skills"][0]["slug"] == "acme.pdf-tools",
            1 => said["events"]["signIns"].as_u64() >= Some(before),
            2 => said["series"][0]["points"].is_array(),
            _ => said["keys"].as_array().is_some_and(|keys| !keys.is_empty()),
        };
        if !is_right {
            self.wrong(format!("{path} after {before} sign-ins: {said}"));
        }
        Some(())
    }

    /// How long it took until every mail and every delivery had come, or no more came.
    pub fn drain(&self) -> Duration {
        let began = Instant::now();
        // A delivery gives up after three attempts. One whose attempts all met an absent receiver is asked for again.
        let recover = format!("POST /apps/{}/webhooks/{}/recover", self.app, self.hook);
        let since = json!({ "since": self.hook_since });
        let mut dice = Dice(self.options.seed ^ 0xd7a);
        self.ask(Area::Apps, &mut dice, &recover, &self.bearer(), &since, &[200]);
        let mut last = vec![];
        loop {
            let missing = [self.missing_mails(), self.missing_deliveries()].concat();
            if missing.is_empty() {
                break;
            }
            last = missing;
            // A mail that the server broke off waits five minutes and more.
            if began.elapsed() > Duration::from_mins(12) {
                break;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        let took = began.elapsed();
        println!("the last to come: {}", last.first().map_or("nothing was missing", String::as_str));
        // What would come a second time has the time to do so.
        std::thread::sleep(Duration::from_secs(2));
        took
    }
}
