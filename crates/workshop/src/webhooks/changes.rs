//! Whether any webhook has changed: so that a lane that looked at its own need not look again before every attempt.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use db::Notice;
use tenancy::{apps, orgs};

/// The topic on which a change to a webhook is told.
pub const TOPIC: &str = "webhook";

/// Counts what this node hears of. They are few, so that it does not matter whose they are.
#[derive(Default)]
pub struct Changes(AtomicU64);

impl Changes {
    /// Whoever looks asks before: what is heard while he looks is then not missed.
    pub fn count(&self) -> u64 {
        self.0.load(SeqCst)
    }

    pub fn hear(&self, notice: &Notice) {
        let is_one = match notice {
            // With its app or its organization a webhook goes, too.
            Notice::News { topic, .. } => [TOPIC, apps::TOPIC, orgs::TOPIC].contains(&&**topic),
            Notice::StartOver => true,
        };
        if is_one {
            self.0.fetch_add(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_change_a_webhook_counts_and_nothing_else() {
        let changes = Changes::default();
        let news = |topic: &'static str| Notice::News { topic: topic.into(), body: String::new() };
        for (notice, count) in [
            (news(TOPIC), 1),
            (news("account"), 1),
            (news(apps::TOPIC), 2),
            (news(orgs::TOPIC), 3),
            (Notice::StartOver, 4),
            (news(tenancy::events::outbox::TOPIC), 4),
        ] {
            changes.hear(&notice);
            assert_eq!(changes.count(), count, "{notice:?}");
        }
    }
}
