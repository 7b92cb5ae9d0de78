//! One webhook's deliveries, while this node holds it: a few at a time, and what has ended is written down while others are
//! under way.
use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{Fuse, FusedFuture as _},
    stream::FuturesUnordered,
};
use kernel::{
    App,
    clock::Timestamp,
    crypto::HmacKey,
    db::{self, Tx},
    fault::Result,
    http::Key,
    ports::outgoing::{Call, Limits, NoReply, Reply},
};
use tokio::time;
use url::Url;

use super::{
    Pace,
    changes::Changes,
    deliveries::{Attempt, Delivery, DeliveryId, Search, State},
    model::{Held, Webhook},
    payload, retry, rules, sign,
};

/// How many attempts go to one webhook at once.
const AT_ONCE: usize = 16;
/// How many of them, with those that have ended, are not written down yet: whatever dies, no more are repeated.
const UNWRITTEN: usize = 4 * AT_ONCE;
/// What is looked up at once, so that memory does not grow with what waits.
const BATCH: u32 = 48;
/// How soon what came meanwhile is begun beside attempts that hang.
const LOOK: Duration = Duration::from_millis(250);
/// After this long nothing more begins: others get their turn, and what is under way ends well within the lease.
const TURN: Duration = Duration::from_secs(20);
const MOST_READ: usize = 64 * 1024;
/// How much of a receiver's answer is kept.
const MOST_KEPT: usize = 1024;

/// Delivers what is due, then lets go of the webhook.
pub async fn run(app: &App, held: Held) {
    if let Err(fault) = deliver(app, held).await {
        let cause = fault.cause().map(|(cause, _)| cause.to_owned());
        tracing::warn!(%fault, cause, webhook = %held.id, "attempts could not be made or written down");
    }
    let released: db::Result<()> = app.db.transact(held, |tx, held| Box::pin(held.release(tx))).await;
    if let Err(error) = released {
        // The lease runs out by itself.
        tracing::warn!(%error, webhook = %held.id, "cannot let go of a webhook");
    }
}

async fn deliver(app: &App, held: Held) -> Result<()> {
    let (mut queue, mut under_way) = (Queue::of(app, held), FuturesUnordered::new());
    // All that have ended are written down at once, and meanwhile others are under way.
    let (mut ended, mut writing) = (vec![], Fuse::terminated());
    let mut goes_on = Ok(true);
    loop {
        if matches!(goes_on, Ok(true)) {
            match queue.begin(AT_ONCE - under_way.len()).await {
                Ok(Some(begun)) => {
                    under_way.extend(begun.into_iter().map(|(target, delivery)| attempt(app, target, delivery)));
                }
                Ok(None) => goes_on = Ok(false),
                Err(fault) => goes_on = Err(fault),
            }
        }
        if writing.is_terminated() && !ended.is_empty() {
            writing = write_down(app, held, mem::take(&mut ended), queue.ask()).boxed().fuse();
        }
        tokio::select! {
            Some(first) = under_way.next() => {
                let mut next = Some(first);
                while let Some(delivery) = next {
                    queue.begun.insert(delivery.id, delivery.state);
                    ended.push(delivery);
                    next = under_way.next().now_or_never().flatten();
                }
            }
            (written, outcome) = &mut writing, if !writing.is_terminated() => {
                queue.written(&written);
                // What is under way is written down whatever becomes of these.
                match outcome {
                    Ok(Noted::GoesOn(None)) => {}
                    Ok(Noted::GoesOn(Some(due))) => {
                        queue.is_asked = false;
                        queue.found(due);
                        // Who has nothing under way looks once more before it leaves.
                        queue.is_dry &= !under_way.is_empty();
                    }
                    Ok(Noted::Over) => goes_on = goes_on.and(Ok(false)),
                    Err(fault) => goes_on = goes_on.and(Err(fault)),
                }
            }
            () = time::sleep(LOOK), if queue.waiting.is_empty() && !under_way.is_empty() => queue.is_dry = false,
            else => return goes_on.map(drop),
        }
    }
}

/// What one webhook has to deliver.
struct Queue<'a> {
    app: &'a App,
    held: Held,
    since: Timestamp,
    waiting: VecDeque<Delivery>,
    /// Everything up to here was looked up.
    after: Key,
    /// When it was last looked up from the start.
    from_start: Timestamp,
    seen: Option<Seen>,
    /// Begun and not written down yet, and where each is by now. In the database they are still due.
    begun: HashMap<DeliveryId, State>,
    /// Whoever writes down what has ended looks for more on the way.
    is_asked: bool,
    /// Nothing more was due when it was last looked up, which was a moment ago.
    is_dry: bool,
}

impl<'a> Queue<'a> {
    fn of(app: &'a App, held: Held) -> Self {
        let since = app.clock.now();
        Self {
            app,
            held,
            since,
            waiting: VecDeque::new(),
            after: Key::oldest(),
            from_start: since,
            seen: None,
            begun: HashMap::new(),
            is_asked: false,
            is_dry: false,
        }
    }

    /// What begins now, at most `most`; nothing at all when this webhook has nothing more to deliver here.
    async fn begin(&mut self, most: usize) -> Result<Option<Vec<(Arc<Target>, Delivery)>>> {
        let most = most.min(UNWRITTEN - self.begun.len());
        let now = self.app.clock.now();
        // A failure may be the one that switches the webhook off: it is written down before anything else is sent.
        let has_failed = || self.begun.values().any(|state| *state == State::Failed);
        if most == 0 || now.since(self.since) > TURN || has_failed() {
            return Ok(Some(vec![]));
        }
        self.look_up(now).await?;
        if self.waiting.is_empty() {
            return Ok(Some(vec![]));
        }
        let Some(target) = self.target(now).await? else { return Ok(None) };
        let most = most.min(self.waiting.len());
        self.begun.extend(self.waiting.iter().take(most).map(|delivery| (delivery.id, delivery.state)));
        Ok(Some(self.waiting.drain(..most).map(|delivery| (target.clone(), delivery)).collect()))
    }

    /// Where it goes, for each start: it may have been switched off, moved or given a new secret a moment ago. So it is
    /// looked at each time, unless that would have been heard.
    async fn target(&mut self, now: Timestamp) -> Result<Option<Arc<Target>>> {
        let changes = self.app.own::<Arc<Changes>>().count();
        let would_have_heard = self.app.db.hears_at_once();
        let is_now = |seen: &&Seen| would_have_heard && seen.changes == changes && seen.is_new(now);
        if let Some(seen) = self.seen.as_ref().filter(is_now) {
            return Ok(Some(seen.target.clone()));
        }
        let found = self.held.look(&self.app.db).await?;
        let Some(webhook) = found.filter(|webhook| webhook.is_active) else { return Ok(None) };
        // What is as it was is not opened and read again. Two secrets are, because one of them has an end.
        let has_one_secret = webhook.retiring_secret.is_none();
        let target = match self.seen.take() {
            Some(seen) if seen.target.webhook == webhook => seen.target,
            _ => Arc::new(Target::of(self.app, webhook, now)?),
        };
        self.seen = has_one_secret.then(|| Seen { target: target.clone(), at: now, changes });
        Ok(Some(target))
    }

    /// Looks up what is due, unless something is waiting already or somebody else is looking.
    async fn look_up(&mut self, now: Timestamp) -> Result<()> {
        while self.waiting.is_empty() && !self.is_dry && !self.is_asked {
            let search = self.search(now);
            self.found(Delivery::due(&self.app.db, &search).await?);
        }
        Ok(())
    }

    /// What to look for when something is written down anyway: there it costs no way of its own.
    fn ask(&mut self) -> Option<Search> {
        self.is_asked = self.waiting.is_empty();
        self.is_asked.then(|| self.search(self.app.clock.now()))
    }

    /// Of what is begun and still due in the database it sees as little as it can: it goes on where it was.
    fn search(&mut self, now: Timestamp) -> Search {
        // From the start again once in a while: another clock, or ours set back, may have put something before that.
        let is_long_ago = now.since(self.from_start) > LOOK || now < self.from_start;
        if self.begun.is_empty() || is_long_ago {
            (self.after, self.from_start) = (Key::oldest(), now);
        }
        Search { webhook: self.held.id, until: now, after: self.after.clone(), most: BATCH }
    }

    fn found(&mut self, due: Vec<Delivery>) {
        let is_all = due.len() < BATCH as usize;
        if let Some((at, id)) = due.last().and_then(|last| Some((last.ready_at?, last.id))) {
            // Others may come within the same millisecond, and their ids are in no order.
            self.after = Key { at, id: if is_all { String::new() } else { id.to_string() } };
        }
        self.waiting.extend(due.into_iter().filter(|delivery| !self.begun.contains_key(&delivery.id)));
        self.is_dry = is_all && self.waiting.is_empty();
    }

    fn written(&mut self, deliveries: &[DeliveryId]) {
        for delivery in deliveries {
            self.begun.remove(delivery);
        }
        self.is_dry = false;
    }
}

/// What came of writing down.
enum Noted {
    /// Others may follow: these, if it was asked for them.
    GoesOn(Option<Vec<Delivery>>),
    Over,
}

/// Answers which deliveries they were, too.
async fn write_down(
    app: &App,
    held: Held,
    ended: Vec<Delivery>,
    search: Option<Search>,
) -> (Vec<DeliveryId>, Result<Noted>) {
    let ids = ended.iter().map(|delivery| delivery.id).collect();
    let along = (app.clone(), held, ended, search);
    let written = app.db.transact(along, |tx, (app, held, ended, search)| {
        Box::pin(async move {
            if !note(tx, app, *held, ended).await? {
                return Ok(Noted::Over);
            }
            let Some(search) = search else { return Ok(Noted::GoesOn(None)) };
            Ok(Noted::GoesOn(Some(Delivery::due_then(tx, search).await?)))
        })
    });
    (ids, written.await)
}

/// Nothing counts that was done for a webhook which is gone, or which another node has by now.
pub(super) async fn note(tx: &mut Tx, app: &App, held: Held, ended: &[Delivery]) -> Result<bool> {
    if !held.keep(tx).await? {
        return Ok(false);
    }
    // A success ends a row of failures, and so do many in a row.
    let (mut goes_on, mut before) = (true, None);
    for delivery in ended {
        match delivery.state {
            State::Failed => {
                let counts = delivery.note_and_see(tx).await?;
                goes_on &= counts && rules::count_failure(tx, app, held.id).await?;
            }
            State::Delivered if before != Some(State::Delivered) => {
                delivery.note(tx).await?;
                held.succeeded(tx).await?;
            }
            _ => delivery.note(tx).await?,
        }
        before = Some(delivery.state);
    }
    Ok(goes_on)
}

/// A webhook as it was when it was last looked at.
struct Seen {
    target: Arc<Target>,
    at: Timestamp,
    /// How many changes had been heard of before.
    changes: u64,
}

impl Seen {
    fn is_new(&self, now: Timestamp) -> bool {
        self.at <= now && now.since(self.at) <= LOOK
    }
}

/// What a webhook is when an attempt begins.
struct Target {
    webhook: Webhook,
    /// Nothing when it is none, which no webhook is given.
    url: Option<Url>,
    keys: Vec<HmacKey>,
}

impl Target {
    fn of(app: &App, webhook: Webhook, now: Timestamp) -> Result<Self> {
        let keys = webhook.signing_secrets(app, now)?.iter().map(sign::key).collect();
        Ok(Self { url: webhook.url.parse().ok(), keys, webhook })
    }
}

/// One attempt, and what it makes of the delivery.
async fn attempt(app: &App, target: Arc<Target>, delivery: Delivery) -> Delivery {
    let body = payload::body(&delivery);
    if body.len() > payload::MOST {
        tracing::warn!(delivery = %delivery.id, event = delivery.event, bytes = body.len(), "a payload is too large and was dropped");
        return Delivery { state: State::Dropped, ready_at: None, ..delivery };
    }
    let at = app.clock.now();
    let outcome = post(app, &target, &delivery, body, at).await;
    end(app, delivery, outcome, at)
}

async fn post(
    app: &App,
    target: &Target,
    delivery: &Delivery,
    body: Vec<u8>,
    at: Timestamp,
) -> Result<Reply, NoReply> {
    let Target { webhook, url, keys } = target;
    let url = url.clone().ok_or(NoReply::NoSuchHost)?;
    let id = delivery.id.to_string();
    let mut headers = HeaderMap::new();
    let mut say = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    say(header::CONTENT_TYPE, "application/json".into());
    say(header::USER_AGENT, "Service-Webhooks/1.0".into());
    say(HeaderName::from_static("webhook-id"), id.clone());
    say(HeaderName::from_static("webhook-timestamp"), at.0.to_string());
    say(HeaderName::from_static("webhook-event-type"), delivery.event.clone());
    say(HeaderName::from_static("webhook-signature"), sign::signature(keys, at, &body));
    if webhook.standard_headers {
        let signature = sign::standard_signature(keys, &id, at, &body);
        say(HeaderName::from_static("svix-id"), id);
        say(HeaderName::from_static("svix-timestamp"), at.0.div_euclid(1000).to_string());
        say(HeaderName::from_static("svix-signature"), signature);
    }
    let limits = Limits { time: app.own::<Pace>().attempt, bytes: MOST_READ };
    app.outgoing.send(Call { method: Method::POST, url, headers, body: body.into(), limits }).await
}

fn end(app: &App, before: Delivery, outcome: Result<Reply, NoReply>, at: Timestamp) -> Delivery {
    let now = app.clock.now();
    let (status, text, asked, error) = match outcome {
        Ok(reply) => {
            let text: String = String::from_utf8_lossy(&reply.body).chars().take(MOST_KEPT).collect();
            let asked = reply.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            (reply.status.as_u16(), text, asked.and_then(|header| retry::asked_for(header, now)), None)
        }
        Err(why) => (0, why.to_string(), None, Some(why.to_string())),
    };
    let tries = before.tries + 1;
    let is_delivered = (200..300).contains(&status);
    let is_over = is_delivered || !retry::is_worth_it(status) || tries >= retry::TRIES;
    let jitter = || Duration::from_millis(app.entropy.up_to(retry::JITTER_MS));
    let attempt = Attempt { at, status_code: status, latency_ms: millis(now.since(at)), error };
    let mut attempts = before.attempts;
    attempts.0.push(attempt);
    Delivery {
        state: match (is_delivered, is_over) {
            (true, _) => State::Delivered,
            (false, true) => State::Failed,
            (false, false) => State::Pending,
        },
        ready_at: (!is_over).then(|| now.plus(retry::wait(tries, asked, jitter()))),
        tries,
        attempt_count: before.attempt_count + 1,
        status_code: status,
        // A text column cannot keep NUL.
        response: (!is_delivered).then(|| text.replace('\0', "\u{fffd}")),
        attempts,
        delivered_at: Some(now),
        // It was sent, and is not to fill the memory until that is written down.
        facts: String::new(),
        ..before
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
