//! Warnings at 80 and 100 percent of what a plan includes: an event and a mail, once in a period each.
use db::{Tx, params};
use kernel::Janua;

use super::{Counter, LimitedMeter};
use crate::{
    events::{self, About, By},
    messages::mail::{self, Letter, Mail, Sample},
    orgs::{self, Org},
};

crate::events! {
    /// An organization has used 80 percent of what its plan includes.
    QuotaWarning { meter: String, used: i64, limit: i64, plan: String } = "QUOTA_WARNING";
    /// An organization has used all that its plan includes.
    QuotaReached { meter: String, used: i64, limit: i64, plan: String } = "QUOTA_REACHED";
}

/// The step that a counter has reached.
fn step(used: i64, limit: i64) -> i64 {
    match (i128::from(used) * 100, i128::from(limit)) {
        (used, limit) if used >= limit * 100 => 100,
        (used, limit) if used >= limit * 80 => 80,
        _ => 0,
    }
}

/// Sends the warning that is due, if one is. A gauge that rises and falls is told of once a month.
pub(super) async fn tell(tx: &mut Tx, janua: &Janua, of: &LimitedMeter<'_>, counter: &Counter) -> db::Result<()> {
    let (pool, meter, limit) = (of.pool, of.meter, of.limit);
    let month = janua.clock.now().month().0;
    let is_same = counter.told_limit == limit.included && counter.told_month == month.0;
    let (reached, told) = (step(counter.used, limit.included), if is_same { counter.told } else { 0 });
    if reached <= told {
        return Ok(());
    }
    let (sql, whose) = match of.own {
        None => (
            "UPDATE quota SET told = $4, told_limit = $5, told_month = $6 WHERE org_id = $1 AND meter = $2 AND period = $3",
            pool.org.to_string(),
        ),
        Some(app) => (
            "UPDATE app_quota SET told = $4, told_limit = $5, told_month = $6
             WHERE app_id = $1 AND meter = $2 AND period = $3",
            app.to_string(),
        ),
    };
    let period = meter.period.start(janua.clock.now());
    tx.send(sql, params![whose, &*meter.name, period, reached, limit.included, month]).await?;
    let Some(org) = Org::find(&mut *tx, pool.org).await? else { return Ok(()) };
    let about = pool.app.map_or_else(|| About::in_org(pool.org), |app| About::application(app, pool.org));
    let (meter, used, limit, plan) = (meter.name.to_string(), counter.used, limit.included, of.plan.to_owned());
    let by = By::default();
    if reached == 100 {
        events::record(tx, janua, &by, about, &QuotaReached { meter: meter.clone(), used, limit, plan }).await?;
    } else {
        events::record(tx, janua, &by, about, &QuotaWarning { meter: meter.clone(), used, limit, plan }).await?;
    }
    for reader in orgs::admins_to_mail(tx, pool.org).await? {
        let (name, org, meter) = (reader.name, org.name.clone(), meter.clone());
        let page = format!("/console/orgs/{}/usage", pool.org);
        let notice = QuotaNotice { name, org, meter, used, limit, reached, page };
        mail::send(tx, janua, &reader.email, &notice).await?;
    }
    Ok(())
}

pub(crate) const MAILS: &[Sample] = &[Sample(|| sample(4, 80)), Sample(|| sample(5, 100))];

fn sample(used: i64, reached: i64) -> Box<dyn Mail> {
    let (name, org, meter) = ("Ada".into(), "Acme".into(), "members".into());
    Box::new(QuotaNotice { name, org, meter, used, limit: 5, reached, page: "/console/orgs/ORG/usage".into() })
}

/// To the admins of an organization.
struct QuotaNotice {
    name: String,
    org: String,
    meter: String,
    used: i64,
    limit: i64,
    reached: i64,
    /// Where the limits are.
    page: String,
}

impl Mail for QuotaNotice {
    fn name(&self) -> &'static str {
        if self.reached == 100 { "quota_reached" } else { "quota_warning" }
    }

    fn letter(&self) -> Letter {
        let (subject, sentence) = if self.reached == 100 {
            ("Quota reached", "{} has used all that its plan includes of the meter {}: {} of {}.")
        } else {
            (
                "80 percent of a quota used",
                "{} has used 80 percent of what its plan includes of the meter {}: {} of {}.",
            )
        };
        let after = "What is there stays as it is. A larger plan, or less of it, makes room again.";
        Letter::new(subject, sentence, after)
            .with(&[&self.org, &self.meter, &self.used.to_string(), &self.limit.to_string()])
            .to(&self.name)
            .button("Open usage", self.page.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::step;

    #[test]
    fn warnings_are_due_at_80_and_100_percent() {
        assert_eq!([79, 80, 99, 100, 150].map(|used| step(used, 100)), [0, 80, 80, 100, 100]);
        assert_eq!([0, 1].map(|used| step(used, 1)), [0, 100]);
        assert_eq!([3, 4, 5].map(|used| step(used, 5)), [0, 80, 100]);
        assert_eq!(step(i64::MAX, i64::MAX), 100);
    }
}
