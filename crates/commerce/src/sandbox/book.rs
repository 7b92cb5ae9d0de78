//! The sandbox's objects, and the transaction in which they are read and changed. One request at a time: it is a test tool, and
//! this way it is right.
use db::{Tx, params, row};
use kernel::{Janua, clock::Timestamp, installation, jobs};
use serde_json::{Value, json};

use super::{OFFSET, deliver::Deliver};
use crate::stripe::VERSION;

/// Why a request is refused.
pub struct Refusal {
    pub status: u16,
    pub code: &'static str,
    pub message: String,
}

impl Refusal {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { status: 400, code, message: message.into() }
    }

    pub fn missing(what: &str) -> Self {
        Self { status: 404, code: "resource_missing", message: format!("No such {what}") }
    }
}

pub type Served = db::Result<Result<Value, Refusal>>;

/// How the events of a checkout are delivered, for tests of what listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    #[default]
    Normal,
    Twice,
    Reversed,
    Late,
    Lost,
}

impl Delivery {
    pub fn read(text: &str) -> Self {
        match text {
            "duplicate" => Self::Twice,
            "reorder" => Self::Reversed,
            "delay" => Self::Late,
            "lose" => Self::Lost,
            _ => Self::Normal,
        }
    }
}

pub struct Book<'a> {
    pub tx: &'a mut Tx,
    pub janua: &'a Janua,
    /// By the sandbox's clock.
    pub now: Timestamp,
    pub delivery: Delivery,
    sent: i64,
}

pub struct Stored {
    pub kind: String,
    pub parent: String,
    pub body: Value,
}
row!(Stored { kind, parent, body });

pub struct Reply {
    pub digest: String,
    pub status: i64,
    pub body: Value,
}
row!(Reply { digest, status, body });

impl<'a> Book<'a> {
    pub async fn open(tx: &'a mut Tx, janua: &'a Janua) -> db::Result<Self> {
        installation::write_once(tx, OFFSET, "0").await?;
        installation::lock(tx, OFFSET).await?;
        let ahead = installation::read(&mut *tx, OFFSET).await?.and_then(|text| text.parse::<i64>().ok());
        let now = Timestamp(janua.clock.now().0 + ahead.unwrap_or_default());
        Ok(Self { tx, janua, now, delivery: Delivery::Normal, sent: 0 })
    }

    /// A new id that cannot be guessed: pages are reached by it.
    pub fn id(&self, kind: &str) -> String {
        let token: String =
            self.janua.entropy.token().expose().chars().filter(char::is_ascii_alphanumeric).take(28).collect();
        format!("sbx_{kind}_{token}")
    }

    pub fn seconds(&self) -> i64 {
        self.now.0.div_euclid(1000)
    }

    pub async fn find(&mut self, kind: &str, id: &str) -> db::Result<Option<Stored>> {
        let sql = "SELECT kind, parent, body FROM sandbox_object WHERE id = $1 AND kind = $2";
        self.tx.opt(sql, params![id, kind]).await
    }

    pub async fn get(&mut self, kind: &str, id: &str) -> db::Result<Option<Value>> {
        Ok(self.find(kind, id).await?.map(|stored| stored.body))
    }

    /// Those that belong to something, newest first.
    pub async fn of_parent(&mut self, kind: &str, parent: &str) -> db::Result<Vec<Value>> {
        let sql = "SELECT kind, parent, body FROM sandbox_object WHERE kind = $1 AND parent = $2
                   ORDER BY created_at DESC, id DESC LIMIT 100";
        let found: Vec<Stored> = self.tx.all(sql, params![kind, parent]).await?;
        Ok(found.into_iter().map(|stored| stored.body).collect())
    }

    /// The next thing that is due.
    pub async fn due(&mut self) -> db::Result<Option<Stored>> {
        let sql = "SELECT kind, parent, body FROM sandbox_object WHERE due_at IS NOT NULL AND due_at <= $1
                   ORDER BY due_at, id LIMIT 1";
        self.tx.opt(sql, params![self.now]).await
    }

    /// Writes an object; `due` is when something happens to it by itself.
    pub async fn put(&mut self, kind: &str, parent: &str, body: &Value, due: Option<Timestamp>) -> db::Result<()> {
        let id = body["id"].as_str().unwrap_or_default();
        self.tx
            .exec(
                "INSERT INTO sandbox_object (id, kind, parent, body, due_at, created_at) VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT (id) DO UPDATE SET body = $4, due_at = $5",
                params![id, kind, parent, body, due, self.now],
            )
            .await
            .map(drop)
    }

    /// Writes an event and sends it on its way. `account` is a merchant's, or empty.
    pub async fn emit(&mut self, kind: &str, object: &Value, account: &str) -> db::Result<()> {
        let now = self.janua.clock.now();
        let id = self.id("evt");
        let mut body = json!({
            "id": id, "object": "event", "type": kind, "created": self.seconds(), "livemode": false,
            "api_version": VERSION, "pending_webhooks": 1, "request": { "id": null, "idempotency_key": null },
            "data": { "object": shown(object) },
        });
        if !account.is_empty() {
            body["account"] = account.into();
        }
        self.tx
            .exec(
                "INSERT INTO sandbox_event (id, account, body, created_at) VALUES ($1, $2, $3, $4)",
                params![&id, account, &body, self.now],
            )
            .await?;
        self.sent += 1;
        let after = |ms: i64| Timestamp(now.0 + ms);
        let times: &[Timestamp] = match self.delivery {
            Delivery::Normal => &[now],
            Delivery::Twice => &[now, after(1000)],
            Delivery::Reversed => &[after((60 - self.sent).max(0) * 1000)],
            Delivery::Late => &[after(600_000)],
            Delivery::Lost => &[],
        };
        for at in times {
            jobs::enqueue_at(self.tx, self.janua, now, *at, None, &Deliver { id: id.clone() }).await?;
        }
        Ok(())
    }

    pub async fn reply(&mut self, key: &str) -> db::Result<Option<Reply>> {
        self.tx.opt("SELECT digest, status, body FROM sandbox_reply WHERE request_key = $1", params![key]).await
    }

    pub async fn keep_reply(&mut self, key: &str, digest: &str, status: u16, body: &Value) -> db::Result<()> {
        let sql =
            "INSERT INTO sandbox_reply (request_key, digest, status, body, created_at) VALUES ($1, $2, $3, $4, $5)";
        let now = self.janua.clock.now();
        self.tx.exec(sql, params![key, digest, i64::from(status), body, now]).await.map(drop)
    }
}

/// An object without what is the sandbox's own: names that begin with `_`.
pub fn shown(object: &Value) -> Value {
    match object {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| !name.starts_with('_'));
            Value::Object(fields.map(|(name, value)| (name.clone(), shown(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(shown).collect()),
        other => other.clone(),
    }
}

/// A list as the processor writes one.
pub fn list(url: &str, data: Vec<Value>, has_more: bool) -> Value {
    json!({ "object": "list", "url": url, "has_more": has_more, "data": Value::Array(data) })
}
