//! What one webhook has to deliver, and where to: looked up as it is needed, and never more than a little.
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use kernel::{Janua, clock::Timestamp, fault::Result, http::Key};

use super::{
    attempt::Target,
    changes::Changes,
    deliveries::{Delivery, DeliveryId, Search, State},
    model::Held,
};

/// How many attempts go to one webhook at once.
pub(super) const AT_ONCE: usize = 16;
/// How many of them, with those that have ended, are not written down yet: whatever dies, no more are repeated.
const UNWRITTEN: usize = 4 * AT_ONCE;
/// What is looked up at once, so that memory does not grow with what waits.
const BATCH: u32 = 48;
/// How soon what came meanwhile is begun beside attempts that hang.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// After this long nothing more begins: others get their turn, and what is under way ends well within the lease.
const TURN: Duration = Duration::from_secs(20);

/// What one webhook has to deliver.
pub(super) struct Queue<'a> {
    janua: &'a Janua,
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
    pub fn of(janua: &'a Janua, held: Held) -> Self {
        let since = janua.clock.now();
        Self {
            janua,
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
    pub async fn begin(&mut self, most: usize) -> Result<Option<Vec<(Arc<Target>, Delivery)>>> {
        let most = most.min(UNWRITTEN - self.begun.len());
        let now = self.janua.clock.now();
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
        let changes = self.janua.own::<Arc<Changes>>().count();
        let would_have_heard = self.janua.db.hears_at_once();
        let is_now = |seen: &&Seen| would_have_heard && seen.changes == changes && seen.is_new(now);
        if let Some(seen) = self.seen.as_ref().filter(is_now) {
            return Ok(Some(seen.target.clone()));
        }
        let found = self.held.look(&self.janua.db).await?;
        let Some(webhook) = found.filter(|webhook| webhook.is_active) else { return Ok(None) };
        // What is as it was is not opened and read again. Two secrets are, because one of them has an end.
        let has_one_secret = webhook.retiring_secret.is_none();
        let target = match self.seen.take() {
            Some(seen) if seen.target.webhook == webhook => seen.target,
            _ => Arc::new(Target::of(self.janua, webhook, now)?),
        };
        self.seen = has_one_secret.then(|| Seen { target: target.clone(), at: now, changes });
        Ok(Some(target))
    }

    /// Whether nothing waits that was looked up.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// It was a while ago that nothing more was due.
    pub fn look_again(&mut self) {
        self.is_dry = false;
    }

    /// Looks up what is due, unless something is waiting already or somebody else is looking.
    async fn look_up(&mut self, now: Timestamp) -> Result<()> {
        while self.waiting.is_empty() && !self.is_dry && !self.is_asked {
            let search = self.search(now);
            self.found(Delivery::due(&self.janua.db, &search).await?);
        }
        Ok(())
    }

    /// What to look for when something is written down anyway: there it costs no way of its own.
    pub fn ask(&mut self) -> Option<Search> {
        self.is_asked = self.waiting.is_empty();
        self.is_asked.then(|| self.search(self.janua.clock.now()))
    }

    /// What was found on that way. Who has nothing under way looks once more before he leaves.
    pub fn answered(&mut self, due: Vec<Delivery>, is_idle: bool) {
        self.is_asked = false;
        self.found(due);
        self.is_dry &= !is_idle;
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

    /// An attempt has ended, and is not written down yet.
    pub fn ended(&mut self, delivery: &Delivery) {
        self.begun.insert(delivery.id, delivery.state);
    }

    pub fn written(&mut self, deliveries: &[DeliveryId]) {
        for delivery in deliveries {
            self.begun.remove(delivery);
        }
        self.is_dry = false;
    }
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
